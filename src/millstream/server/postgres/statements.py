"""Statements that go on: SUBSCRIBE, cursors, COPY, LISTEN. All others are the runner's."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ClosedError, ReceiveTimeoutError
from millstream.server.postgres import codec
from millstream.server.postgres.answers import Answer, PgColumn
from millstream.server.postgres.changes import ChangeRows, change_columns, read_subscribe
from millstream.server.postgres.channels import ClientChannels
from millstream.server.postgres.copying import (
    Copy,
    CopyWriter,
    insert,
    is_of_file,
    read_copy,
)
from millstream.server.postgres.errors import PostgresError, ProtocolError, cancelled
from millstream.server.postgres.locks import AdvisoryLocks, read_call
from millstream.server.postgres.options import check_names, duration, split_options
from millstream.server.postgres.runner import Runner
from millstream.server.postgres.text import Text
from millstream.server.postgres.types import BOOL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager

    from millstream.engine.session import Session
    from millstream.model.types import SqlType
    from millstream.server.postgres.answers import Columns
    from millstream.server.postgres.catalog import CatalogQueries
    from millstream.server.postgres.changes import Subscribe
    from millstream.server.postgres.locks import Call
    from millstream.server.postgres.runner import Pools
    from millstream.server.postgres.wire import Wire
    from millstream.server.roles import Identity
    from millstream.subscriptions import AsyncSubscription

    Counted = Callable[[], AbstractContextManager[None]]

_MOST_CURSORS: Final = 100
_PIECE: Final = 1000
_ALL: Final = 2**31


def _lock_column(call: Call) -> PgColumn:
    return PgColumn(call.name, BOOL, 1) if call.gives_boolean else PgColumn(call.name)


class Cursor:
    """A cursor of DECLARE over the rows of a query.

    Args:
        answer: its rows.
    """

    def __init__(self, answer: Answer) -> None:
        self.columns = answer.columns or ()
        self._rows = answer.rows

    async def fetch(self, count: int, timeout: float | None) -> list[Sequence[Any]]:  # noqa: ARG002
        """The next rows, at most so many."""
        return list(islice(self._rows, count))

    def close(self) -> None:
        """Forget the rows."""


class ChangeCursor:
    """A cursor of DECLARE over the changes of a query.

    Args:
        subscription: the changes.
        subscribe: what was asked for.
        ended: called when it is closed.
    """

    def __init__(
        self, subscription: AsyncSubscription, subscribe: Subscribe, ended: Callable[[], None]
    ) -> None:
        self.columns = change_columns(subscription.schema)
        self._subscription = subscription
        self._ended = ended
        self._rows_of = ChangeRows(subscribe, subscription.schema)
        self._held: deque[Sequence[Any]] = deque()

    async def fetch(self, count: int, timeout: float | None) -> list[Sequence[Any]]:
        """The next rows, at most so many; waits so many seconds for the first, None: not at all."""
        wait = timeout or 0.0
        while len(self._held) < count:
            try:
                batch = await self._subscription.recv(0.0 if self._held else wait)
            except ReceiveTimeoutError:
                break
            self._held += self._rows_of(batch)
        return [self._held.popleft() for _ in range(min(count, len(self._held)))]

    def close(self) -> None:
        """End the subscription."""
        self._subscription.cancel()
        self._ended()


class Opening:
    """A subscription that another thread opens, which may take long, and nobody may want then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: AsyncSubscription | None = None
        self._is_abandoned = False

    def run(self, open_it: Callable[[], AsyncSubscription]) -> AsyncSubscription:
        """Open it; called by the other thread."""
        made = open_it()
        with self._lock:
            self._made = made
            if self._is_abandoned:
                made.cancel()
        return made

    def abandon(self) -> None:
        """Cancel it, now or once it is open."""
        with self._lock:
            self._is_abandoned = True
            if self._made is not None:
                self._made.cancel()


class Statements(Runner):
    """Runs all statements of a connection.

    Args:
        session: what they run in.
        pools: where they run.
        wire: the client.
        identity: who it is, and what it may do.
        catalog: answers queries of pg_catalog.
        copy_bytes: how much one COPY may bring.
        query_seconds: how long a query may run; None: as long as it takes.
        owner: the key whose share of the threads it has; None: there are no shares.
        counted: counts a subscription of the client while it is open; raises at the limit.
        locks: the advisory locks of the server; None: its own.
    """

    def __init__(
        self,
        session: Session,
        pools: Pools,
        wire: Wire,
        *,
        identity: Identity,
        catalog: CatalogQueries,
        copy_bytes: int,
        query_seconds: float | None = None,
        owner: str | None = None,
        counted: Counted = nullcontext,
        locks: AdvisoryLocks | None = None,
    ) -> None:
        super().__init__(
            session,
            pools,
            wire,
            identity=identity,
            catalog=catalog,
            query_seconds=query_seconds,
            owner=owner,
        )
        self._counted = counted
        self._locks = locks or AdvisoryLocks()
        self._copy_bytes = copy_bytes
        self._channels = ClientChannels(wire.deliver, wire.process)
        self._cursors: dict[str, Cursor | ChangeCursor] = {}
        self._going_on: dict[str, Callable[[Text, Sequence[Any]], Awaitable[Answer]]] = {
            "SUBSCRIBE": self._subscribe,
            "LIVE": self._subscribe,
            "COPY": self._copy,
            "DECLARE": self._declare,
            "FETCH": self._fetch,
            "CLOSE": self._close_cursor,
            "LISTEN": self._listen,
            "UNLISTEN": self._unlisten,
            "NOTIFY": self._notify,
        }

    async def run(self, text: Text, values: Sequence[Any]) -> Answer:
        """Run a statement."""
        going_on = self._going_on.get(text.words[0])
        if going_on is not None:
            return await going_on(text, values)
        if text.words[:3:2] == ("SELECT", "(") and text.tokens[1].identifier == "pg_notify":
            return await self._pg_notify(text, values)
        if text.words[:3:2] == ("SELECT", "(") and text.tokens[1].identifier == "pg_sleep":
            return await self._pg_sleep(text, values)
        call = read_call(text)
        if call is not None:
            return await self._advisory(call, values)
        return await super().run(text, values)

    async def describe(self, text: Text, types: Sequence[SqlType | None]) -> Columns | None:
        """The columns that a statement will give; None when it gives no rows."""
        call = read_call(text)
        return (_lock_column(call),) if call is not None else await super().describe(text, types)

    def goes_on(self, text: Text) -> bool:
        """Whether a statement does more than to read."""
        does_more = text.words[0] in self._going_on or read_call(text) is not None
        return does_more or super().goes_on(text)

    def gives_rows(self, text: Text) -> bool:
        """Whether a statement gives rows, by its first words."""
        return text.words[0] == "FETCH" or super().gives_rows(text)

    def columns_now(self, text: Text) -> Columns | None:
        """The columns of what has them before it runs: FETCH has those of its cursor."""
        if text.words[0] != "FETCH":
            return None
        return self._cursor(split_options(text.tokens)[0][-1].identifier).columns

    def query_of(self, text: Text) -> Text | None:
        """The part of a statement that the engine reads; None when there is none."""
        if text.words[0] not in self._going_on:
            return text
        tokens = split_options(text.tokens)[0]
        for place, token in enumerate(tokens):
            if token.word in {"SELECT", "WITH"}:
                return Text(text.query, tokens[place:])
        return None

    def cursor_columns(self, name: str) -> Columns | None:
        """The columns of a cursor; None when there is none of that name."""
        found = self._cursors.get(name)
        return None if found is None else found.columns

    def close(self) -> None:
        """The client is gone."""
        self._channels.close()
        self._close_cursors()
        self._release()
        super().close()

    def _discard(self, text: Text) -> Answer:
        if text.words[1:2] in {(), ("ALL",)}:
            self._channels.unlisten(None)
            self._close_cursors()
            self._release()
        return super()._discard(text)

    # ---- advisory locks

    async def _advisory(self, call: Call, values: Sequence[Any]) -> Answer:
        self.check("SELECT of pg_catalog")
        key, tenant = call.key(values), self.session.tenant
        self.is_reading = True
        try:
            async with asyncio.timeout(self.settings.timeout):
                done = await self._locks.call(call, key, self, tenant)
        except TimeoutError:
            raise cancelled("canceling statement due to statement timeout") from None
        finally:
            self.is_reading = False
        if self.status == b"I":
            self._locks.release(self, transaction=True)
        row = (done if call.gives_boolean else "",)
        return Answer("SELECT", (_lock_column(call),), iter([row]), small=1)

    def _end(self, text: Text) -> Answer:
        answer = super()._end(text)
        if self.status == b"I":
            self._locks.release(self, transaction=True)
        return answer

    def _release(self) -> None:
        self._locks.release(self, transaction=True)
        self._locks.release(self, transaction=False)

    # ---- SUBSCRIBE

    async def _subscribe(self, text: Text, values: Sequence[Any]) -> Answer:
        return await self._stream(read_subscribe(text, values), None)

    async def _stream(self, subscribe: Subscribe, copy: Copy | None) -> Answer:
        """Send changes as COPY data until the client cancels, or nothing comes for long."""
        with self._counted():
            return await self._sent(subscribe, copy)

    async def _sent(self, subscribe: Subscribe, copy: Copy | None) -> Answer:
        subscription = await self._open(subscribe)
        self.is_reading = True
        sent = 0
        try:
            columns = change_columns(subscription.schema)
            writer = CopyWriter(columns, copy, self.settings.style)
            rows_of = ChangeRows(subscribe, subscription.schema)
            self._wire.send(codec.copy_response(b"H", len(columns), writer.code))
            self._copy_data(writer.begin(has_header=copy is not None and copy.has_header))
            await self._wire.drain()
            while True:
                batch = await subscription.recv(subscribe.timeout)
                rows = rows_of(batch)
                for place in range(0, len(rows), _PIECE):
                    for data in writer.rows(rows[place : place + _PIECE]):
                        self._copy_data(data)
                    await self._wire.drain()
                sent += len(rows)
        except ReceiveTimeoutError:
            self._copy_data(writer.end())
            self._wire.send(codec.COPY_DONE)
        finally:
            self.is_reading = False
            subscription.cancel()
        return Answer(f"COPY {sent}")

    async def _open(self, subscribe: Subscribe) -> AsyncSubscription:
        opening = Opening()
        work = partial(opening.run, partial(self._opened, subscribe))
        self.is_reading = True
        try:
            return await self.off_loop(work, opens=True)
        except BaseException:
            opening.abandon()
            raise

    def _opened(self, subscribe: Subscribe) -> AsyncSubscription:
        return subscribe.open(self.session)

    def _copy_data(self, data: bytes) -> None:
        if data:
            self._wire.send(codec.message(b"d", data))

    # ---- cursors

    async def _declare(self, text: Text, values: Sequence[Any]) -> Answer:
        self.check("DECLARE")
        places = [place for place, each in enumerate(text.tokens) if each.word == "FOR"]
        if not places or len(text.tokens) < 2:
            raise PostgresError("DECLARE name CURSOR FOR ... is expected", sqlstate="42601")
        name, inner = text.tokens[1].identifier, text.tail(places[0] + 1)
        if name in self._cursors:
            raise PostgresError(f'cursor "{name}" already exists', sqlstate="42P03")
        if len(self._cursors) >= _MOST_CURSORS:
            raise PostgresError(
                "too many cursors", sqlstate="53000", hint=f"CLOSE some; at most {_MOST_CURSORS}"
            )
        if inner.words[0] in {"SUBSCRIBE", "LIVE"}:
            self._cursors[name] = await self._change_cursor(read_subscribe(inner, values))
        elif self.gives_rows(inner):
            self._cursors[name] = Cursor(await self.run(inner, values))
        else:
            raise PostgresError("a cursor is FOR a query or SUBSCRIBE", sqlstate="42601")
        return Answer("DECLARE CURSOR")

    async def _change_cursor(self, subscribe: Subscribe) -> ChangeCursor:
        with ExitStack() as stack:
            stack.enter_context(self._counted())
            subscription = await self._open(subscribe)
            return ChangeCursor(subscription, subscribe, stack.pop_all().close)

    async def _fetch(self, text: Text, _: Sequence[Any]) -> Answer:
        self.check("FETCH")
        tokens, options = split_options(text.tokens)
        check_names(options, ("timeout",), text)
        cursor = self._cursor(tokens[-1].identifier)
        words = [each.word for each in tokens[1:-1] if each.word not in {"FROM", "IN", "FORWARD"}]
        count = 1
        if words == ["ALL"]:
            count = _ALL
        elif words and words[0].isdecimal():
            count = min(int(words[0][:10]), _ALL)
        elif words and words != ["NEXT"]:
            raise PostgresError(
                f"FETCH {' '.join(words)} is not supported",
                sqlstate="0A000",
                hint="FETCH NEXT, FETCH n, FETCH ALL FROM cursor",
            )
        self.is_reading = True
        try:
            rows = await cursor.fetch(count, duration(options, "timeout"))
        finally:
            self.is_reading = False
        return Answer("FETCH", cursor.columns, iter(rows), small=len(rows))

    async def _close_cursor(self, text: Text, _: Sequence[Any]) -> Answer:
        self.check("CLOSE")
        token = text.tail(1).tokens[0]
        if token.word == "ALL":
            self._close_cursors()
            return Answer("CLOSE CURSOR ALL")
        self._cursor(token.identifier).close()
        del self._cursors[token.identifier]
        return Answer("CLOSE CURSOR")

    def _cursor(self, name: str) -> Cursor | ChangeCursor:
        found = self._cursors.get(name)
        if found is None:
            raise PostgresError(f'cursor "{name}" does not exist', sqlstate="34000")
        return found

    def _close_cursors(self) -> None:
        for each in self._cursors.values():
            each.close()
        self._cursors.clear()

    # ---- COPY

    async def _copy(self, text: Text, values: Sequence[Any]) -> Answer:
        if is_of_file(text):
            return await super().run(text, values)
        copy = read_copy(text)
        if copy.is_in:
            return await self._copy_in(copy)
        self.check("COPY TO STDOUT")
        tokens = copy.query
        if tokens and tokens[0].word in {"SUBSCRIBE", "LIVE"}:
            return await self._stream(read_subscribe(Text(text.query, tokens), values), copy)
        if tokens:
            answer = await self.run(Text(text.query, tokens), values)
        else:
            self.is_reading = True
            answer = await self.off_loop(partial(self.select_all, copy.name, copy.columns))
        return await self._copy_out(copy, answer)

    async def _copy_out(self, copy: Copy, answer: Answer) -> Answer:
        columns, sent = answer.columns or (), 0
        writer = CopyWriter(columns, copy, self.settings.style)
        self._wire.send(codec.copy_response(b"H", len(columns), writer.code))
        self._copy_data(writer.begin(has_header=copy.has_header))
        while True:
            self.is_reading = True
            pieces = await self.off_loop(lambda: list(writer.rows(islice(answer.rows, _PIECE))))
            for data in pieces:
                self._copy_data(data)
            await self._wire.drain()
            sent += len(pieces)
            if len(pieces) < _PIECE:
                break
        self._copy_data(writer.end())
        self._wire.send(codec.COPY_DONE)
        return Answer(f"COPY {sent}")

    async def _copy_in(self, copy: Copy) -> Answer:
        self.check("COPY FROM STDIN")
        self.check_writable("COPY FROM")
        found = await self.off_loop(lambda: self.session.context.find(copy.name))
        count = len(copy.columns) or len(found.schema.columns)
        self._wire.send(codec.copy_response(b"G", count, copy.code))
        self.is_reading = True  # until all is there, it can be cancelled
        try:
            data = await self._copied()
        finally:
            self.is_reading = False
        self.has_written = True
        added = await self.off_loop(
            partial(insert, self.session, copy, data, self.settings.style.zone)
        )
        return Answer(f"COPY {added}")

    async def _copied(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            kind, content = await self._wire.receive()
            if kind == b"d":
                parts.append(content)
                size += len(content)
                if size > self._copy_bytes:
                    raise PostgresError(
                        "the data of COPY are too many",
                        sqlstate="54000",
                        hint=f"at most {self._copy_bytes} bytes at once; use several COPYs",
                    )
            elif kind == b"c":
                return b"".join(parts)
            elif kind == b"f":
                why = codec.Fields(content).string()
                raise PostgresError(f"COPY from stdin failed: {why}", sqlstate="57014")
            elif kind not in b"HS":
                raise ProtocolError(f"unexpected message {kind!r} during COPY")

    # ---- LISTEN and NOTIFY

    async def _listen(self, text: Text, _: Sequence[Any]) -> Answer:
        self.check("LISTEN")
        name = text.tail(1).tokens[0].identifier
        if not name:
            raise PostgresError("LISTEN needs a channel", sqlstate="42601")
        self._channels.names.add(name)
        if not self._channels.is_open:
            listener = await self.off_loop(self.session.listen_stream, opens=True)
            self._channels.start(listener)
        return Answer("LISTEN")

    async def _unlisten(self, text: Text, _: Sequence[Any]) -> Answer:
        self.check("UNLISTEN")
        token = text.tail(1).tokens[0]
        self._channels.unlisten(None if token.text == "*" else token.identifier)
        return Answer("UNLISTEN")

    async def _notify(self, text: Text, _: Sequence[Any]) -> Answer:
        tokens = text.tail(1).tokens
        is_whole = len(tokens) == 1 or (len(tokens) == 3 and tokens[1].text == ",")
        if not is_whole or not tokens[0].identifier:
            raise PostgresError("NOTIFY channel, 'payload' is expected", sqlstate="42601")
        await self._send(tokens[0].identifier, tokens[2].value if len(tokens) == 3 else "")
        return Answer("NOTIFY")

    async def _pg_notify(self, text: Text, values: Sequence[Any]) -> Answer:
        given = [each for each in text.tokens[3:-1] if each.text != ","]
        texts = [
            str(values[int(each.text[1:]) - 1] or "") if each.kind == "parameter" else each.value
            for each in given
            if each.kind in {"parameter", "string", "escaped", "dollar"}
        ]
        if len(texts) != 2:
            raise PostgresError("pg_notify takes a channel and a payload", sqlstate="42883")
        await self._send(*texts)
        return Answer("SELECT", (PgColumn("pg_notify"),), iter([("",)]), small=1)

    async def _pg_sleep(self, text: Text, values: Sequence[Any]) -> Answer:
        self.check("SELECT pg_sleep")
        try:
            token = text.tokens[3]
            given = values[int(token.text[1:]) - 1] if token.kind == "parameter" else token.text
            seconds = float(given)
        except (ValueError, TypeError, IndexError) as error:
            raise PostgresError("pg_sleep takes a number", sqlstate="42883") from error
        self.is_reading = True
        try:
            async with asyncio.timeout(self.settings.timeout):
                await asyncio.sleep(min(seconds, 3600.0))
        except TimeoutError:
            raise cancelled("canceling statement due to statement timeout") from None
        finally:
            self.is_reading = False
        return Answer("SELECT", (PgColumn("pg_sleep"),), iter([("",)]), small=1)

    async def _send(self, channel: str, payload: str) -> None:
        self.check("NOTIFY")
        own = self._channels.expect(channel, payload)
        await self.off_loop(partial(self.session.notify, channel, payload))
        if own is not None:  # as in PostgreSQL, one's own come before the end of the statement
            try:
                async with asyncio.timeout(1.0):
                    await own.wait()
            except (TimeoutError, ClosedError):
                return
