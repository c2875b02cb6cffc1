"""``Client``: a database that another process serves, with the methods of ``Database``."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa

from millstream.client.frames import changes_from
from millstream.client.http import Http, delays, ipc_stream
from millstream.client.link import Link
from millstream.client.source import Producer, RemoteSource
from millstream.client.subscribing import RemoteSubscribing
from millstream.engine.once import Insertion
from millstream.errors import (
    ClosedError,
    InvalidOptionError,
    ObjectNotFoundError,
    SchemaMismatchError,
    SqlUnsupportedError,
    ViewFailedError,
    ViewNotReadyError,
)
from millstream.formats.batches import as_batches
from millstream.formats.csv_text import csv_rows
from millstream.formats.json_text import json_rows
from millstream.model.change import Change
from millstream.model.display import public_names
from millstream.model.result import Result
from millstream.model.schema import Column, Schema
from millstream.sources import Writer
from millstream.threads import deadline_of, time_left
from millstream.views.readiness import READ_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.formats.text import TextInput
    from millstream.model.batch import ChangeBatch
    from millstream.sources import Source
    from millstream.sql import ParameterValues

_READS = re.compile(
    r"(\s|\(|--[^\n]*\n|/\*.*?\*/)*(SELECT|SHOW|DESCRIBE|DESC|EXPLAIN|WITH|VALUES|FROM)\b",
    re.IGNORECASE | re.DOTALL,
)
_POLL_SECONDS = 0.1
_NO_LIMIT = 1e9
"""Seconds: longer than any statement may take."""


class Client(RemoteSubscribing):
    """A database that another process serves. Create one with ``ms.connect(url, key=...)``.

    A client has the methods of ``Database``, and returns the same objects. The tenant and the role
    are those of the key. A call waits while the server cannot be reached, and is repeated if that
    is safe: queries and inserts always, other statements only if the server did not receive them.

    Args:
        url: the address of the server.
        key: an API key.
        timeout: seconds for which a call is retried while the server cannot be reached.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout: float = 10.0) -> None:
        self.url: str = _checked_url(url)
        deadline_of(timeout)  # raises if it is no number of seconds
        self._is_closed = False
        self._schemas: dict[str, Schema] = {}
        self._producers: dict[str, Producer] = {}
        self._http = Http(self.url, key, timeout)
        self._link = Link(self.url, key, timeout)
        try:
            self.query("SHOW TABLES LIKE ''")  # a wrong address or key is an error now, not later
        except BaseException:
            self.close()
            raise

    # ---- SQL

    def execute(
        self,
        sql: str,
        parameters: ParameterValues = None,
        *,
        stale_ok: bool = False,
        timeout: float | None = READ_SECONDS,
    ) -> Result:
        """Run one or more statements, and return the result of the last one.

        Args:
            sql: the statements, separated by semicolons.
            parameters: a list with a value for each ``?``, or a dict for ``:name``.
            stale_ok: read the current rows of views without waiting, as for ``query``.
            timeout: seconds to wait for views, as for ``query``.

        Raises:
            SqlError: a statement is refused. The error says where, why, and what to write instead.
            DisconnectedError: the connection broke before the answer arrived. The statements may or
                may not have run.
        """
        self._check()
        return self._sql(sql, parameters, stale_ok, timeout, again=False)

    def query(
        self,
        sql: str,
        parameters: ParameterValues = None,
        *,
        stale_ok: bool = False,
        timeout: float | None = READ_SECONDS,
    ) -> Result:
        """Run a query and return its result.

        The query waits for views until they include everything committed before the call.

        Args:
            sql: a SELECT, SHOW, DESCRIBE or EXPLAIN.
            parameters: the values of ``?`` or ``:name``, as for ``execute``.
            stale_ok: read the current rows of views, without waiting for them.
            timeout: seconds to wait for views; None: as long as the server allows a statement to
                take.

        Raises:
            ViewNotReadyError: a view has not processed what was committed before, within the time.
        """
        self._check()
        if not _READS.match(sql):
            raise SqlUnsupportedError("query() takes a SELECT", sql=sql, hint="use execute()")
        is_one = ";" not in sql.rstrip("; \n\t")  # else a write may follow
        return self._sql(sql, parameters, stale_ok, timeout, again=is_one)

    sql = query

    def _sql(
        self,
        sql: str,
        parameters: ParameterValues,
        stale_ok: bool,
        timeout: float | None,
        *,
        again: bool,
    ) -> Result:
        deadline_of(timeout)  # raises if it is no number of seconds
        reads: dict[str, Any] = {"stale_ok": True} if stale_ok else {}
        if timeout != READ_SECONDS:
            reads["timeout"] = _NO_LIMIT if timeout is None else timeout
        return _result(self._http.sql(sql, parameters, reads, again=again))

    def explain(self, sql: str, parameters: ParameterValues = None) -> str:
        """Describe how a query would run, as EXPLAIN does."""
        if sql.lstrip()[:7].upper() != "EXPLAIN":
            sql = f"EXPLAIN {sql}"
        return "\n".join(line for (line,) in self.query(sql, parameters))

    def schema(self, name: str) -> Schema:
        """Return the columns of a source, table or view.

        Raises:
            ObjectNotFoundError: there is no object of that name.
        """
        quoted = name.replace('"', '""')
        rows = self.query(f'DESCRIBE "{quoted}"').fetchall()
        columns = [
            Column.parse(column, kind if nullable else f"{kind} NOT NULL")
            for column, kind, nullable, _ in rows
        ]
        found = Schema(tuple(columns), tuple(row[0] for row in rows if row[3]))
        self._schemas[name] = found
        return found

    # ---- pushing in

    def source(self, name: str, record: type | None = None) -> RemoteSource:
        """Return a handle that pushes rows into a source or a table.

        Args:
            name: the source or table.
            record: a dataclass that rows may be instances of.

        Raises:
            ObjectNotFoundError: there is no such source.
            SchemaMismatchError: the dataclass does not have the source's columns.
        """
        schema = self.schema(name)
        known = self._producers.get(name)
        if known is None or known.error is not None or known.schema != schema:
            if known is not None and known.error is None:
                known.flush()
                known.stop()
            known = self._producers[name] = Producer(self._http, name, schema)
        return RemoteSource(known, record)

    def writer(self, name: str, *, batch_rows: int = 1024) -> Writer:
        """Return a handle that gathers rows and pushes them in batches."""
        source = cast("Source", self.source(name))  # it has all that a writer uses
        return Writer(source, batch_rows)

    def insert(self, name: str, data: Any, *, replace: bool = False) -> int:  # noqa: ANN401 - any shape of rows
        """Add rows to a source or a table, all or none, and return their number.

        The rows are added once, even if the server fails meanwhile. When the call returns, they are
        on the server's disk.

        Args:
            name: the source or table.
            data: tuples, dicts, dataclasses; a dict of columns; an Arrow table, a pandas or polars
                frame, or anything else with ``__arrow_c_stream__``.
            replace: of a table: replace rows with the same primary key.

        Raises:
            RowError: a value does not fit its column. The error names the row and the column.
            DuplicateKeyError: a key of a table that is there already.
            TooLargeError: it is more than the server takes at a time.
        """
        return self.insert_once(name, data, uuid4().hex, replace=replace).rows

    def insert_once(
        self,
        name: str,
        data: Any,  # noqa: ANN401 - any shape of rows
        key: str,
        *,
        replace: bool = False,
    ) -> Insertion:
        """Add rows, all or none, unless an earlier insert with this key has added them.

        Raises:
            InvalidOptionError: the key was used for another number of rows.
            RowError: a value does not fit its column. The error names the row and the column.
        """
        if isinstance(data, Iterator):
            data = list(data)
        return self._insert(name, key, lambda schema: as_batches(data, schema), replace=replace)

    def insert_json(self, name: str, data: TextInput) -> int:
        """Add rows from JSON: an array of objects, one object, or one object a line.

        Raises:
            RowError: a value does not fit its column. The error names the row and the column.
            SchemaMismatchError: invalid JSON. The error names the line and the column.
        """
        rows = json_rows(data, self.schema(name))
        return self._insert(name, uuid4().hex, lambda schema: as_batches(rows, schema)).rows

    def insert_csv(
        self, name: str, data: TextInput, *, header: bool = True, delimiter: str = ","
    ) -> int:
        """Add rows from CSV.

        Args:
            name: the source or table.
            data: CSV as str or bytes; a ``pathlib.Path``; or a file that is open for reading.
            header: whether the first line names the columns; otherwise the CSV has all columns of
                the source or table, in their order.
            delimiter: the separator of fields.
        """
        batches = list(csv_rows(data, self.schema(name), header=header, delimiter=delimiter))
        return self._insert(name, uuid4().hex, lambda _: batches).rows

    def _insert(
        self,
        name: str,
        key: str,
        batches_of: Callable[[Schema], list[ChangeBatch]],
        *,
        replace: bool = False,
    ) -> Insertion:
        """Add batches that are made for the columns; they may have changed since last time."""
        self._check()
        known = self._schemas.get(name) or self.schema(name)
        try:
            return self._insert_into(name, key, known, batches_of(known), replace=replace)
        except SchemaMismatchError:
            fresh = self.schema(name)
            if fresh == known:
                raise
            return self._insert_into(name, key, fresh, batches_of(fresh), replace=replace)

    def _insert_into(
        self, name: str, key: str, schema: Schema, batches: list[ChangeBatch], *, replace: bool
    ) -> Insertion:
        if not batches:
            return Insertion(0, repeated=False)
        body = ipc_stream(schema.arrow, [batch.arrow for batch in batches])
        done = self._http.insert(name, body, key, replace=replace)
        return Insertion(done["rows"], done["repeated"])

    def flush(self) -> int:
        """Wait until all pushed rows are on the server's disk.

        Returns:
            The newest LSN.

        Raises:
            DisconnectedError: the server cannot be reached. Pushed rows are kept, and sent when it
                can be reached again.
        """
        self._check()
        for producer in list(self._producers.values()):
            producer.flush()
        return self.lsn

    checkpoint = flush

    # ---- how it is

    @property
    def lsn(self) -> int:
        """The newest LSN that a row has."""
        self._check()
        return int(self._http.get("/ready")["lsn"])

    def wait_for(self, view: str, lsn: int | None = None, timeout: float | None = None) -> int:
        """Block until a view has processed everything up to ``lsn``, and return that LSN.

        Args:
            view: the view.
            lsn: an LSN; None: everything committed so far.
            timeout: seconds to wait; None: no limit.

        Raises:
            ViewNotReadyError: the view has not caught up within the timeout.
            ViewFailedError: the view's query cannot continue.
        """
        deadline = deadline_of(timeout)
        wanted = self.lsn if lsn is None else lsn
        for delay in delays():
            newest = wanted if lsn is None else self.lsn
            found = [row for row in self.query("SHOW VIEWS").to_pylist() if row["name"] == view]
            if not found:
                raise ObjectNotFoundError(f"there is no view {view}", hint="SHOW VIEWS lists them")
            (row,) = found
            if row["error"]:
                raise ViewFailedError(row["error"], view=view, hint="SHOW VIEWS says more")
            if row["lsn"] >= wanted or (row["lag_rows"] == 0 and newest >= wanted):
                return wanted
            left = time_left(deadline, min(delay, _POLL_SECONDS))
            if not left:
                break
            time.sleep(left)
        raise ViewNotReadyError(
            f"the view {view} has not taken in LSN {wanted:,} within {timeout} seconds",
            hint="wait longer, or see its lag in SHOW VIEWS",
        )

    def cause(self, change: Change | int) -> dict[str, list[Change]]:
        """Return the rows of sources and tables that led to a change of a view.

        Args:
            change: a change from a subscription, or its LSN.

        Raises:
            LsnNotKeptError: retention has removed the change, or the rows that led to it.
            TenantError: the key belongs to a tenant, and the rows may belong to others.
        """
        self._check()
        lsn = change.lsn if isinstance(change, Change) else change
        if type(lsn) is not int or lsn < 1:
            raise InvalidOptionError(
                f"expected a change with an LSN, got {change!r}",
                hint="a change of a subscription, or its LSN",
            )
        return {
            name: changes_from(each) for name, each in self._http.get(f"/v1/cause/{lsn}").items()
        }

    def catalog(self) -> dict[str, Any]:
        """Return the columns of all sources, tables, views and streams, and their SHOW values."""
        self._check()
        found: dict[str, Any] = self._http.get("/v1/catalog")
        return found

    def metrics(self) -> dict[str, Any]:
        """Return the newest LSN, and the SHOW values of all relations, by kind and name."""
        found = self.catalog()
        kinds = [kind for kind in found if kind != "lsn"]
        named = {kind: {each["name"]: each for each in found[kind]} for kind in kinds}
        return {"lsn": found["lsn"], **named}

    def topology(self) -> dict[str, Any]:
        """Return the data flow as ``nodes``, and ``edges`` between them."""
        self._check()
        found: dict[str, Any] = self._http.get("/v1/topology")
        return found

    # ---- its end

    def close(self) -> None:
        """Send all pushed rows, end the subscriptions, and close the connection.

        A second call does nothing.

        Raises:
            DisconnectedError: the server cannot be reached, so pushed rows were not added.
            Error: the server has refused some rows.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for producer in self._producers.values():
                if producer.pending:
                    producer.flush()
        finally:
            for producer in self._producers.values():
                producer.stop()
            self._link.close()
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.url} {'closed' if self._is_closed else 'open'}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def _check(self) -> None:
        if self._is_closed:
            raise ClosedError("the client is closed", hint="ms.connect again")


def _checked_url(url: str) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidOptionError(
            f"{url!r} is not the address of a server",
            hint='such as "http://127.0.0.1:8080"; ms.open(path) opens a directory',
        )
    return url.rstrip("/")


def _result(body: bytes) -> Result:
    """The result that an answer in Arrow holds."""
    with pa.ipc.open_stream(body) as reader:
        table = reader.read_all()
    facts = table.schema.metadata or {}
    lsn, status = int(facts.get(b"lsn", 0)), facts.get(b"status", b"").decode()
    if status:
        return Result.of_status(status, lsn=lsn, rowcount=int(facts.get(b"rowcount", 0)))
    late = tuple(json.loads(facts.get(b"catching_up", b"[]")))
    schema = Schema.from_arrow(table.schema)
    return Result(schema, table.to_batches(), lsn=lsn, catching_up=late)
