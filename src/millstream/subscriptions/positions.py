"""Positions: how far durable subscriptions have come, and watermarks, kept in a log of their own.

Every row of that log is the whole state, so the last one is all that is ever needed; a hold keeps
it from retention, which may have the others.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from millstream.dispatch import Commit
from millstream.errors import LogFullError, SubscriptionExistsError, SubscriptionNotFoundError
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


@dataclass(frozen=True, slots=True)
class DurablePosition:
    """A durable subscription.

    Attributes:
        name: its name.
        sql: its query.
        target: the log that it reads.
        tenant: whose rows it is given; None for all.
        lsn: it is done with everything up to here.
    """

    name: str
    sql: str
    target: str
    tenant: str | None
    lsn: int


class Positions:
    """All durable positions of a database.

    Args:
        log: the log, whose topics exist.
        dispatcher: who commits.
        watermarks: asked for the watermark of each source whenever the state is written.
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
        self._durable: dict[str, DurablePosition] = {}
        self._holds: dict[str, Hold] = {}
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
                self._durable[durable.name] = durable
                self._take_hold(durable)

    def _take_hold(self, durable: DurablePosition) -> None:
        low = self._log.topic(durable.target).low_lsn
        self._holds[durable.name] = self._log.hold(durable.target, lsn=max(durable.lsn + 1, low))

    # ---- what there is

    def __contains__(self, name: str) -> bool:
        return name in self._durable

    def __getitem__(self, name: str) -> DurablePosition:
        found = self._durable.get(name)
        if found is None:
            raise SubscriptionNotFoundError(
                f"there is no durable subscription {name!r}",
                hint=f"available: {', '.join(sorted(self._durable)) or 'none'}",
            )
        return found

    def all(self) -> list[DurablePosition]:
        """All durable subscriptions, by name."""
        return sorted(self._durable.values(), key=lambda each: each.name)

    # ---- what changes

    def open(self, wanted: DurablePosition) -> DurablePosition:
        """The durable subscription of that name, made if there is none; it is on the disk.

        Raises:
            SubscriptionExistsError: the name belongs to another query.
        """
        with self._lock:
            known = self._durable.get(wanted.name)
            if known is not None:
                if replace(known, lsn=wanted.lsn) != wanted:
                    other = f": {known.sql}" if known.tenant == wanted.tenant else ""
                    raise SubscriptionExistsError(
                        f"the subscription {known.name!r} is for another query{other}",
                        hint=f"use another name, or first: DROP SUBSCRIPTION {known.name}",
                    )
                return known
            self._durable[wanted.name] = wanted
            self._take_hold(wanted)
        try:
            self.write()
        except BaseException:
            with self._lock:
                self._durable.pop(wanted.name, None)
                self._holds.pop(wanted.name).release()
            raise
        return wanted

    def drop(self, name: str) -> None:
        """Forget a durable subscription; what was kept for it may go.

        On a full disk that is what makes room, so it does not fail there: it is written later.
        """
        with self._lock:
            self[name]
            del self._durable[name]
            self._holds.pop(name).release()
        try:
            self.write()
        except LogFullError:
            self._dispatcher.post(self._commit(sync=True))

    def drop_target(self, target: str) -> None:
        """Forget those that read a log that is dropped."""
        for each in self.all():
            if each.target == target:
                self.drop(each.name)

    def acknowledge(self, name: str, lsn: int) -> None:
        """A subscription is done with everything up to an LSN; on the disk within milliseconds."""
        with self._lock:
            known = self._durable.get(name)
            # 0 is a part of a state: who has only that begins anew.
            if known is None or lsn <= max(known.lsn, 0):
                return
            self._durable[name] = replace(known, lsn=lsn)
            posted, self._is_posted = self._is_posted, True
        if not posted:
            self._dispatcher.post(self._commit(sync=False))

    def write(self) -> None:
        """Write the state if it changed; it is on the disk when this returns."""
        if self._state() == self._last:
            return
        if self._dispatcher.is_here():
            batch = self._batch()
            self._log.appender.place([(TOPIC, batch)], sync=True)
            self._written([batch])
        else:
            self._dispatcher.commit(self._commit(sync=True))

    def _commit(self, *, sync: bool) -> Commit:
        # Made at the last moment, so that one row tells of all that was acknowledged by then.
        return Commit(lambda: [(TOPIC, self._batch())], self._written, sync=sync)

    def _batch(self) -> ChangeBatch:
        return ChangeBatch(_SCHEMA, [(self._state(),)], None, None)

    def _state(self) -> str:
        with self._lock:
            self._is_posted = False
            subscriptions = [asdict(each) for each in self._durable.values()]
        return json.dumps({"subscriptions": subscriptions, "watermarks": self._watermarks()})

    def _written(self, placed: list[ChangeBatch]) -> None:
        """The state is in the log: what was only needed before may go."""
        lsn = placed[-1].lsn
        self._last = placed[-1].rows[0][0]
        if self._hold is None:
            self._hold = self._log.hold(TOPIC, lsn=lsn)
        self._hold.advance(lsn)
        state = json.loads(self._last)
        for each in state["subscriptions"]:
            hold = self._holds.get(each["name"])
            if hold is not None:
                hold.advance(each["lsn"] + 1)
