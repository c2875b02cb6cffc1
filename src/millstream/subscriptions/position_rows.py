"""The rows of the log of positions: what they say, and when all is said anew. Pure.

A row has what changed (``set``: subscriptions that were made; ``at``: positions that were
acknowledged; ``gone``: subscriptions that were dropped), or, now and then, all subscriptions as
they are: a whole row. That is written once the changes since the last one take more than twice as
much as it, so what is written in all stays within a small multiple of the changes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.model.lsn import FIRST_LSN

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEAST_BYTES: Final = 16 << 10
"""So many bytes of changes may follow a whole row, however small that is."""

OwnedName: TypeAlias = tuple[str | None, str]
"""The tenant that a durable subscription belongs to, or None, and its name: each tenant has names
of its own."""


@dataclass(frozen=True, slots=True)
class DurablePosition:
    """A durable subscription and its position.

    Attributes:
        name: its name.
        sql: its query.
        target: the log that it reads.
        tenant: it reads the rows of this tenant only; None: all rows.
        lsn: everything up to here was acknowledged; -1: begin where it was opened to begin.
    """

    name: str
    sql: str
    target: str
    tenant: str | None
    lsn: int

    @property
    def key(self) -> OwnedName:
        """Its tenant and its name."""
        return self.tenant, self.name


@dataclass(frozen=True, slots=True)
class PositionsRow:
    """A row of the log.

    Attributes:
        positions: what it says of some subscriptions, or of all; None: it was dropped.
        is_whole: whether it is of all.
        is_structural: whether it says that subscriptions were made or dropped.
        text: the row, as it is in the log.
    """

    positions: Mapping[OwnedName, DurablePosition | None]
    is_whole: bool
    is_structural: bool
    text: str

    @classmethod
    def whole(cls, positions: Mapping[OwnedName, DurablePosition]) -> PositionsRow:
        """The row of all subscriptions."""
        state = {"subscriptions": [asdict(each) for each in positions.values()]}
        return cls(dict(positions), True, False, json.dumps(state))

    @classmethod
    def of_changes(
        cls,
        changed: Mapping[OwnedName, DurablePosition | None],
        known: Mapping[OwnedName, DurablePosition],
    ) -> PositionsRow:
        """The row that says what changed, against what the log says."""
        state: dict[str, list[Any]] = {"set": [], "at": [], "gone": []}
        for key, each in changed.items():
            before = known.get(key)
            if each is None:
                state["gone"] += [] if before is None else [key]
            elif before is None or replace(before, lsn=each.lsn) != each:
                state["set"].append(asdict(each))
            else:
                state["at"].append([*key, each.lsn])
        said = {name: each for name, each in state.items() if each}
        return cls(changed, False, said.keys() != {"at"} and bool(said), json.dumps(said))


def apply(state: Mapping[str, Any], positions: dict[OwnedName, DurablePosition]) -> bool:
    """Bring positions to what a row of the log says; whether it was a whole one."""
    is_whole = "subscriptions" in state
    if is_whole:
        positions.clear()
    for each in (*state.get("subscriptions", ()), *state.get("set", ())):
        made = DurablePosition(**each)
        positions[made.key] = made
    for tenant, name, lsn in state.get("at", ()):
        known = positions.get((tenant, name))
        if known is not None:  # else the row that made it is damaged
            positions[tenant, name] = replace(known, lsn=lsn)
    for tenant, name in state.get("gone", ()):
        positions.pop((tenant, name), None)
    return is_whole


class WholeRows:
    """When the next whole row is due, and which rows are needed still.

    Attributes:
        needed_lsn: rows before this one are not needed: there are two whole ones after them.
    """

    def __init__(self) -> None:
        self.needed_lsn = FIRST_LSN
        self._last_lsn = FIRST_LSN
        self._size = 0
        self._since = 0

    def add(self, lsn: int, size: int, *, is_whole: bool) -> None:
        """A row was written."""
        if is_whole:
            self.needed_lsn, self._last_lsn = self._last_lsn, lsn
            self._size, self._since = size, 0
        else:
            self._since += size

    def demand(self) -> None:
        """Have a whole row written next."""
        self._since = sys.maxsize

    def is_due(self, size: int) -> bool:
        """Whether a whole row is to take the place of one with so many bytes of changes."""
        return self._since + size > max(_LEAST_BYTES, 2 * self._size)
