"""``Session``: who runs statements. Everything that reads or writes rows goes through one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

from millstream.engine.execute import Executor, shown_to
from millstream.engine.subscribe import Opener
from millstream.errors import (
    ClosedError,
    InvalidOptionError,
    SqlUnsupportedError,
    TenantError,
    WrongObjectError,
)
from millstream.formats.batches import as_batches
from millstream.formats.csv_text import csv_rows
from millstream.formats.json_text import json_rows
from millstream.model.result import Result
from millstream.model.schema import Schema
from millstream.model.shown import public_names
from millstream.sources import Writer
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
from millstream.subscriptions import (
    AsyncEvents,
    AsyncSubscription,
    CallbackSubscription,
    Channels,
    Events,
    InlineSubscription,
    NotificationMaker,
    Registry,
    SubscribeOptions,
    Subscription,
    check_callback,
)
from millstream.subscriptions.base import deadline_of, time_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.catalog import Definition
    from millstream.engine.engine import Engine
    from millstream.formats.text import TextInput
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

_CHANNELS = Schema.of(name="VARCHAR NOT NULL")
_QUERIES = (Select, Query, Show, ShowChanges, ShowCreate, Describe, Explain)


class Session:
    """The database as one tenant sees it. Get one with ``db.session(tenant=...)``.

    Every statement and every way to read or write is that of its tenant: it sees the rows whose
    tenant column has its name, writes no others, and changes nothing of what exists. What has no
    tenant column is refused. A ``Database`` is the session of those who see everything.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE s (who VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'who')")
    ...     _ = db.insert("s", [("acme", 1), ("acme", 2), ("other", 40)])
    ...     acme = db.session(tenant="acme")
    ...     acme.query("SELECT SUM(n) AS total FROM s").fetchall()
    [(3,)]

    Args:
        engine: what it acts on.
        registry: the subscriptions that are open.
        tenant: whose rows it sees; None: all.
        check_open: raises when the database is closed.

    Attributes:
        tenant: whose rows it sees; None: all.
    """

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        tenant: str | None,
        check_open: Callable[[], None],
    ) -> None:
        self.tenant = tenant
        self._engine = engine
        self._registry = registry
        self._check_open = check_open
        self._is_closed = False
        opener = self._opener = Opener(engine, registry)
        self._channels = Channels(
            lambda: Events(opener.listen(Subscription, (), tenant), NotificationMaker())
        )

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
        tenant = self._as(tenant)
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
        tenant = self._as(tenant)
        statements = parse(sql, parameters)
        for statement in statements:
            is_live = isinstance(statement, Select | Query) and statement.live
            if is_live or not isinstance(statement, _QUERIES):
                raise SqlUnsupportedError(
                    "query is for SELECT, SHOW, DESCRIBE and EXPLAIN",
                    sql=sql,
                    line=statement.line,
                    column=statement.column,
                    hint="use db.subscribe" if is_live else "use db.execute",
                )
        return [self._answer(statement, tenant) for statement in statements][-1]

    sql = query

    def explain(self, sql: str, parameters: ParameterValues = None) -> str:
        """How a query runs, as text."""
        if isinstance(sql, str) and sql.lstrip()[:7].upper() != "EXPLAIN":
            sql = f"EXPLAIN {sql}"
        rows = self.query(sql, parameters)
        return "\n".join(line for (line,) in rows)

    def _run(self, statement: Statement, tenant: str | None) -> Result | Subscription:
        if isinstance(statement, Select | Query) and statement.live:
            return self._opener.query(Subscription, statement, tenant=tenant)
        if isinstance(statement, Listen | Unlisten) and tenant != self.tenant:
            raise TenantError(
                "LISTEN belongs to a session, and tenant= is for one call",
                hint="db.session(tenant=...) listens for a tenant; or call db.listen(..., tenant=)",
            )
        if isinstance(statement, Listen):
            self._channels.listen(statement.channel)
            status = "LISTEN"
        elif isinstance(statement, Unlisten):
            self._channels.unlisten(statement.channel)
            status = "UNLISTEN"
        else:
            return self._answer(statement, tenant)
        return Result.of_status(status)

    def _answer(self, statement: Statement, tenant: str | None) -> Result:
        """Carry out a statement that opens nothing."""
        if isinstance(statement, Show) and statement.kind == "channels" and tenant == self.tenant:
            return Result.of_rows(_CHANNELS, [(name,) for name in self._channels.names])
        return Executor(self._engine, self._registry, tenant)(statement)

    # ---- pushing in

    def source(self, name: str, record: type | None = None) -> Source:
        """A producer's handle on a source; ``record`` is a dataclass that its rows may be.

        Raises:
            ObjectNotFoundError: there is no such source.
            SchemaMismatchError: the dataclass does not have the source's columns.
        """
        tenant = self._as(None)
        definition = self._engine.find(name, tenant)
        check = None
        if tenant is not None:
            check = partial(Executor(self._engine, self._registry, tenant).check_tenant, definition)
        return self._engine.source(definition, record, check)

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
        tenant = self._as(tenant)
        definition = self._engine.find(name, tenant)
        return self._insert(definition, as_batches(data, definition.schema), replace, tenant)

    def insert_json(self, name: str, data: TextInput, *, tenant: str | None = None) -> int:
        """Add rows from JSON: an array of objects, one object, or one object a line.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT, x DOUBLE)")
        ...     db.insert_json("s", '[{"n": 1, "x": 0.5}, {"n": 2}]')
        2

        Args:
            name: the source or table.
            data: a str or bytes is the JSON itself; a file is a ``pathlib.Path``, or open, for text
                or in binary.
            tenant: raise unless all rows are this tenant's.

        Raises:
            RowError: a value that does not fit; it names the row and the column.
            SchemaMismatchError: it is no JSON; it names line and column.
            OSError: the path cannot be read.
        """
        tenant = self._as(tenant)
        rows = json_rows(data, self._engine.find(name, tenant).schema)
        return self.insert(name, rows, tenant=tenant)

    def insert_csv(
        self,
        name: str,
        data: TextInput,
        *,
        header: bool = True,
        delimiter: str = ",",
        tenant: str | None = None,
    ) -> int:
        r"""Add rows from CSV.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT, x DOUBLE)")
        ...     db.insert_csv("s", "n,x\n1,0.5\n2,\n")
        2

        Args:
            name: the source or table.
            data: a str or bytes is the CSV itself; a file is a ``pathlib.Path``, or open, for text
                or in binary.
            header: whether the first line names the columns; without, they come in order.
            delimiter: what stands between fields.
            tenant: raise unless all rows are this tenant's.

        Raises:
            RowError: a value that does not fit; it names row, line and column.
            SchemaMismatchError: an unknown column, or a NOT NULL one that is missing.
            OSError: the path cannot be read.
        """
        tenant = self._as(tenant)
        definition = self._engine.find(name, tenant)
        batches = csv_rows(data, definition.schema, header=bool(header), delimiter=delimiter)
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
        """Wait until a view runs and has taken in everything up to an LSN, or all pushed so far.

        Returns that LSN.

        Raises:
            ViewNotReadyError: the time is up.
            ViewFailedError: the view's query cannot go on.
            InvalidOptionError: a timeout or an LSN that is none.
        """
        self._check()
        deadline = deadline_of(timeout)
        if lsn is not None and (type(lsn) is not int or lsn < 0):
            raise InvalidOptionError(f"lsn is {lsn!r}", hint="a whole number from 0 on, or None")
        if lsn is None:
            lsn = self._engine.dispatcher.barrier(complete=True)
        definition = self._engine.find(view, self.tenant)
        self._engine.check_opened(definition)
        if definition.name not in self._engine.views:
            raise WrongObjectError(
                f"{definition.name} is a {definition.kind}, not a view",
                hint="what db.flush() returns is on the disk and handed to subscribers",
            )
        with shown_to(self.tenant):
            self._engine.wait_for(definition.name, lsn, time_left(deadline, None))
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
            query: a SELECT. With groups or joins it becomes a hidden view, shared by identical
                queries.
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
        tenant = self._as(tenant)
        options = SubscribeOptions(
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
        )
        return self._opener.query(Subscription, query, parameters, options, tenant=tenant)

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
            query: a SELECT. With groups or joins it becomes a hidden view, shared by identical
                queries.
            on_change: called with each batch, one at a time. Not ``async def``: for that,
                ``async for`` over ``subscribe_stream``.
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
        tenant = self._as(tenant)
        given = {"on_change": on_change, "on_error": on_error, "on_complete": on_complete}
        for each, function in given.items():
            if each == "on_change" or function is not None:
                check_callback(each, function)
        options = SubscribeOptions(
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
        )
        if inline:
            _check_inline(options)
            return self._opener.inline(
                query,
                parameters,
                tenant=tenant,
                on_change=on_change,
                on_error=on_error,
                on_complete=on_complete,
            )
        return self._opener.query(
            CallbackSubscription,
            query,
            parameters,
            options,
            tenant=tenant,
            on_change=on_change,
            on_error=on_error,
            on_complete=on_complete,
        )

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
        tenant = self._as(tenant)
        options = SubscribeOptions(
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
        )
        return self._opener.query(AsyncSubscription, query, parameters, options, tenant=tenant)

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
        tenant = self._as(tenant)
        maker = self._opener.event_maker(collection, fields, include, tenant)
        options = SubscribeOptions(
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
        )
        subscription = self._opener.changes(Subscription, collection, options, tenant)
        return Events(subscription, maker)

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
        tenant = self._as(tenant)
        maker = self._opener.event_maker(collection, fields, include, tenant)
        options = SubscribeOptions(
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
        )
        subscription = self._opener.changes(AsyncSubscription, collection, options, tenant)
        return AsyncEvents(subscription, maker)

    def notify(self, channel: str, payload: str = "", *, tenant: str | None = None) -> None:
        """Send a message to whoever listens to a channel."""
        tenant = self._as(tenant)
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
        tenant = self._as(tenant)
        return Events(self._opener.listen(Subscription, channels, tenant), NotificationMaker())

    def listen_stream(self, *channels: str, tenant: str | None = None) -> AsyncListener:
        """The same for ``async for``."""
        tenant = self._as(tenant)
        subscription = self._opener.listen(AsyncSubscription, channels, tenant)
        return AsyncEvents(subscription, NotificationMaker())

    def notifies(self, timeout: float | None = None) -> Iterator[Notification]:
        """What comes on the channels that SQL's LISTEN named; ends after so many idle seconds."""
        return self._channels.notifies(timeout)

    # ---- who it is

    def close(self) -> None:
        """Take no more statements. Subscriptions that it has opened go on. Twice is fine."""
        self._is_closed = True
        self._channels.unlisten(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<Session of {self.tenant!r} {state}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def _check(self) -> None:
        self._check_open()
        if self._is_closed:
            raise ClosedError("the session is closed", hint="db.session(...) opens another one")

    def _as(self, tenant: str | None) -> str | None:
        """The tenant that a call runs as; raises when the session is closed, or another's."""
        self._check()
        if tenant is None or tenant == self.tenant:
            return self.tenant
        if self.tenant is not None:
            raise TenantError(
                "a session of one tenant cannot run as another", hint="leave tenant= out"
            )
        return tenant


def _check_inline(options: SubscribeOptions) -> None:
    """Refuse the options that need a place in the log, or a buffer."""
    given = options.given()
    if given:
        raise InvalidOptionError(
            f"an inline callback has no {', '.join(given)}",
            hint="leave inline out, or the options",
        )
