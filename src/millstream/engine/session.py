"""``Session``: the public face of a database for one tenant, or for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from millstream.engine import cause, dml, notifications, points
from millstream.engine.context import Context
from millstream.engine.prepare import Prepared
from millstream.engine.statements import check_not_live, check_query, run
from millstream.engine.subscribing import Subscribing
from millstream.errors import ClosedError, TenantError
from millstream.formats.batches import as_batches
from millstream.formats.csv_text import csv_rows
from millstream.formats.json_text import json_rows
from millstream.model.display import public_names
from millstream.sources import Writer
from millstream.sql import parse
from millstream.threads import deadline_of
from millstream.views.readiness import READ_SECONDS, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.engine.context import CopyProgress
    from millstream.engine.engine import Engine
    from millstream.engine.functions import SessionFunctions
    from millstream.engine.once import Insertion
    from millstream.engine.permissions import Role
    from millstream.formats.text import TextInput
    from millstream.model.change import Change
    from millstream.model.result import Result
    from millstream.model.schema import Schema
    from millstream.sources import Source
    from millstream.sql import ParameterValues
    from millstream.subscriptions import ChangeEvent


class Session(Subscribing):
    """The database as one tenant sees it. Create one with ``db.session(tenant=...)``.

    Every statement and every call reads and writes only the rows whose tenant column has the
    tenant's name. Relations without a tenant column are refused, and so is DDL. A ``Database`` is
    a session without a tenant, which sees everything.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE s (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')")
    ...     _ = db.insert("s", [("acme", 1), ("acme", 2), ("other", 40)])
    ...     acme = db.session(tenant="acme")
    ...     acme.query("SELECT SUM(n) AS total FROM s").fetchall()
    [(3,)]

    Attributes:
        tenant: the tenant whose rows the session sees; None: all rows.
        role: what the session may do: ``read``; ``write``: also rows; ``admin``: everything.
    """

    def __init__(
        self,
        engine: Engine,
        tenant: str | None,
        database: Session | None = None,
        *,
        role: Role = "admin",
        directories: tuple[Path, ...] | None = None,
    ) -> None:
        self.tenant = tenant
        self.role = role
        self._engine = engine
        self._database = database  # which is not closed as long as this is referenced
        self._is_closed = False
        context = Context(engine, tenant, role=role, directories=directories)
        self._channels = notifications.channels_of(context)
        self._context = replace(context, channels=self._channels)

    # ---- SQL

    def execute(
        self,
        sql: str,
        parameters: ParameterValues = None,
        *,
        tenant: str | None = None,
        stale_ok: bool = False,
        timeout: float | None = READ_SECONDS,
        progress: Callable[[CopyProgress], None] | None = None,
    ) -> Result:
        """Run one or more statements, and return the result of the last one.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR)")
        ...     _ = db.execute("INSERT INTO users VALUES (?, ?)", [1, "O'Hara"])
        ...     db.query("SELECT name FROM users WHERE id = :id", {"id": 1}).fetchall()
        [("O'Hara",)]

        Args:
            sql: the statements, separated by semicolons.
            parameters: a list with a value for each ``?``, in the order of the text; or a dict for
                ``:name``. A list in ``IN (?)`` stands for all its values.
            tenant: run the statements as this tenant.
            stale_ok: read the current rows of views without waiting, as for ``query``.
            timeout: seconds to wait for views, as for ``query``.
            progress: called by COPY from time to time, with the number of rows and the fraction
                done.

        Raises:
            SqlError: a statement is refused. The error says where, why, and what to write instead.
                If the text cannot be parsed, or a statement is not allowed, no statement was run;
                otherwise the statements before the refused one were.
            SqlUnsupportedError: LIVE SELECT: use ``subscribe``.
            RoleError: the role of the session is too low for a statement.
            TenantError: a statement is not for tenants.
        """
        context = self._reading(tenant, stale_ok=stale_ok, timeout=timeout)
        if progress is not None:
            context = replace(context, progress=progress)
        known = points.run(context, sql, parameters)
        if known is not None:
            return known
        statements = parse(sql, parameters, context.started(sql))
        check_not_live(statements, sql)
        result = run(context, statements)
        points.remember(context, statements, parameters)
        return result

    def query(
        self,
        sql: str,
        parameters: ParameterValues = None,
        *,
        tenant: str | None = None,
        stale_ok: bool = False,
        timeout: float | None = READ_SECONDS,
    ) -> Result:
        """Run a query and return its result, including all rows pushed by this thread before.

        The query waits for views until they include everything committed before the call. A view
        that was opened with saved rows is readable at once, until it has caught up for the first
        time. With ``AS OF`` and an LSN or a time at its end, the query reads the rows of that time.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT)")
        ...     _ = db.insert("s", [(1,), (2,), (3,)])
        ...     db.query("SELECT n * 10 AS tens FROM s WHERE n > ?", [1]).to_pylist()
        [{'tens': 20}, {'tens': 30}]

        Args:
            sql: a SELECT, SHOW, DESCRIBE or EXPLAIN.
            parameters: the values of ``?`` or ``:name``, as for ``execute``.
            tenant: read only this tenant's rows.
            stale_ok: read the current rows of views, without waiting for them.
            timeout: seconds to wait for views; None: no limit.

        Raises:
            ViewNotReadyError: a view has not caught up within the timeout.
        """
        context = self._reading(tenant, stale_ok=stale_ok, timeout=timeout)
        known = points.run(context, sql, parameters, reads=True)
        if known is not None:
            return known
        statements = parse(sql, parameters, context.started(sql))
        for statement in statements:
            check_query(statement, sql)
        result = run(context, statements)
        points.remember(context, statements, parameters)
        return result

    sql = query

    def prepare(self, sql: str) -> Prepared:
        """Parse a statement without running it, and describe its parameters and its result.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT, at TIMESTAMP)")
        ...     late = db.prepare("SELECT n FROM s WHERE at > :since AND at < NOW()")
        ...     late.kind, late.reads, late.parameters[0].name, late.parameters[0].type.sql
        ('SELECT', True, 'since', 'TIMESTAMP')

        Args:
            sql: one statement, with ``?`` or ``:name`` for its parameters.

        Raises:
            SqlError: the statement is invalid, whatever the values are.
        """
        return Prepared(
            self._context_of(None),
            sql,
            query=self.query,
            execute=self.execute,
            subscribe=self.subscribe,
        )

    def explain(self, sql: str, parameters: ParameterValues = None) -> str:
        """Describe how a query would run, as EXPLAIN does."""
        if isinstance(sql, str) and sql.lstrip()[:7].upper() != "EXPLAIN":
            sql = f"EXPLAIN {sql}"
        return "\n".join(line for (line,) in self.query(sql, parameters))

    def schema(self, name: str) -> Schema:
        """Return the columns of a source, table or view.

        Raises:
            ObjectNotFoundError: there is no object of that name.
            TenantError: the object has no tenant column, so no tenant may see it.
        """
        return self._context_of(None).find(name).schema

    # ---- pushing in

    def source(self, name: str, record: type | None = None) -> Source:
        """Return a handle that pushes rows into a source.

        Args:
            name: the source.
            record: a dataclass that rows may be instances of.

        Raises:
            ObjectNotFoundError: there is no such source.
            SchemaMismatchError: the dataclass does not have the source's columns.
        """
        return dml.source(self._context_of(None), name, record)

    def writer(self, name: str, *, batch_rows: int = 1024) -> Writer:
        """Return a handle that gathers rows and pushes them in batches."""
        return Writer(self.source(name), batch_rows)

    def insert(
        self,
        name: str,
        data: Any,  # noqa: ANN401 - any shape of rows
        *,
        replace: bool = False,
        tenant: str | None = None,
    ) -> int:
        """Add rows to a source or a table, all or none, and return their number.

        Args:
            name: the source or table.
            data: tuples, dicts, dataclasses; a dict of columns; an Arrow table, a pandas or polars
                frame, or anything else with ``__arrow_c_stream__``.
            replace: of a table: replace rows with the same primary key.
            tenant: raise unless all rows belong to this tenant.

        Raises:
            RowError: a value does not fit its column. The error names the row and the column.
            DuplicateKeyError: the table already has a row with that primary key.
        """
        context = self._context_of(tenant)
        definition = context.find(name)
        batches = as_batches(data, definition.schema)
        return dml.insert_batches(context, definition, batches, "replace" if replace else "error")

    def insert_once(
        self,
        name: str,
        data: Any,  # noqa: ANN401 - any shape of rows
        key: str,
        *,
        replace: bool = False,
        tenant: str | None = None,
    ) -> Insertion:
        """Add rows, all or none, unless an earlier insert with this key has added them.

        The key is committed together with the rows, so you can repeat the call after any failure:
        a lost answer, the end of the process, a crash of the machine. When the call returns, both
        are on disk. Keys are kept for a day, and at most the newest 262,144. Each source, table
        and tenant has keys of its own.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT)")
        ...     db.insert_once("s", [(1,), (2,)], "order 7")
        ...     db.insert_once("s", [(1,), (2,)], "order 7")
        Insertion(rows=2, repeated=False)
        Insertion(rows=2, repeated=True)

        Args:
            name: the source or table.
            data: as for ``insert``.
            key: idempotency key; reuse it only to retry.
            replace: of a table: replace rows with the same primary key.
            tenant: raise unless all rows belong to this tenant.

        Raises:
            InvalidOptionError: the key was used for another number of rows, or is not a str.
            RowError: a value does not fit its column. The error names the row and the column.
            DuplicateKeyError: the table already has a row with that primary key.
        """
        context = self._context_of(tenant)
        definition = context.find(name)
        batches = as_batches(data, definition.schema)
        return dml.insert_once(context, definition, batches, key, "replace" if replace else "error")

    def insert_json(self, name: str, data: TextInput, *, tenant: str | None = None) -> int:
        """Add rows from JSON: an array of objects, one object, or one object a line.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT, x DOUBLE)")
        ...     db.insert_json("s", '[{"n": 1, "x": 0.5}, {"n": 2}]')
        2

        Args:
            name: the source or table.
            data: JSON as str or bytes; a ``pathlib.Path``; or a file that is open for reading.
            tenant: raise unless all rows belong to this tenant.

        Raises:
            RowError: a value does not fit its column. The error names the row and the column.
            SchemaMismatchError: invalid JSON. The error names the line and the column.
            OSError: the path cannot be read.
        """
        rows = json_rows(data, self._context_of(tenant).find(name).schema)
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
            data: CSV as str or bytes; a ``pathlib.Path``; or a file that is open for reading.
            header: whether the first line names the columns; otherwise the CSV has all columns of
                the source or table, in their order.
            delimiter: the separator of fields.
            tenant: raise unless all rows belong to this tenant.

        Raises:
            RowError: a value does not fit its column. The error names row, line and column.
            SchemaMismatchError: a column is unknown, or a NOT NULL column is missing.
            OSError: the path cannot be read.
        """
        context = self._context_of(tenant)
        definition = context.find(name)
        batches = csv_rows(data, definition.schema, header=bool(header), delimiter=delimiter)
        return dml.insert_batches(context, definition, batches)

    def flush(self) -> int:
        """Wait until all pushed rows are on disk and handed to subscribers.

        Returns:
            The newest LSN.

        Raises:
            LogFullError: the disk is full. Pushed rows are kept, and written when there is room.
        """
        self._check()
        return self._engine.flush()

    checkpoint = flush

    @property
    def context(self) -> Context:
        """The context in which statements run, for programs that serve them to others."""
        return self._context_of(None)

    def use_functions(self, functions: SessionFunctions) -> None:
        """Let statements call the functions of a connection, for those who serve it."""
        self._context = replace(self._context, functions=functions)

    @property
    def lsn(self) -> int:
        """The newest LSN that a row has."""
        return self._engine.dispatcher.lsn

    def wait_for(self, view: str, lsn: int | None = None, timeout: float | None = None) -> int:
        """Block until a view has processed everything up to ``lsn``, and return that LSN.

        Args:
            view: the view. The call also waits for the views that it reads.
            lsn: an LSN; None: everything pushed so far.
            timeout: seconds to wait; None: no limit.

        Raises:
            ViewNotReadyError: the view has not caught up within the timeout.
            ViewFailedError: the view's query cannot continue.
            InvalidOptionError: ``timeout`` or ``lsn`` is invalid.
        """
        self._check()
        return dml.wait_for(self._context, view, lsn, timeout)

    def cause(self, change: Change | ChangeEvent | int) -> dict[str, list[Change]]:
        """Return the rows of sources and tables that led to a change of a view.

        These are all rows that the view read in the step that ended with the change: the rows of
        one commit if the view was live, of several if it was catching up. Views in between are
        followed down to sources and tables. The cause of a change of a source or a table is the
        change itself.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT)")
        ...     _ = db.execute("CREATE MATERIALIZED VIEW v AS SELECT n * 2 AS m FROM s WHERE n > 5")
        ...     subscription = db.subscribe("SELECT * FROM v", start="now")
        ...     _ = db.insert("s", [(1,), (7,)])
        ...     change = next(iter(subscription.recv(timeout=10)))
        ...     change.row, [each.row for each in db.cause(change)["s"]]
        ((14,), [(1,), (7,)])

        Args:
            change: a change from a subscription or from the change bus, or its LSN.

        Returns:
            A dict from source or table to its changes, in the order of their LSNs.

        Raises:
            LsnNotKeptError: retention has removed the change, or the rows that led to it.
            WrongObjectError: a row of a snapshot, which many changes may have led to.
            TenantError: the session belongs to a tenant, and the rows may belong to others.
        """
        return cause.rows(self._context_of(None), change)

    # ---- its end

    def close(self) -> None:
        """Close the session. Its subscriptions stay open. A second call does nothing."""
        self._is_closed = True
        self._channels.unlisten(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session of {self.tenant!r} {'closed' if self._is_closed else 'open'}>"

    def __dir__(self) -> list[str]:
        return public_names(self, {"context", "use_functions"})

    def _check(self) -> None:
        self._engine.check()
        if self._is_closed:
            raise ClosedError("the session is closed", hint="db.session(...) opens another one")

    def _reading(self, tenant: str | None, *, stale_ok: bool, timeout: float | None) -> Context:
        """What a call runs in that reads, and may wait for views."""
        context = self._context_of(tenant)
        if stale_ok or timeout != READ_SECONDS:
            deadline_of(timeout)  # raises if it is no number of seconds
            return replace(context, reads=ReadOptions(bool(stale_ok), timeout))
        return context

    def _context_of(self, tenant: str | None) -> Context:
        """What a call runs in; raises when the session is closed, or the tenant is another one."""
        self._check()
        if tenant is None or tenant == self.tenant:
            return self._context
        if self.tenant is not None:
            raise TenantError(
                "a session of one tenant cannot run as another", hint="leave tenant= out"
            )
        return replace(self._context, tenant=tenant, channels=None)
