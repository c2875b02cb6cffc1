"""The positions of durable subscriptions, and watermarks, kept in a log of their own.

Every row of that log holds all positions, so only the last row is ever needed; a hold protects it
from retention, which may remove the others.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.errors import (
    InvalidOptionError,
    LogFullError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
)
from millstream.log import Retention
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.dispatch import Dispatcher
    from millstream.log import Hold, Log

TOPIC: Final = "__positions"
_logger = logging.getLogger("millstream.subscriptions")
_SCHEMA: Final = Schema.of(state="VARCHAR NOT NULL")

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


class Positions:
    """All durable positions of a database.

    Args:
        log: the log, whose topics exist.
        dispatcher: commits them.
        watermarks: gives the watermark of each source, written along with the positions.
    """

    def __init__(
        self,
        log: Log,
        dispatcher: Dispatcher,
        watermarks: Callable[[], dict[str, int]],
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._watermarks = watermarks
        self._lock = threading.Lock()
        self._is_posted = False
        self._last = '{"subscriptions": [], "watermarks": {}}'
        self._hold: Hold | None = None
        self._durable: dict[OwnedName, DurablePosition] = {}
        self._holds: dict[OwnedName, Hold] = {}
        self.loaded_watermarks: dict[str, int] = {}
        self.loaded_lsn = 0
        if TOPIC not in log.topics:
            log.create_topic(TOPIC, _SCHEMA, retention=Retention(max_age=3600.0))
        self._load()

    def _load(self) -> None:
        for batch in self._log.salvage(TOPIC):
            if not len(batch):
                continue
            self._last, self.loaded_lsn = batch.held_rows[-1][0], batch.lsn
        if self._log.damage(TOPIC) is not None:
            _logger.warning(
                "%s: positions are damaged: durable subscriptions go on where they were at LSN %d, "
                "or earlier; those made since are lost",
                self._log.path,
                self.loaded_lsn,
            )
        state = json.loads(self._last)
        if self.loaded_lsn:
            self._hold = self._log.hold(TOPIC, lsn=self.loaded_lsn)
        self.loaded_watermarks = state.get("watermarks", {})
        for each in state.get("subscriptions", []):
            durable = DurablePosition(**each)
            if durable.target in self._log.topics:
                self._durable[durable.key] = durable
                self._take_hold(durable)

    def _take_hold(self, durable: DurablePosition) -> None:
        self._holds[durable.key] = self._log.hold(durable.target, lsn=durable.lsn + 1, kept=True)

    # ---- what there is

    def __contains__(self, key: OwnedName) -> bool:
        return key in self._durable

    def __getitem__(self, key: OwnedName) -> DurablePosition:
        found = self._durable.get(key)
        if found is None:
            tenant, name = key
            own = sorted(each for owner, each in self._durable if owner == tenant)
            raise SubscriptionNotFoundError(
                f"there is no durable subscription {name!r}",
                hint=f"available: {', '.join(own) or 'none'}",
            )
        return found

    def find(self, tenant: str | None, name: str) -> OwnedName:
        """The key of the subscription that a tenant means by a name; it need not exist.

        Without a tenant, a name that only one tenant uses means that one's.

        Raises:
            InvalidOptionError: several tenants use the name.
        """
        if tenant is not None or (None, name) in self._durable:
            return tenant, name
        owners = [owner for owner, each in list(self._durable) if each == name]
        if len(owners) > 1:
            raise InvalidOptionError(
                f"{len(owners)} tenants have a durable subscription {name!r}",
                hint="say whose: db.execute(..., tenant='...')",
            )
        return (owners[0] if owners else None), name

    def all(self) -> list[DurablePosition]:
        """All durable subscriptions, by name."""
        return sorted(self._durable.values(), key=lambda each: (each.name, each.tenant or ""))

    # ---- what changes

    def open(self, wanted: DurablePosition) -> DurablePosition:
        """The durable subscription of that name, made if there is none; it is on the disk.

        Raises:
            SubscriptionExistsError: the name belongs to another query.
        """
        with self._lock:
            known = self._durable.get(wanted.key)
            if known is not None:
                if replace(known, lsn=wanted.lsn) != wanted:
                    raise SubscriptionExistsError(
                        f"the subscription {known.name!r} is for another query: {known.sql}",
                        hint=f"use another name, or first: DROP SUBSCRIPTION {known.name}",
                    )
                return known
            self._durable[wanted.key] = wanted
            self._take_hold(wanted)
        try:
            self.write()
        except BaseException:
            with self._lock:
                self._durable.pop(wanted.key, None)
                self._holds.pop(wanted.key).release()
            raise
        return wanted

    def drop(self, key: OwnedName) -> None:
        """Remove a durable subscription; retention may then remove what was kept for it.

        On a full disk that is what frees space, so it does not fail there: it is written later.
        """
        with self._lock:
            self[key]
            del self._durable[key]
            self._holds.pop(key).release()
        try:
            self.write()
        except LogFullError:
            self._dispatcher.post(self._newest, self._written, sync=True)

    def drop_target(self, target: str) -> None:
        """Remove the durable subscriptions of a log that is dropped."""
        for each in self.all():
            if each.target == target:
                self.drop(each.key)

    def acknowledge(self, key: OwnedName, lsn: int) -> None:
        """Save an LSN as acknowledged, if it is a later one; on the disk within milliseconds."""
        with self._lock:
            known = self._durable.get(key)
            # LSN 0 is a part of a snapshot: with only that, a reader starts over.
            if known is None or lsn <= max(known.lsn, 0):
                return
            self._durable[key] = replace(known, lsn=lsn)
            posted, self._is_posted = self._is_posted, True
        if not posted:
            self._dispatcher.post(self._newest, self._written, sync=False)

    def write(self) -> None:
        """Write the state if it changed; it is on the disk when this returns."""
        if self._state() == self._last:
            return
        if self._dispatcher.is_here():
            batches = self._newest()
            self._log.appender.place(batches, sync=True)
            self._written([batch for _, batch in batches])
        else:
            self._dispatcher.commit(self._newest, self._written, sync=True)

    def _newest(self) -> list[tuple[str, ChangeBatch]]:
        """The row to commit, made as late as possible: with all that was acknowledged by then."""
        return [(TOPIC, ChangeBatch(_SCHEMA, [(self._state(),)], None, None))]

    def _state(self) -> str:
        with self._lock:
            self._is_posted = False
            subscriptions = [asdict(each) for each in self._durable.values()]
        return json.dumps({"subscriptions": subscriptions, "watermarks": self._watermarks()})

    def _written(self, placed: list[ChangeBatch]) -> None:
        """Advance the holds, since the state is in the log."""
        lsn = placed[-1].lsn
        self._last = placed[-1].rows[0][0]
        if self._hold is None:
            self._hold = self._log.hold(TOPIC, lsn=lsn)
        self._hold.advance(lsn)
        state = json.loads(self._last)
        for each in state["subscriptions"]:
            hold = self._holds.get((each["tenant"], each["name"]))
            if hold is not None:
                hold.advance(each["lsn"] + 1)
