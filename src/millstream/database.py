"""``Database``: the front door, and where everything is wired together."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import warnings
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from millstream.engine import Engine
from millstream.errors import (
    ClosedError,
    InvalidOptionError,
    LogError,
    SqlUnsupportedError,
    WrongObjectError,
)
from millstream.execute import Executor
from millstream.log import Log
from millstream.model.lsn import FIRST_LSN
from millstream.model.result import Result
from millstream.model.schema import Schema
from millstream.model.shown import public_names
from millstream.pipeline.session import Spark
from millstream.sources import Writer
from millstream.sources.batches import as_batches
from millstream.sources.csv_text import csv_rows
from millstream.sources.json_text import json_rows
from millstream.sql import (
    Describe,
    Explain,
    Listen,
    Query,
    Select,
    Show,
    ShowChanges,
    ShowCreate,
    Unlisten,
    parse,
)
from millstream.subscribe import Opener
from millstream.subscriptions import (
    AsyncEvents,
    AsyncSubscription,
    CallbackSubscription,
    Channels,
    Events,
    InlineSubscription,
    Registry,
    Subscription,
    notifications_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.catalog import Definition
    from millstream.model.batch import ChangeBatch
    from millstream.sources import Source
    from millstream.sql import ParameterValues, Statement
    from millstream.subscriptions import (
        AsyncListener,
        ChangeEvent,
        Include,
        Listener,
        Notification,
        Start,
    )

_VIEW_METRICS = ("state", "rows", "changes", "lsn", "lag_rows", "late_rows", "shifts", "restarts")
_CHANNELS = Schema.of(name="VARCHAR NOT NULL")
_QUERIES = (Select, Query, Show, ShowChanges, ShowCreate, Describe, Explain)


class Database:
    """A streaming database in a directory. Get one with ``millstream.open(path)``.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR)")
    ...     _ = db.execute("INSERT INTO users VALUES (1, 'Ada'), (2, 'Grace')")
    ...     db.query("SELECT name FROM users WHERE id = 2").fetchall()
    [('Grace',)]

    Args:
        path: the directory, made when it is not there; None: a temporary one, gone when closed.
        sync_interval: for how long, in seconds, async rows may be written but not on the disk;
            from 0 on.
        retention_interval: seconds between two rounds of retention, from 0.001 on.
        segment_bytes: a new file of the log is begun when the last one has this size.
        spark: your own SparkSession for the views; None: one is started with the first view.
        master: where that one runs; None: in this machine, embedded.
        spark_options: more of its options, as for ``SparkSession.builder.config``.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        sync_interval: float = 0.01,
        retention_interval: float = 60.0,
        segment_bytes: int = 64 << 20,
        spark: Any = None,  # noqa: ANN401 - a SparkSession; pyspark is imported with the first view
        master: str | None = None,
        spark_options: Mapping[str, str] | None = None,
    ) -> None:
        temporary = None if path is not None else tempfile.mkdtemp(prefix="millstream-")
        self.path = Path(path if path is not None else str(temporary))
        try:
            log = Log(
                self.path,
                sync_interval=sync_interval,
                retention_interval=retention_interval,
                segment_bytes=segment_bytes,
            )
        except BaseException:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        hold = log.hold(lsn=FIRST_LSN)  # until durable subscriptions hold what they need
        try:
            spark = Spark(self.path / "spark", session=spark, master=master, options=spark_options)
            self._engine = Engine(log, spark)
        except BaseException:
            log.close()
            raise
        finally:
            hold.release()
        self._registry = Registry(log, self._engine.positions)
        opener = self._opener = Opener(self._engine, self._registry)
        self._channels = Channels(
            lambda: Events(opener.listen(Subscription, (), None), notifications_of)
        )
        self._closer = _Closer(self._engine, self._registry, temporary)
        # Knows nothing of this object, so that one that was forgotten is found and closed.
        self._finalizer = weakref.finalize(self, _close_forgotten, self._closer)
        self._engine.start()
        # pyarrow imports pandas, if it is there, at its first conversion: better now than later.
        threading.Thread(target=pa.array, args=([0],), daemon=True).start()

    # ---- SQL

    def execute(
        self, sql: str, parameters: ParameterValues = None, *, tenant: str | None = None
    ) -> Result | Subscription:
        """Run statements, separated by semicolons; returns what the last one gives.

        ``LIVE SELECT`` gives a Subscription, all others a Result.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR)")
        ...     _ = db.execute("INSERT INTO users VALUES (?, ?)", [1, "O'Hara"])
        ...     db.query("SELECT name FROM users WHERE id = :id", {"id": 1}).fetchall()
        [("O'Hara",)]

        Args:
            sql: the statements.
            parameters: the values of the parameters: a list for each ``?`` in the order of the
                text, or a dict for ``:name``. A list in ``IN (?)`` stands for all its values.
            tenant: run them as this tenant.

        Raises:
            SqlError: a statement that is refused; it says where, why, and what to write instead.
                Nothing of the whole text was run if it cannot be read; statements before the one
                that failed stay done.
        """
        self._check()
        statements = parse(sql, parameters)
        result: Result | Subscription = Result.of_status("")
        for statement in statements:
            result = self._run(statement, tenant)
        return result

    def query(
        self, sql: str, parameters: ParameterValues = None, *, tenant: str | None = None
    ) -> Result:
        """The rows that a query gives now; what was pushed before by this thread is in it.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT)")
        ...     _ = db.insert("s", [(1,), (2,), (3,)])
        ...     db.query("SELECT n * 10 AS tens FROM s WHERE n > ?", [1]).to_pylist()
        [{'tens': 20}, {'tens': 30}]

        Args:
            sql: a SELECT, SHOW, DESCRIBE or EXPLAIN.
            parameters: the values of ``?`` or ``:name``, as for ``execute``.
            tenant: only this tenant's rows.
        """
        self._check()
        statements = parse(sql, parameters)
        for statement in statements:
            if not isinstance(statement, _QUERIES):
                raise SqlUnsupportedError(
                    "query is for SELECT, SHOW, DESCRIBE and EXPLAIN",
                    sql=sql,
                    line=statement.line,
                    column=statement.column,
                    hint="use db.execute",
                )
        run = Executor(self._engine, self._registry, tenant)
        return [run(statement) for statement in statements][-1]

    sql = query

    def explain(self, sql: str, parameters: ParameterValues = None) -> str:
        """How a query runs, as text."""
        explains = isinstance(sql, str) and sql.lstrip()[:7].upper() == "EXPLAIN"
        rows = self.query(sql if explains else f"EXPLAIN {sql}", parameters)
        return "\n".join(line for (line,) in rows)

    def _run(self, statement: Statement, tenant: str | None) -> Result | Subscription:
        if isinstance(statement, Select | Query) and statement.live:
            return self._opener.query(Subscription, statement, tenant=tenant)
        if tenant is not None:  # the channels are everybody's
            return Executor(self._engine, self._registry, tenant)(statement)
        if isinstance(statement, Listen):
            self._channels.listen(statement.channel)
            status = "LISTEN"
        elif isinstance(statement, Unlisten):
            self._channels.unlisten(statement.channel)
            status = "UNLISTEN"
        elif isinstance(statement, Show) and statement.kind == "channels":
            return Result.of_rows(_CHANNELS, [(name,) for name in self._channels.names])
        else:
            return Executor(self._engine, self._registry)(statement)
        return Result.of_status(status)

    # ---- pushing in

    def source(self, name: str, record: type | None = None) -> Source:
        """A producer's handle on a source; ``record`` is a dataclass that its rows may be.

        Raises:
            ObjectNotFoundError: there is no such source.
            SchemaMismatchError: the dataclass does not have the source's columns.
        """
        self._check()
        return self._engine.source(self._engine.catalog[name], record)

    def writer(self, name: str, *, batch_rows: int = 1024) -> Writer:
        """A handle that gathers rows and pushes them in batches."""
        return Writer(self.source(name), batch_rows)

    def insert(
        self,
        name: str,
        data: Any,  # noqa: ANN401 - any shape of rows
        *,
        replace: bool = False,
        tenant: str | None = None,
    ) -> int:
        """Add rows to a source or a table, all or none; returns how many.

        Args:
            name: the source or table.
            data: tuples, dicts, dataclasses; a dict of columns; an Arrow table, a pandas or polars
                frame, or anything else with ``__arrow_c_stream__``.
            replace: for a table: rows whose key is there replace the old ones.
            tenant: raise unless all rows are this tenant's.

        Raises:
            RowError: a value that does not fit; it names the row and the column.
            DuplicateKeyError: a key of a table that is there already.
        """
        self._check()
        definition = self._engine.catalog[name]
        return self._insert(definition, as_batches(data, definition.schema), replace, tenant)

    def insert_json(self, name: str, text: str | bytes, *, tenant: str | None = None) -> int:
        """Add rows from JSON: an array of objects, one object, or one object a line."""
        self._check()
        rows = json_rows(text, self._engine.catalog[name].schema)
        return self.insert(name, rows, tenant=tenant)

    def insert_csv(
        self,
        name: str,
        data: Any,  # noqa: ANN401 - text, bytes, a path or a file
        *,
        header: bool = True,
        delimiter: str = ",",
        tenant: str | None = None,
    ) -> int:
        """Add rows from CSV: text, bytes, a ``Path`` or an open file."""
        self._check()
        definition = self._engine.catalog[name]
        batches = csv_rows(data, definition.schema, header=header, delimiter=delimiter)
        return self._insert(definition, batches, replace=False, tenant=tenant)

    def _insert(
        self, definition: Definition, batches: list[ChangeBatch], replace: bool, tenant: str | None
    ) -> int:
        if tenant is not None:
            check = Executor(self._engine, self._registry, tenant).check_tenant
            for batch in batches:
                check(definition, batch.held_rows)
        if definition.kind == "source":
            if batches:
                self._engine.inlet(definition).enter(batches)
            return sum(map(len, batches))
        rows = [row for batch in batches for row in batch.held_rows]
        conflict = "replace" if replace else "error"
        return self._engine.insert_rows(definition, rows, conflict, tenant)

    def flush(self) -> int:
        """Wait until all that was pushed is on the disk and handed to subscribers.

        Returns the newest LSN.

        Raises:
            LogFullError: the disk is full. What was pushed waits and is written when there is room.
        """
        self._check()
        return self._engine.flush()

    checkpoint = flush

    @property
    def lsn(self) -> int:
        """The newest LSN that was given to a row."""
        return self._engine.dispatcher.lsn

    def wait_for(self, view: str, lsn: int | None = None, timeout: float | None = None) -> int:
        """Wait until a view has taken in everything up to an LSN, or all that was pushed so far.

        Returns that LSN.

        Raises:
            ViewNotReadyError: the time is up.
            ViewFailedError: the view's query cannot go on.
        """
        self._check()
        if lsn is None:
            lsn = self._engine.dispatcher.barrier(complete=True)
        definition = self._engine.catalog[view]
        if definition.name not in self._engine.views:
            raise WrongObjectError(
                f"{definition.name} is a {definition.kind}, not a view",
                hint="what db.flush() returns is on the disk and handed to subscribers",
            )
        self._engine.wait_for(definition.name, lsn, timeout)
        return lsn

    # ---- pushing out

    def subscribe(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: str = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        tenant: str | None = None,
    ) -> Subscription:
        """The changes of a query's result, to be asked for: iterate, or ``recv(timeout=)``.

        Args:
            query: a SELECT. With groups, joins or the like it becomes a view, shared by all who
                ask the same.
            parameters: the values of ``?`` or ``:name`` in it, as for ``execute``.
            start: None: for a source what comes now, for a table its rows and then their changes;
                or ``"now"``, ``"earliest"``, ``"snapshot"``, a token, an LSN, a datetime.
            backpressure: what happens when the reader is too slow: ``block`` (nothing is lost, the
                rest is read from the log), ``drop_oldest``, ``drop_newest``, ``sample(n)``,
                ``conflate``, ``disconnect``.
            buffer_rows: how many rows wait for it in memory.
            max_rows: at most so many rows in a batch.
            max_delay: wait so many seconds for ``max_rows`` to come together.
            demand: hand over only what ``request(n)`` asks for, and so many rows to begin with.
            name: makes it durable: it goes on after what was acknowledged with ``ack``, even after
                a restart.
            tenant: only this tenant's rows.
        """
        self._check()
        return self._opener.query(
            Subscription,
            query,
            parameters,
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
            tenant=tenant,
        )

    def subscribe_callback(
        self,
        query: str,
        on_change: Callable[[ChangeBatch], object],
        *,
        parameters: ParameterValues = None,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        inline: bool = False,
        start: Start = None,
        backpressure: str = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        tenant: str | None = None,
    ) -> CallbackSubscription | InlineSubscription:
        """Call back with every batch of changes, on a thread of its own.

        Args:
            query: a SELECT. With groups, joins or the like it becomes a view, shared by all who
                ask the same.
            on_change: called with each batch, one at a time.
            parameters: the values of ``?`` or ``:name`` in the query, as for ``execute``.
            on_error: called with what ``on_change`` raises, and with what ends the subscription.
            on_complete: called at the end, when the database closes.
            inline: call on the pusher's thread instead, before the row is committed; such a
                callback has none of the options that follow, except ``tenant``.
            start: as for ``subscribe``, and so are all that follow.
            backpressure: what happens when the callback is too slow.
            buffer_rows: how many rows wait for it in memory.
            max_rows: at most so many rows in a batch.
            max_delay: wait so many seconds for ``max_rows`` to come together.
            demand: call only with what ``request(n)`` asks for, and so many rows to begin with.
            name: makes it durable.
            tenant: only this tenant's rows.
        """
        self._check()
        if not callable(on_change):
            raise InvalidOptionError(f"{on_change!r} cannot be called", hint="give a function")
        if inline:
            _check_inline(
                start=start,
                backpressure=backpressure,
                buffer_rows=buffer_rows,
                max_rows=max_rows,
                max_delay=max_delay,
                demand=demand,
                name=name,
            )
            return self._opener.inline(
                query,
                parameters,
                tenant=tenant,
                on_change=on_change,
                on_error=on_error,
                on_complete=on_complete,
            )
        subscription = self._opener.query(
            CallbackSubscription,
            query,
            parameters,
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
            tenant=tenant,
            on_change=on_change,
            on_error=on_error,
            on_complete=on_complete,
        )
        subscription.start()
        return subscription

    def subscribe_stream(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: str = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        tenant: str | None = None,
    ) -> AsyncSubscription:
        """The changes of a query's result, for ``async for``; arguments are those of subscribe."""
        self._check()
        return self._opener.query(
            AsyncSubscription,
            query,
            parameters,
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
            tenant=tenant,
        )

    # ---- the change bus

    def changes(
        self,
        collection: str | None = None,
        tenant: str | None = None,
        *,
        fields: Sequence[str] | None = None,
        include: Include = "keys",
        start: Start = "now",
        backpressure: str = "block",
        buffer_rows: int = 65536,
    ) -> Events[ChangeEvent]:
        """Every committed mutation, one by one, in LSN order.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        ...     bus = db.changes("t", include="changed")
        ...     _ = db.execute("INSERT INTO t VALUES (1, 10); UPDATE t SET n = 11 WHERE id = 1")
        ...     [(e.op, e.key, e.changed) for e in (bus.recv(10), bus.recv(10))]
        [('insert', {'id': 1}, None), ('update', {'id': 1}, {'n': 11})]

        Args:
            collection: a source or table; None: all, those yet to be made included.
            tenant: only this tenant's rows; collections without tenants are left out.
            fields: the columns to be told.
            include: ``"keys"``, ``"after"``, ``"both"`` or ``"changed"``: which values are told.
            start: as for ``subscribe``.
            backpressure: what happens when the reader is too slow, as for ``subscribe``.
            buffer_rows: how many rows wait for it in memory.
        """
        self._check()
        maker = self._opener.event_maker(collection, fields, include)
        reading = self._opener.changes(
            Subscription,
            collection,
            tenant,
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
        )
        return Events(reading, maker)

    def changes_stream(
        self,
        collection: str | None = None,
        tenant: str | None = None,
        *,
        fields: Sequence[str] | None = None,
        include: Include = "keys",
        start: Start = "now",
        backpressure: str = "block",
        buffer_rows: int = 65536,
    ) -> AsyncEvents[ChangeEvent]:
        """Every committed mutation, for ``async for``; arguments are those of ``changes``."""
        self._check()
        maker = self._opener.event_maker(collection, fields, include)
        reading = self._opener.changes(
            AsyncSubscription,
            collection,
            tenant,
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
        )
        return AsyncEvents(reading, maker)

    def notify(self, channel: str, payload: str = "", *, tenant: str | None = None) -> None:
        """Send a message to whoever listens to a channel."""
        self._check()
        self._engine.notify(channel, payload, tenant)

    def listen(self, *channels: str, tenant: str | None = None) -> Listener:
        """The messages on some channels, or on all.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     listener = db.listen("orders")
        ...     db.notify("orders", "42 is ready")
        ...     listener.recv(timeout=10).payload
        '42 is ready'
        """
        self._check()
        return Events(self._opener.listen(Subscription, channels, tenant), notifications_of)

    def listen_stream(self, *channels: str, tenant: str | None = None) -> AsyncListener:
        """The same for ``async for``."""
        self._check()
        reading = self._opener.listen(AsyncSubscription, channels, tenant)
        return AsyncEvents(reading, notifications_of)

    def notifies(self, timeout: float | None = None) -> Iterator[Notification]:
        """What comes on the channels that SQL's LISTEN named; ends after so many idle seconds."""
        return self._channels.notifies(timeout)

    # ---- looking at it

    def metrics(self) -> dict[str, Any]:
        """Counters of the database, of each source and of each subscription."""
        self._check()
        engine, open_now = self._engine, self._registry.all()
        sources = self.query("SHOW SOURCES").to_pylist()
        counted = ("producers", "pending", "pushed", "dropped")
        return {
            "lsn": engine.dispatcher.lsn,
            "durable_lsn": engine.log.durable_lsn,
            "published": engine.dispatcher.published,
            "subscribers": len(open_now),
            "sources": {each["name"]: {k: each[k] for k in counted} for each in sources},
            "views": {
                each["name"]: {key: each[key] for key in _VIEW_METRICS}
                for kind in ("VIEWS", "STREAMS")
                for each in self.query(f"SHOW {kind}").to_pylist()
            },
            "subscriptions": [
                {"id": each.id, "name": each.name, "query": each.sql, **asdict(each.metrics)}
                for each in open_now
                if not isinstance(each, InlineSubscription)
            ],
        }

    def topology(self) -> dict[str, Any]:
        """What flows where: nodes, and edges between their names."""
        self._check()
        nodes = [{"name": each.name, "kind": each.kind} for each in self._engine.catalog]
        edges = [
            {"from": log, "to": running.view.name}
            for running in self._engine.views
            for log in running.planned.inputs
        ]
        for each in self._registry.all():
            if isinstance(each, InlineSubscription) or not each.target:
                continue
            name = each.name or f"subscription {each.id}"
            nodes.append({"name": name, "kind": "subscription"})
            edges.append({"from": each.target, "to": name})
        return {"nodes": nodes, "edges": edges}

    # ---- the end

    def close(self) -> None:
        """Commit what was pushed, complete the subscriptions, close the log. Twice is fine.

        Raises:
            LogFullError: the disk is full, and rows that were pushed without waiting are lost; the
                message and ``rows_lost`` say how many.
        """
        if self._finalizer.detach() is not None:
            self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<Database {self.path} {state}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def _check(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError("the database is closed", hint="open it again")
        self._engine.dispatcher.check()


def _check_inline(
    *,
    start: Start,
    backpressure: str,
    buffer_rows: int,
    max_rows: int | None,
    max_delay: float | None,
    demand: int | None,
    name: str | None,
) -> None:
    """Refuse the options that need a place in the log, or a buffer."""
    given = {
        "start": start is not None,
        "backpressure": backpressure != "block",
        "buffer_rows": buffer_rows != 65536,
        "max_rows": max_rows is not None,
        "max_delay": max_delay is not None,
        "demand": demand is not None,
        "name": name is not None,
    }
    if any(given.values()):
        raise InvalidOptionError(
            f"an inline callback has no {', '.join(each for each in given if given[each])}",
            hint="leave inline out, or the options",
        )


class _Closer:
    """Closes a database; knows nothing of the ``Database``."""

    def __init__(self, engine: Engine, registry: Registry, temporary: str | None) -> None:
        self._engine = engine
        self._registry = registry
        self._temporary = temporary

    @property
    def path(self) -> Path:
        """The directory."""
        return self._engine.log.path

    def __call__(self) -> None:
        if self._engine.dispatcher.is_forked:
            return
        with contextlib.ExitStack() as steps:  # each of them is taken, whatever the others raise
            if self._temporary is not None:
                self._engine.views.saver.abandon()
                steps.callback(shutil.rmtree, self._temporary, ignore_errors=True)
            steps.push(self._close_log)
            steps.callback(self._registry.end_all)
            self._engine.close()

    def _close_log(
        self, _: type[BaseException] | None, raised: BaseException | None, __: object
    ) -> None:
        """Close the log; rows that are lost here and rows that were before are one number."""
        try:
            self._engine.log.close()
        except LogError as error:
            before = raised.rows_lost if isinstance(raised, LogError) else 0
            if before and isinstance(error.__cause__, LogError):
                raise error.__cause__.with_lost(before + error.rows_lost) from error
            if before:
                raise error.with_lost(before) from error
            raise


def _close_forgotten(closer: _Closer) -> None:
    try:
        warnings.warn(f"the database {closer.path} was not closed", ResourceWarning, stacklevel=2)
    finally:
        # It may be found by one of its own threads, which cannot wait for itself.
        if threading.current_thread() is threading.main_thread():
            closer()
        else:
            threading.Thread(target=closer).start()
