"""``pg_advisory_lock`` and its kin: locks by number, of the connections of one server.

All is done in the server's event loop, so that a step needs no lock of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.server.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from millstream.server.postgres.text import Text

    Key = tuple[str | None, tuple[int, ...]]

_FUNCTIONS: Final = {
    f"pg_{attempt}advisory_{scope}lock{mode}": (bool(attempt), bool(scope), bool(mode))
    for attempt in ("", "try_")
    for scope in ("", "xact_")
    for mode in ("", "_shared")
}
"""Whether it does not wait, is of the transaction, and is shared."""
_UNLOCKS: Final = {"pg_advisory_unlock": False, "pg_advisory_unlock_shared": True}
_UNLOCK_ALL: Final = "pg_advisory_unlock_all"
_BIGGEST: Final = 2**63


@dataclass(frozen=True, slots=True)
class Call:
    """``SELECT pg_advisory_...(key | key, key) [[AS] name]``.

    Attributes:
        function: which of them.
        name: of its column.
        arguments: the tokens of the key, as they are written: a number or a parameter each.
    """

    function: str
    name: str
    arguments: tuple[str, ...]

    @property
    def gives_boolean(self) -> bool:
        """Whether it says if it could; else nothing."""
        return self.function.startswith("pg_try") or self.function in _UNLOCKS

    def key(self, values: Sequence[object]) -> tuple[int, ...]:
        """The key that is meant.

        Raises:
            PostgresError: it is no number.
        """
        found = []
        for each in self.arguments:
            given = values[int(each[1:]) - 1] if each[0] == "$" else each
            try:
                found.append(int(str(given)))
            except ValueError as error:
                raise PostgresError(f"{self.function} takes numbers", sqlstate="22P02") from error
        if not all(-_BIGGEST <= each < _BIGGEST for each in found):
            raise PostgresError("bigint out of range", sqlstate="22003")
        return tuple(found)


def read_call(text: Text) -> Call | None:
    """The call of an advisory lock that a statement is; None of any other.

    Raises:
        PostgresError: it has one that is written otherwise.
    """
    if text.words[0] != "SELECT" or not any("advisory" in each.text for each in text.tokens):
        return None
    names = [n for n, each in enumerate(text.tokens) if _is_function(each.identifier)]
    if not names:
        return None
    tokens = text.tokens[1:]
    if names == [3] and tokens[0].identifier == "pg_catalog":
        tokens = tokens[2:]
    inner: list[str] = []
    place = 2
    while place < len(tokens) and tokens[place].text != ")":
        inner.append(tokens[place].text)
        place += 1
    rest = [each for each in tokens[place + 1 :] if each.word != "AS"]
    function = tokens[0].identifier
    arguments = tuple("".join(inner).replace("::bigint", "").replace("::int8", "").split(","))
    is_all = function == _UNLOCK_ALL
    is_whole = is_all == (arguments == ("",)) and len(arguments) <= 2 and len(rest) <= 1
    if not _is_function(function) or not is_whole or any(not each.identifier for each in rest):
        raise PostgresError(
            "advisory locks are called by themselves",
            sqlstate="0A000",
            hint="SELECT pg_advisory_lock(key), with a number or a parameter",
            position=text.start + 1,
        )
    return Call(function, rest[0].identifier if rest else function, () if is_all else arguments)


def _is_function(name: str) -> bool:
    return name in _FUNCTIONS or name in _UNLOCKS or name == _UNLOCK_ALL


@dataclass(slots=True)
class _Lock:
    """One lock: how often each owner has it, alone or shared, and who waits."""

    alone: Counter[Hashable] = field(default_factory=Counter)
    shared: Counter[Hashable] = field(default_factory=Counter)
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def take(self, owner: Hashable, *, shared: bool) -> bool:
        others = set(self.alone) if shared else set(self.alone) | set(self.shared)
        if others - {owner}:
            return False
        (self.shared if shared else self.alone)[owner] += 1
        return True

    def leave(self, owner: Hashable, *, shared: bool) -> bool:
        held = self.shared if shared else self.alone
        if not held[owner]:
            del held[owner]
            return False
        held[owner] -= 1
        if not held[owner]:
            del held[owner]
            self.wake()
        return True

    def wake(self) -> None:
        for each in self.waiting:
            if not each.done():
                each.set_result(None)
        self.waiting.clear()


class AdvisoryLocks:
    """The advisory locks of a server; an owner may have one several times, as in PostgreSQL."""

    def __init__(self) -> None:
        self._locks: dict[Key, _Lock] = {}
        self._held: dict[Hashable, list[tuple[Key, bool, bool]]] = {}

    async def call(
        self, call: Call, key: tuple[int, ...], owner: Hashable, tenant: str | None
    ) -> bool | None:
        """Do what a call says; returns what it answers, None: nothing."""
        whole = (tenant, key)
        if call.function == _UNLOCK_ALL:
            self.release(owner, transaction=False)
            return None
        if call.function in _UNLOCKS:
            return self._unlock(whole, owner, shared=_UNLOCKS[call.function])
        is_attempt, is_of_transaction, is_shared = _FUNCTIONS[call.function]
        lock = self._locks.setdefault(whole, _Lock())
        while not lock.take(owner, shared=is_shared):
            if is_attempt:
                return False
            news = asyncio.get_running_loop().create_future()
            lock.waiting.append(news)
            await news
            lock = self._locks.setdefault(whole, _Lock())
        self._held.setdefault(owner, []).append((whole, is_shared, is_of_transaction))
        return True if is_attempt else None

    def _unlock(self, key: Key, owner: Hashable, *, shared: bool) -> bool:
        held = self._held.get(owner, [])
        if (key, shared, False) not in held:
            return False
        held.remove((key, shared, False))
        self._leave(key, owner, shared=shared)
        return True

    def _leave(self, key: Key, owner: Hashable, *, shared: bool) -> None:
        lock = self._locks[key]
        lock.leave(owner, shared=shared)
        if not lock.alone and not lock.shared and not lock.waiting:
            del self._locks[key]

    def release(self, owner: Hashable, *, transaction: bool) -> None:
        """Release all locks of an owner: those of its transaction, or those of its session."""
        for key, shared, is_of_transaction in list(self._held.get(owner, [])):
            if is_of_transaction == transaction:
                self._held[owner].remove((key, shared, is_of_transaction))
                self._leave(key, owner, shared=shared)
        if not self._held.get(owner):
            self._held.pop(owner, None)
