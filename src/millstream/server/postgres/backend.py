"""The messages of a client that is known: simple queries, prepared statements and portals."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import Error
from millstream.server.postgres import codec
from millstream.server.postgres.answers import Answer, labelled
from millstream.server.postgres.errors import PostgresError, ProtocolError, cancelled, fields_of
from millstream.server.postgres.parameters import read_value
from millstream.server.postgres.prepared import read_execute, read_prepare
from millstream.server.postgres.runner import parameter_oids
from millstream.server.postgres.text import Text, prepared, statements
from millstream.server.postgres.types import (
    BY_OID,
    INT2,
    INT4,
    INT8,
    JSON,
    JSONB,
    TEXT,
    UNKNOWN,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from millstream.engine.prepare import Bound
    from millstream.model.types import SqlType
    from millstream.server.postgres.answers import Columns, PgColumn
    from millstream.server.postgres.runner import Runner
    from millstream.server.postgres.wire import Wire

_OPEN: Final = (0, UNKNOWN, JSON, JSONB)
"""Types of parameters that say less than the place of the parameter does."""
_INTEGERS: Final = {INT2, INT4, INT8}
_ARRAYS: Final = {BY_OID[each].array for each in _INTEGERS}
_PIECE: Final = 1000
_MOST: Final = 10_000
_LONG: Final = 1 << 16


@dataclass(slots=True, eq=False)
class Statement:
    """A prepared statement.

    Attributes:
        text: it; None when it is empty.
        given: the OIDs that the client has given.
        types: those of the parameters' places; None before they were looked for.
        columns: those that it gives; None before these were looked for, or when it gives none.
    """

    text: Text | None
    given: Sequence[int]
    types: tuple[SqlType | None, ...] | None = None
    columns: Columns | None = None
    is_described: bool = False

    @property
    def known_types(self) -> list[SqlType | None]:
        """The types of its parameters, as far as the client or their places say."""
        count = 0 if self.text is None else self.text.rewritten.count
        by_place = self.types or (None,) * count
        given = [type_of(oid) for oid in self.given]
        given += [None] * (count - len(given))
        return [one or other for one, other in zip(given, by_place, strict=False)]

    @property
    def oids(self) -> list[int]:
        """The types of its parameters."""
        count = 0 if self.text is None else self.text.rewritten.count
        types = self.types or (None,) * count
        return parameter_oids([0 if each == UNKNOWN else each for each in self.given], types)

    @property
    def needs_types(self) -> bool:
        """Whether the places of its parameters have to say what these are."""
        if self.text is None or self.types is not None:
            return False
        count = self.text.rewritten.count
        return len(self.given) < count or any(oid in _OPEN for oid in self.given)


@dataclass(slots=True, eq=False)
class Portal:
    """A statement with its parameters.

    Attributes:
        statement: it.
        values: of its parameters.
        formats: of its columns.
        bound: the query, once it is planned.
        answer: once it runs.
    """

    statement: Statement
    values: list[Any]
    formats: Sequence[int]
    bound: Bound | None = field(default=None)
    answer: Answer | None = field(default=None)


class Backend:
    """Answers the messages of a client.

    Args:
        wire: where they come from, and answers go to.
        runner: runs the statements.
    """

    def __init__(self, wire: Wire, runner: Runner) -> None:
        self._wire = wire
        self._runner = runner
        self._statements: dict[str, Statement] = {}
        self._portals: dict[str, Portal] = {}
        self._is_skipping = False  # after an error, until the client synchronizes
        self._on: dict[bytes, Callable[[codec.Fields], Awaitable[None]]] = {
            b"Q": self._query,
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
            b"S": self._sync,
            b"H": self._flush,
        }

    async def handle(self, kind: bytes, content: bytes) -> None:
        """Answer one message.

        Raises:
            ProtocolError: it is none that may come here; the connection ends.
        """
        if self._is_skipping and kind not in b"SQ":
            return
        answer = self._on.get(kind)
        if answer is None:
            if kind in b"dcf":  # the rest of a COPY that has failed
                return
            raise ProtocolError(f"unexpected message {kind!r}")
        try:
            await answer(codec.Fields(content))
        except PostgresError as error:
            if error.is_fatal:
                raise
            self._failed(error)
        except Error as error:
            self._failed(error)
        except asyncio.CancelledError:
            if not self._wire.was_interrupted():
                raise
            self._failed(cancelled())
        if kind == b"Q":
            self._ready()

    def _failed(self, error: BaseException, text: Text | None = None) -> None:
        place = None if text is None else text.rewritten.position
        self._wire.send(codec.error_or_notice(b"E", fields_of(error, place)))
        self._is_skipping = True
        if self._runner.status == b"T":
            self._runner.status = b"E"

    def fault(self, error: BaseException, kind: bytes) -> None:
        """A fault of ours in a message of a kind: the statement has failed."""
        self._failed(error)
        if kind == b"Q":
            self._ready()

    def _ready(self) -> None:
        self._is_skipping = False
        self._wire.deliver(b"")
        self._wire.send(codec.ready(self._runner.status))

    # ---- simple queries

    async def _query(self, fields: codec.Fields) -> None:
        query = fields.string()
        fields.end()
        self._is_skipping = False
        self._portals.pop("", None)
        self._statements.pop("", None)
        found = await self._read(query)
        if not found:
            self._wire.send(codec.EMPTY_QUERY)
        for text in found:
            if not await self._one(text):
                break

    async def _read(self, query: str) -> list[Text]:
        """The statements of a text; a long one does not hold up other clients."""
        if len(query) < _LONG:
            return statements(query)
        return await self._runner.off_loop(partial(prepared, query))

    async def _one(self, text: Text) -> bool:
        """Run one statement of a simple query; returns whether it went well."""
        try:
            answer = await self._answer(text, ())
            self._notices(answer)
            if answer.columns is not None:
                self._wire.send(answer.describe(()))
            await self._rows(answer, (), 0)
            self._wire.send(answer.complete)
        except PostgresError as error:
            if error.is_fatal:
                raise
            self._failed(error, text)
            return False
        except Error as error:
            self._failed(error, text)
            return False
        return True

    async def _answer(self, text: Text, values: Sequence[Any]) -> Answer:
        """Run a statement."""
        if text.words[0] == "PREPARE":
            self._runner.check("PREPARE")
            return self._prepare(text)
        if text.words[0] == "EXECUTE":
            self._runner.check("EXECUTE")
            text, values = await self._executed(text)
        if text.rewritten.count > len(values):
            raise PostgresError(f"there is no parameter ${len(values) + 1}", sqlstate="42P02")
        return self._runner.now(text, values) or await self._runner.run(text, values)

    def _prepare(self, text: Text) -> Answer:
        """PREPARE."""
        name, types, inner = read_prepare(text)
        self._check_new(name)
        self._statements[name] = Statement(inner, types)
        return Answer("PREPARE")

    async def _executed(self, text: Text) -> tuple[Text, list[Any]]:
        """What EXECUTE means: a statement and the values of its parameters."""
        name, given = read_execute(text)
        statement = self._statement(name)
        if statement.text is None:
            raise PostgresError(f'prepared statement "{name}" is empty', sqlstate="26000")
        if len(given) != max(statement.text.rewritten.count, len(statement.given)):
            raise PostgresError(
                f'wrong number of parameters for prepared statement "{name}"', sqlstate="42601"
            )
        return statement.text, await self._values(statement, given, [0] * len(given))

    def _meant(self, statement: Statement) -> Statement:
        """A statement; of EXECUTE, the one that was prepared."""
        if statement.text is None or statement.text.words[0] != "EXECUTE":
            return statement
        return self._statement(read_execute(statement.text)[0])

    def _notices(self, answer: Answer) -> None:
        for each in answer.notices:
            self._wire.send(codec.error_or_notice(b"N", each))
        answer.notices.clear()

    async def _rows(self, answer: Answer, formats: Sequence[int], limit: int) -> bool:
        """Send rows, at most so many (0: all); returns whether there may be more."""
        if answer.columns is None:
            return False
        if answer.small >= 0 and not limit:
            self._wire.send(answer.encode(formats, answer.small, self._runner.settings.style)[0])
            return False
        left = limit
        while True:
            size = min(_PIECE, left) if limit else _PIECE
            data, count = await self._runner.encode(answer, formats, size)
            self._wire.send(data)
            await self._wire.drain()
            left -= count
            if limit and left <= 0:
                return True
            if count < size:
                return False

    # ---- prepared statements

    async def _parse(self, fields: codec.Fields) -> None:
        name, query, given = fields.string(), fields.string(), fields.oids()
        fields.end()
        self._check_new(name)
        found = await self._read(query)
        if len(found) > 1:
            raise PostgresError(
                "cannot insert multiple commands into a prepared statement", sqlstate="42601"
            )
        self._statements[name] = Statement(found[0] if found else None, given)
        self._wire.send(codec.PARSE_COMPLETE)

    def _check_new(self, name: str) -> None:
        """Raise unless a statement of a name can be prepared."""
        if name and name in self._statements:
            raise PostgresError(f'prepared statement "{name}" already exists', sqlstate="42P05")
        if len(self._statements) >= _MOST:
            raise PostgresError(
                "too many prepared statements",
                sqlstate="53400",
                hint=f"at most {_MOST}; close some",
            )

    async def _bind(self, fields: codec.Fields) -> None:
        name, source = fields.string(), fields.string()
        codes, sent, formats = fields.formats(), fields.values(), fields.formats()
        fields.end()
        statement = self._statement(source)
        count = 0 if statement.text is None else statement.text.rewritten.count
        if len(sent) != max(count, len(statement.given)) or len(codes) not in {0, 1, len(sent)}:
            raise PostgresError(
                f"bind message supplies {len(sent)} parameters, but the statement requires {count}",
                sqlstate="08P01",
            )
        if len(self._portals) >= _MOST:
            raise PostgresError("too many portals", sqlstate="53400", hint="close some")
        codes = codes * len(sent) if len(codes) == 1 else codes or [0] * len(sent)
        values = await self._values(statement, sent, codes)
        self._portals[name] = Portal(statement, values, formats)
        self._wire.send(codec.BIND_COMPLETE)

    async def _values(
        self, statement: Statement, sent: Sequence[bytes | None], codes: Sequence[int]
    ) -> list[Any]:
        """The values of parameters."""
        await self._find_types(statement)
        types = statement.types or (None,) * len(sent)
        read_as, zone = self._read_as(statement), self._runner.settings.style.zone
        return [
            read_value(data, oid, code, zone=zone, of=of)
            for data, oid, code, of in zip(sent, read_as, codes, types, strict=False)
        ]

    def _read_as(self, statement: Statement) -> list[int]:
        """The types that parameters are read as: JSON stays text, unless its column is nested."""
        types = statement.types or ()
        return [
            TEXT
            if oid in {JSON, JSONB}
            and not (place < len(types) and types[place] is not None and types[place].children)  # type: ignore[union-attr]
            else oid
            for place, oid in enumerate(statement.oids)
        ]

    async def _find_types(self, statement: Statement) -> None:
        if statement.text is not None and statement.needs_types:
            try:
                statement.types = await self._runner.parameter_types(statement.text)
            except Error as error:
                self._failed_at(error, statement.text)

    def _failed_at(self, error: Error, text: Text) -> None:
        """Raise an error of a statement with its place in the text."""
        fields = fields_of(error, text.rewritten.position)
        raise PostgresError(
            error.message,
            sqlstate=fields["C"],
            hint=error.hint,
            position=int(fields["P"] or 0),
        ) from error

    async def _describe(self, fields: codec.Fields) -> None:
        kind, name = fields.take(1), fields.string()
        fields.end()
        if kind == b"P" and name not in self._portals and self._describe_cursor(name):
            return
        if kind == b"P":
            portal = self._portal(name)
            columns = await self._portal_columns(portal)
            self._wire.send(Answer("", columns).describe(portal.formats))
            return
        statement = self._statement(name)
        await self._find_types(statement)
        await self._find_columns(statement)
        self._wire.send(codec.parameter_description(statement.oids))
        if statement.columns is None:
            self._wire.send(codec.NO_DATA)
        else:
            self._wire.send(codec.row_description(statement.columns, [0] * len(statement.columns)))

    async def _portal_columns(self, portal: Portal) -> Columns | None:
        """The columns that a portal gives; a query is planned for it, and runs later."""
        text = portal.statement.text
        if text is None:
            return None
        if portal.answer is None and portal.bound is None:
            try:
                found = await self._runner.bind(text, portal.values)
            except PostgresError:
                raise
            except Error as error:
                self._failed_at(error, text)
            if isinstance(found, Answer):
                portal.answer = found
            else:
                portal.bound = found
        if portal.answer is not None:
            return portal.answer.columns
        if portal.bound is not None:
            return labelled(portal.bound.schema, portal.bound.labels)
        await self._find_types(portal.statement)
        await self._find_columns(portal.statement)
        return portal.statement.columns

    def _describe_cursor(self, name: str) -> bool:
        columns = self._runner.cursor_columns(name)
        if columns is not None:
            self._wire.send(codec.row_description(columns, [0] * len(columns)))
        return columns is not None

    async def _find_columns(self, statement: Statement) -> None:
        if statement.text is None or statement.is_described:
            return
        try:
            meant = self._meant(statement)
            if meant.text is not None:
                statement.columns = await self._runner.describe(meant.text, meant.known_types)
        except Error as error:
            self._failed_at(error, statement.text)
        statement.is_described = True

    async def _execute(self, fields: codec.Fields) -> None:
        name, limit = fields.string(), fields.int32()
        fields.end()
        portal = self._portal(name)
        if portal.statement.text is None:
            self._wire.send(codec.EMPTY_QUERY)
            return
        answer = await self._run(portal)
        self._notices(answer)
        if await self._rows(answer, portal.formats, max(limit, 0)):
            self._wire.send(codec.PORTAL_SUSPENDED)
        else:
            self._wire.send(answer.complete)

    async def _run(self, portal: Portal) -> Answer:
        """The answer of a portal, which runs once."""
        text = portal.statement.text
        if text is None:
            raise ProtocolError("an empty portal")
        if portal.answer is None:
            try:
                if portal.bound is not None:
                    portal.answer = await self._runner.run_bound(portal.bound)
                else:
                    portal.answer = await self._answer(text, portal.values)
            except PostgresError:
                raise
            except Error as error:
                self._failed_at(error, text)
        if portal.answer is None:
            raise ProtocolError("a portal without an answer")
        portal.answer.columns = _as_described(portal.answer.columns, portal.statement.columns)
        return portal.answer

    async def _close(self, fields: codec.Fields) -> None:
        kind, name = fields.take(1), fields.string()
        fields.end()
        held: dict[str, Any] = self._portals if kind == b"P" else self._statements
        held.pop(name, None)
        self._wire.send(codec.CLOSE_COMPLETE)

    async def _sync(self, fields: codec.Fields) -> None:
        fields.end()
        if self._runner.status == b"I":
            self._portals.clear()
        self._ready()

    async def _flush(self, fields: codec.Fields) -> None:
        fields.end()
        await self._wire.drain()

    def _statement(self, name: str) -> Statement:
        found = self._statements.get(name)
        if found is None:
            raise PostgresError(f'prepared statement "{name}" does not exist', sqlstate="26000")
        return found

    def _portal(self, name: str) -> Portal:
        found = self._portals.get(name)
        if found is None:
            raise PostgresError(f'portal "{name}" does not exist', sqlstate="34000")
        return found

    def deallocate(self, name: str | None) -> None:
        """DEALLOCATE name, or ALL (None)."""
        if name is None:
            self._statements.clear()
        elif self._statements.pop(name, None) is None:
            raise PostgresError(f'prepared statement "{name}" does not exist', sqlstate="26000")


def _as_described(columns: Columns | None, described: Columns | None) -> Columns | None:
    """The columns of an answer, of the integer types that the client was told.

    A parameter's value may be smaller than its type says: 5 of ``SELECT $1`` is an INTEGER.
    """
    if columns is None or described is None or columns == described:
        return columns
    names, told = [each[0] for each in columns], [each[0] for each in described]
    if names != told:
        return columns
    pairs = zip(columns, described, strict=True)
    return tuple([two if _are_integers(one, two) else one for one, two in pairs])


def _are_integers(one: PgColumn, other: PgColumn) -> bool:
    """Whether both are integers, or both arrays of integers."""
    oids = {one.oid, other.oid}
    return oids <= _INTEGERS or oids <= _ARRAYS
