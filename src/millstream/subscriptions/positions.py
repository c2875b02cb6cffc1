"""The positions of durable subscriptions, kept in a log of their own: see ``position_rows``.

A hold keeps the rows of that log from the last whole row but one on: if a whole row is damaged, the
changes after the one before it come to the same.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    InvalidOptionError,
    LogFullError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
)
from millstream.log import Retention
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Schema
from millstream.subscriptions.position_rows import PositionsRow, WholeRows, apply

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.dispatch import Dispatcher
    from millstream.log import Hold, Log
    from millstream.subscriptions.position_rows import DurablePosition, OwnedName

TOPIC: Final = "__positions"
_logger = logging.getLogger("millstream.subscriptions")
_SCHEMA: Final = Schema.of(state="VARCHAR NOT NULL")


class Positions:
    """All durable positions of a database.

    Args:
        log: the log, whose topics exist.
        dispatcher: commits them.
    """

    def __init__(self, log: Log, dispatcher: Dispatcher) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._lock = threading.Lock()
        self._is_posted = False
        self._durable: dict[OwnedName, DurablePosition] = {}
        self._holds: dict[OwnedName, Hold] = {}
        # What may differ from what the log has, and what the log has.
        self._changed: set[OwnedName] = set()
        self._stored: dict[OwnedName, DurablePosition] = {}
        self._row = PositionsRow.whole({})  # the row that is being committed
        self._whole = WholeRows()
        if TOPIC not in log.topics:
            log.create_topic(TOPIC, _SCHEMA, retention=Retention(max_age=3600.0))
        self._load()
        self._hold = log.hold(TOPIC, lsn=self._whole.needed_lsn, kept=True)

    def _load(self) -> None:
        last = 0
        for batch in self._log.salvage(TOPIC):
            for place, (text,) in enumerate(batch.held_rows):
                last = batch.first_lsn + place
                is_whole = apply(json.loads(text), self._stored)
                self._whole.add(last, len(text), is_whole=is_whole)
        if self._log.damage(TOPIC) is not None:
            self._whole.demand()
            _logger.warning(
                "%s: positions up to LSN %d are damaged: durable subscriptions may go on where "
                "they were earlier, or be lost if they were made, and back if they were dropped, "
                "just there",
                self._log.path,
                last,
            )
        topics = set(self._log.topics)
        for key, durable in self._stored.items():
            if durable.target in topics:
                self._durable[key] = durable
                self._take_hold(durable)
            else:
                self._changed.add(key)

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
            self._take_hold(wanted)  # raises, if its target was dropped just now
            self._durable[wanted.key] = wanted
            self._changed.add(wanted.key)
        try:
            self._commit()
        except BaseException:
            with self._lock:
                if self._durable.pop(wanted.key, None) is not None:
                    self._holds.pop(wanted.key).release()
            raise
        return wanted

    def drop(self, *keys: OwnedName) -> None:
        """Remove durable subscriptions; retention may then remove what was kept for them.

        On a full disk that is what frees space, so it does not fail there: it is written later.
        """
        with self._lock:
            for key in keys:
                self[key]
            self._remove(keys)
        self._commit_removal()

    def drop_target(self, target: str) -> None:
        """Remove the durable subscriptions of a log that is dropped."""
        with self._lock:
            keys = [key for key, each in self._durable.items() if each.target == target]
            self._remove(keys)
        if keys:
            self._commit_removal()

    def _remove(self, keys: Iterable[OwnedName]) -> None:
        for key in keys:
            del self._durable[key]
            self._changed.add(key)
            self._holds.pop(key).release()

    def _commit_removal(self) -> None:
        try:
            self._commit()
        except LogFullError:
            self._dispatcher.post(self._newest, self._written, sync=True)

    def acknowledge(self, key: OwnedName, lsn: int) -> None:
        """Save an LSN as acknowledged, if it is a later one; on the disk within milliseconds."""
        with self._lock:
            known = self._durable.get(key)
            # LSN 0 is a part of a snapshot: with only that, a reader starts over.
            if known is None or lsn <= max(known.lsn, 0):
                return
            self._durable[key] = replace(known, lsn=lsn)
            self._changed.add(key)
            posted, self._is_posted = self._is_posted, True
        if not posted:
            self._dispatcher.post(self._newest, self._written, sync=False)

    def write(self) -> None:
        """Write what changed, if anything did; it is on the disk when this returns."""
        with self._lock:
            has_changed = bool(self._changed)
        if has_changed:
            self._commit()

    def _commit(self) -> None:
        """Write what changed; it is on the disk when this returns."""
        if self._dispatcher.is_here():
            batches = self._newest()
            self._log.appender.place(batches, sync=True)
            self._written([batch for _, batch in batches])
        else:
            self._dispatcher.commit(self._newest, self._written, sync=True)

    # ---- rows of the log; by the thread that commits, one at a time

    def _newest(self) -> list[tuple[str, ChangeBatch]]:
        """The rows to commit, made as late as possible: with all that was acknowledged by then."""
        with self._lock:
            self._is_posted = False
            changed = {key: self._durable.get(key) for key in self._changed}
            row = PositionsRow.of_changes(changed, self._stored)
            if self._whole.is_due(len(row.text)):
                row = PositionsRow.whole(self._durable)
            self._row = row
        # What is made or dropped is not said again until the next whole row: one damaged frame must
        # not take it.
        copies = 2 if row.is_structural else 1
        return [(TOPIC, ChangeBatch(_SCHEMA, [(row.text,)], None, None)) for _ in range(copies)]

    def _written(self, placed: list[ChangeBatch]) -> None:
        """Advance the holds, since the row is in the log."""
        row = self._row
        with self._lock:
            written = row.positions
            if row.is_whole:
                written = {**dict.fromkeys(self._stored), **written}
            for key, durable in written.items():
                if durable is None:
                    self._stored.pop(key, None)
                else:
                    self._stored[key] = durable
                if self._durable.get(key) is durable:
                    self._changed.discard(key)
                hold = self._holds.get(key)
                if hold is not None and durable is not None:
                    hold.advance(durable.lsn + 1)
        for batch in placed:
            self._whole.add(batch.lsn, len(row.text), is_whole=row.is_whole)
        self._hold.advance(self._whole.needed_lsn)
