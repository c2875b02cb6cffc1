"""Runs statements of one connection: those of the engine, and those that only a connection has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from millstream.engine import points
from millstream.engine.prepare import Bound, bind, columns_before, describe
from millstream.errors import (
    QueryTimeoutError,
    SqlColumnError,
    SqlError,
    SqlSyntaxError,
    SqlUnsupportedError,
)
from millstream.model.names import quote_name
from millstream.model.types import array_type
from millstream.server.postgres import codec
from millstream.server.postgres.answers import Answer, labelled, of_result, of_texts
from millstream.server.postgres.catalog import (
    calls_catalog,
    calls_spark,
    cast_types,
    reads_catalog,
    reads_nothing,
)
from millstream.server.postgres.errors import PostgresError, cancelled, notice
from millstream.server.postgres.functions import connection_functions
from millstream.server.postgres.options import flag
from millstream.server.postgres.settings import Settings, access_mode, assignment, reset_name
from millstream.server.postgres.text import listed_places
from millstream.server.postgres.types import TEXT, oid_of
from millstream.sql.statements.statement import ShowKind
from millstream.views.readiness import READ_SECONDS, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.engine.session import Session
    from millstream.model.types import SqlType
    from millstream.server.postgres.answers import Columns
    from millstream.server.postgres.catalog import CatalogQueries
    from millstream.server.postgres.text import Text
    from millstream.server.postgres.wire import Wire
    from millstream.server.roles import Identity
    from millstream.server.workers import Workers

QUERIES: Final = frozenset(
    {"SELECT", "WITH", "VALUES", "TABLE", "(", "SHOW", "EXPLAIN", "DESCRIBE"}
)
_SELECTS: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "("})
_FETCHED: Final = 1000
_SHOWN: Final = frozenset({*map(str.upper, get_args(ShowKind)), "CREATE", "CHANGES"})
_TOO_LARGE: Final = "54000"
_CHANGING: Final = frozenset({"pg_notify", "pg_sleep", "set_config"})
_REFUSED: Final = (SqlUnsupportedError, SqlColumnError, SqlSyntaxError)
_COMMITS: Final = "each statement commits by itself, also between BEGIN and COMMIT"


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pools:
    """Where the statements of all connections run.

    Attributes:
        statements: the threads that run them.
        openings: those that open subscriptions; apart, since a live query waits for Spark.
    """

    statements: Workers
    openings: Workers


class Runner:
    """Runs the statements of a connection.

    Args:
        session: what they run in.
        pools: where they run, so that the event loop goes on.
        wire: the client.
        identity: who it is, and what it may do.
        catalog: answers queries of pg_catalog.
        query_seconds: how long a query may run; None: as long as it takes.
        owner: the key whose share of the threads it has; None: there are no shares.

    Attributes:
        settings: of SET.
        status: I outside of a transaction, T inside, E inside one in which a statement failed.
        check: raises unless the client may do something.
        deallocate: forgets a prepared statement, or all.
        has_written: whether the transaction may have changed something.
        is_reading: whether what runs now only reads, and may be cancelled halfway.
    """

    def __init__(
        self,
        session: Session,
        pools: Pools,
        wire: Wire,
        *,
        identity: Identity,
        catalog: CatalogQueries,
        query_seconds: float | None = None,
        owner: str | None = None,
    ) -> None:
        self.session = session
        self.check = session.context.check
        self.settings = Settings()
        session.use_functions(connection_functions(identity.name, self.settings, wire.process))
        self.status = b"I"
        self.is_reading = False
        self._pools = pools
        self._identity = identity
        self._catalog = catalog
        self._query_seconds = query_seconds
        self._owner = owner
        self._wire = wire
        self.deallocate: Callable[[str | None], None] = lambda _: None
        self.has_written = False
        self._is_read_only = False
        self._own: dict[str, Callable[[Text], Answer]] = {
            "BEGIN": self._begin,
            "START": self._begin,
            "COMMIT": self._end,
            "END": self._end,
            "ROLLBACK": self._end,
            "ABORT": self._end,
            "SAVEPOINT": self._savepoint,
            "RELEASE": self._savepoint,
            "SET": self._set,
            "RESET": self._reset,
            "DISCARD": self._discard,
            "DEALLOCATE": self._deallocate,
        }

    # ---- at once

    def now(self, text: Text, values: Sequence[Any]) -> Answer | None:
        """The answer of what takes no time: a row by its key, a count, a setting; else None.

        Raises:
            PostgresError: it is refused.
        """
        word = text.words[0]
        if self.status == b"E" and word not in {"ROLLBACK", "ABORT", "COMMIT", "END"}:
            raise PostgresError(
                "current transaction is aborted, commands ignored until end of transaction block",
                sqlstate="25P02",
                hint="ROLLBACK",
            )
        if word == "SELECT":
            return self._point(text, values)
        own = self._own.get(word)
        if own is not None:
            self.check(word)
            return own(text)
        if is_setting(text):
            self.check("SHOW a setting")
            return self._show(text)
        return None

    def _point(self, text: Text, values: Sequence[Any]) -> Answer | None:
        """The answer of a SELECT of a row by its key, or a count; None of any other."""
        made = text.rewritten
        found = points.run(self.session.context, made.sql, made.given(values), reads=True)
        return None if found is None else of_result(found)

    async def bind(self, text: Text, values: Sequence[Any]) -> Answer | Bound | None:
        """Plan a query, and run nothing that may take time or change anything.

        Returns the answer of what takes no time; None for statements that are no queries.
        """
        word = text.words[0]
        if self.status == b"E" or word not in _SELECTS:
            return None
        found = self._point(text, values) if word == "SELECT" else None
        if found is not None:
            return found
        if self.goes_on(text):
            return None
        self.is_reading = True
        if is_catalog(text):
            return await self.off_loop(partial(self._ask_catalog, text, values))
        return await self.off_loop(partial(self._bind, text, values))

    def _bind(self, text: Text, values: Sequence[Any]) -> Answer | Bound | None:
        made = text.rewritten
        reads = ReadOptions(self.settings.stale_ok, READ_SECONDS)
        context = replace(self.session.context, reads=reads)
        try:
            return bind(context, made.sql, made.given(values))
        except _REFUSED as refused:
            return self._of_postgres(text, refused, partial(self._ask_catalog, text, values))

    async def run_bound(self, bound: Bound) -> Answer:
        """Run a query that was planned."""
        self.is_reading = True
        return await self.off_loop(lambda: _fetched(of_result(bound.run())))

    def goes_on(self, text: Text) -> bool:
        """Whether a statement does more than to read, whatever its first word is."""
        return any(each.identifier in _CHANGING for each in text.tokens)

    # ---- off the event loop

    async def run(self, text: Text, values: Sequence[Any]) -> Answer:
        """Run a statement.

        Raises:
            Error: it is refused, or fails.
        """
        if is_catalog(text):
            self.is_reading = True
            return await self.off_loop(partial(self._ask_catalog, text, values))
        self.is_reading = text.words[0] in QUERIES
        if not self.is_reading:
            self.check_writable(text.words[0])
            self.has_written = True
        return await self.off_loop(partial(self._run, text, values))

    def _run(self, text: Text, values: Sequence[Any]) -> Answer:
        """Run a statement of the engine; what only PostgreSQL has is its catalog's to answer."""
        made = text.rewritten
        try:
            return self._execute(made.sql, made.given(values))
        except _REFUSED as refused:
            return self._of_postgres(text, refused, partial(self._ask_catalog, text, values))

    def _of_postgres(self, text: Text, refused: SqlError, ask: Callable[[], T]) -> T:
        """What the catalog gives for a query that the engine has refused, if it is one for it.

        Raises:
            SqlError: it is not.
        """
        if text.words[0] not in _SELECTS or not reads_nothing(text) or calls_spark(text):
            raise refused
        try:
            return ask()
        except PostgresError as error:
            if error.sqlstate == _TOO_LARGE:
                raise
            raise refused from None

    def check_writable(self, word: str) -> None:
        """Raise in a read-only transaction.

        Raises:
            PostgresError: it is one.
        """
        if self._is_read_only if self.status != b"I" else self.settings.is_read_only:
            raise PostgresError(
                f"cannot execute {word} in a read-only transaction",
                sqlstate="25006",
                hint="BEGIN READ WRITE, or SET default_transaction_read_only = off",
            )

    async def off_loop(self, work: Callable[[], T], *, opens: bool = False) -> T:
        """Do something in another thread; what only reads ends after ``statement_timeout``."""
        workers = self._pools.openings if opens else self._pools.statements
        limits = [each for each in (self.settings.timeout, self._query_seconds) if each]
        limit = min(limits, default=None) if self.is_reading else None
        try:
            return await workers.run(work, self._owner, limit)
        except QueryTimeoutError:
            raise cancelled("canceling statement due to statement timeout") from None
        finally:
            self.is_reading = False

    def _ask_catalog(self, text: Text, values: Sequence[Any]) -> Answer:
        self.check("SELECT of pg_catalog")
        name = self._identity.name
        return self._catalog.answer(text, values, self.session, self.settings, name)

    def select_all(self, name: str, names: Sequence[str]) -> Answer:
        """Some columns of a relation, or all."""
        listed = ", ".join(map(quote_name, names)) or "*"
        return self._execute(f"SELECT {listed} FROM {quote_name(name)}", None)  # noqa: S608

    def columns_now(self, text: Text) -> Columns | None:  # noqa: ARG002
        """The columns of what has them before it runs."""
        return None

    def cursor_columns(self, name: str) -> Columns | None:  # noqa: ARG002
        """The columns of a cursor; None when there is none of that name."""
        return None

    def _execute(self, sql: str, given: Sequence[Any] | None) -> Answer:
        return _fetched(
            of_result(self.session.execute(sql, given, stale_ok=self.settings.stale_ok))
        )

    async def encode(self, answer: Answer, formats: Sequence[int], count: int) -> tuple[bytes, int]:
        """The next rows of an answer as messages, and their number."""
        if answer.small >= 0:
            return answer.encode(formats, count, self.settings.style)
        self.is_reading = True
        return await self.off_loop(partial(answer.encode, formats, count, self.settings.style))

    def gives_rows(self, text: Text) -> bool:
        """Whether a statement gives rows, by its first words."""
        return text.words[0] in QUERIES

    def close(self) -> None:
        """The client is gone."""
        self.session.close()

    # ---- before it runs

    async def parameter_types(self, text: Text) -> tuple[SqlType | None, ...]:
        """The types of a statement's parameters, as far as their places say."""
        self.is_reading = True
        return await self.off_loop(partial(self._parameter_types, text))

    def _parameter_types(self, text: Text) -> tuple[SqlType | None, ...]:
        query = self.query_of(text)
        if query is None:
            return (None,) * text.rewritten.count
        casts = cast_types(query)
        if is_catalog(query):
            return casts
        types = [of if of is not None and of.kind == "ARRAY" else None for of in casts]
        made = query.rewritten
        try:
            found = describe(self.session.context, made.sql).types
        except _REFUSED as refused:
            return self._of_postgres(query, refused, lambda: tuple(types))
        lists = {query.tokens[place].text for place in listed_places(query.tokens)}
        for number, mark in zip(made.order, made.marks, strict=True):
            of = found.get(mark)
            if of is not None and types[number] is None:
                types[number] = array_type(of) if f"${number + 1}" in lists else of
        return tuple(types)

    def query_of(self, text: Text) -> Text | None:
        """The part of a statement that the engine reads; None when there is none."""
        return text

    async def describe(self, text: Text, types: Sequence[SqlType | None]) -> Columns | None:
        """The columns that a statement will give; None when it gives no rows. Nothing is run.

        Args:
            text: the statement.
            types: those of its parameters that are known.
        """
        if text.words[0] not in QUERIES:
            return self.columns_now(text)
        if is_setting(text):
            return self._show(text).columns
        self.is_reading = True
        return await self.off_loop(partial(self._describe, text, types))

    def _describe(self, text: Text, types: Sequence[SqlType | None]) -> Columns | None:
        if is_catalog(text):
            return self._catalog_columns(text)
        made, context = text.rewritten, self.session.context
        lists = {text.tokens[place].text for place in listed_places(text.tokens)}
        known: dict[int | str, SqlType] = {}
        for at, number in zip(made.marks, made.order, strict=True):
            of = types[number] if number < len(types) else None
            if of is not None and f"${number + 1}" not in lists:
                known[at] = of
        try:
            found = columns_before(context, made.sql, known)
        except _REFUSED as refused:
            return self._of_postgres(text, refused, partial(self._catalog_columns, text))
        return None if found is None else labelled(*found)

    def _catalog_columns(self, text: Text) -> Columns | None:
        values = [None] * text.rewritten.count
        name = self._identity.name
        asked = self._catalog.answer(
            text, values, self.session, self.settings, name, describes=True
        )
        return asked.columns

    # ---- statements of a connection

    def _begin(self, text: Text) -> Answer:
        answer = Answer("BEGIN")
        if self.status != b"I":
            answer.notices.append(notice("there is already a transaction in progress"))
        else:
            self.status, self.has_written = b"T", False
            self._is_read_only = self.settings.is_read_only
        self._set_access(text)
        return answer

    def _set_access(self, text: Text) -> None:
        is_read_only = access_mode(text)
        if is_read_only is not None:
            self._is_read_only = is_read_only

    def _end(self, text: Text) -> Answer:
        undoes = text.words[0] in {"ROLLBACK", "ABORT"}
        if undoes and "TO" in text.words:
            return self._savepoint(text)
        answer = Answer("ROLLBACK" if undoes or self.status == b"E" else "COMMIT")
        if self.status == b"I":
            answer.notices.append(notice("there is no transaction in progress"))
        elif answer.tag == "ROLLBACK" and self.has_written:
            answer.notices.append(
                notice("the statements of this transaction are not undone", hint=_COMMITS)
            )
        self.status = b"I"
        return answer

    def _savepoint(self, text: Text) -> Answer:
        answer = Answer(text.words[0])
        if text.words[0] == "ROLLBACK":
            answer.notices.append(
                notice("the statements since the savepoint are not undone", hint=_COMMITS)
            )
            self.status = b"T" if self.status == b"E" else self.status
        return answer

    def _set(self, text: Text) -> Answer:
        words = text.words[1:3]
        # Of an isolation level nothing is kept: each statement has its own snapshot anyway.
        if words[:1] == ("TRANSACTION",):
            self._set_access(text)
            return Answer("SET")
        if words == ("SESSION", "CHARACTERISTICS"):
            mode = access_mode(text)
            if mode is not None:
                on = "on" if mode else "off"
                self._report(self.settings.set("default_transaction_read_only", on))
            return Answer("SET")
        name, value = assignment(text)
        if name.lower() == "transaction_read_only":
            self._is_read_only = flag({name: value}, name)
        self._report(self.settings.set(name, value))
        return Answer("SET")

    def _reset(self, text: Text) -> Answer:
        for each in self.settings.reset(reset_name(text)):
            self._report(each)
        return Answer("RESET")

    def _discard(self, text: Text) -> Answer:
        for each in self.settings.reset("all"):
            self._report(each)
        self.deallocate(None)
        return Answer(f"DISCARD {text.words[1] if len(text.words) > 1 else 'ALL'}")

    def _deallocate(self, text: Text) -> Answer:
        name = text.tokens[-1]
        self.deallocate(None if name.word == "ALL" else name.identifier)
        return Answer("DEALLOCATE ALL" if name.word == "ALL" else "DEALLOCATE")

    def _show(self, text: Text) -> Answer:
        words = text.words[1:]
        if words == ("ALL",):
            rows = [(name, value, "") for name, value in self.settings]
            return of_texts(("name", "setting", "description"), rows)
        name = "".join(each.text for each in text.tokens[1:]).strip('"')
        name = {"TIMEZONE": "TimeZone", "TRANSACTIONISOLATIONLEVEL": "transaction_isolation"}.get(
            name.upper(), name
        )
        if name.lower() == "transaction_read_only":
            on = self._is_read_only if self.status != b"I" else self.settings.is_read_only
            return of_texts((name.lower(),), [("on" if on else "off",)])
        return of_texts((name.lower(),), [(self.settings.get(name),)])

    def _report(self, name: str | None) -> None:
        if name is not None:
            self._wire.send(codec.parameter_status(name, self.settings.get(name)))


def _fetched(answer: Answer) -> Answer:
    """An answer whose first rows are Python values: the event loop need not make them."""
    first = list(islice(answer.rows, _FETCHED))
    answer.rows = chain(first, answer.rows)
    return answer


def parameter_oids(given: Sequence[int], types: Sequence[SqlType | None]) -> list[int]:
    """The OIDs of parameters: those that the client gives, else of their places, else text."""
    made = []
    for place in range(max(len(given), len(types))):
        oid = given[place] if place < len(given) else 0
        of = types[place] if place < len(types) else None
        made.append(oid or (TEXT if of is None else oid_of(of)))
    return made


def is_catalog(text: Text) -> bool:
    """Whether a statement is a query of the catalog: of a relation of it, or of its functions."""
    if text.words[0] not in _SELECTS:
        return False
    return reads_catalog(text) or (reads_nothing(text) and calls_catalog(text))


def is_setting(text: Text) -> bool:
    """Whether a statement shows a setting, not what exists."""
    return text.words[0] == "SHOW" and len(text.tokens) > 1 and text.words[1] not in _SHOWN
