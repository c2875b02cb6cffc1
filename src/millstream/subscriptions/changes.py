"""The change bus: every committed mutation as an event, in LSN order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from millstream.errors import InvalidOptionError
from millstream.model.arguments import check_text
from millstream.model.clock import to_datetime
from millstream.model.display import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Change, Gap
    from millstream.model.schema import Schema

EventOp = Literal["insert", "update", "delete", "gap"]
Include = Literal["keys", "after", "both", "changed"]
_INCLUDES = ("keys", "after", "both", "changed")


@dataclass(frozen=True, slots=True, repr=False)
class ChangeEvent:
    """One mutation; or, of the op ``"gap"``, mutations that this reader was not given.

    Attributes:
        lsn: its place in the order of the database; of a gap, where it ends.
        collection: the source, table or view that it changed; of a gap that may be of several,
            empty.
        op: ``"insert"``, ``"update"``, ``"delete"`` or ``"gap"``.
        key: the primary key, from column to value; None where there is none.
        timestamp: when it was committed; of a gap, what it was reported with.
        tenant: the tenant of the row; None where the collection has no tenant column.
        before: the row before an update or delete, if included.
        after: the row after an insert or update, if included.
        changed: what an update has changed, if included: from column to new value.
        gap: of a gap, the range of LSNs and the number of rows; an update counts two.
    """

    lsn: int
    collection: str
    op: EventOp
    key: dict[str, Any] | None
    timestamp: datetime
    tenant: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    changed: dict[str, Any] | None = None
    gap: Gap | None = None

    def __repr__(self) -> str:
        shown = [
            one_line(f", {name}={value!r}")
            for name in ("key", "tenant", "before", "after", "changed", "gap")
            if (value := getattr(self, name)) is not None
        ]
        place = f"{self.collection} at LSN {self.lsn}"
        return f"<ChangeEvent {self.op} {place}{''.join(shown)}, {self.timestamp.isoformat()}>"


class EventMaker:
    """Converts batches to events.

    Args:
        tenant_of: gives the tenant column of a collection, or None.
        fields: the columns to include; None for all.
        include: ``"keys"``: no values; ``"after"``, ``"both"``: the rows; ``"changed"``: what an
            update has changed, and the whole row of an insert or delete.
        collection: where the batches come from; empty: several.
    """

    def __init__(
        self,
        tenant_of: Callable[[str], str | None],
        fields: Sequence[str] | None = None,
        include: Include = "keys",
        collection: str = "",
    ) -> None:
        if include not in _INCLUDES:
            raise InvalidOptionError(
                f"include is {include!r}", hint=f"one of {', '.join(_INCLUDES)}"
            )
        if isinstance(fields, str):
            raise InvalidOptionError(f"fields is {fields!r}", hint=f"a list: [{fields!r}]")
        if fields is not None:
            fields = _names(fields)
        self._tenant_of = tenant_of
        self._fields = None if fields is None else frozenset(fields)
        self._include = include
        self._collection = collection

    def __call__(self, batch: ChangeBatch) -> Iterator[ChangeEvent]:
        """The events of a batch, in order; before them, an event for its gap."""
        if batch.gap is not None:
            yield gap_event(batch.gap, self._collection, to_datetime(batch.committed_at))
        if not len(batch):
            return
        tenant = self._tenant_of(batch.topic)
        time, timestamp = batch.committed_at, to_datetime(batch.committed_at)
        for change in batch:
            if batch.commit_time(change.lsn) != time:
                time = batch.commit_time(change.lsn)
                timestamp = to_datetime(time)
            before, after, changed = self._images(change)
            yield ChangeEvent(
                lsn=change.lsn,
                collection=batch.topic,
                op=change.op,
                key=_key(change, batch.schema),
                timestamp=timestamp,
                tenant=None if tenant is None else change[tenant],
                before=before,
                after=after,
                changed=changed,
            )

    def _images(
        self, change: Change
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
        if self._include == "keys":
            return None, None, None
        after = None if change.op == "delete" else self._included(change.schema, change.row)
        before = None if change.before is None else self._included(change.schema, change.before)
        if self._include == "after":
            return None, after, None
        if self._include == "both":
            return before, after, None
        if before is None or after is None:
            return before, after, None
        return None, None, {n: v for n, v in after.items() if before[n] != v}

    def _included(self, schema: Schema, row: tuple[Any, ...]) -> dict[str, Any]:
        pairs = zip(schema.names, row, strict=True)
        return {n: v for n, v in pairs if self._fields is None or n in self._fields}


def gap_event(gap: Gap, collection: str, timestamp: datetime) -> ChangeEvent:
    """The event that reports a gap."""
    return ChangeEvent(gap.last_lsn, collection, "gap", None, timestamp, gap=gap)


def _names(fields: Sequence[str]) -> list[str]:
    try:
        names = list(fields)
    except TypeError as error:
        raise InvalidOptionError(f"fields is {fields!r}", hint="a list of columns") from error
    for name in names:
        check_text(name, "a column in fields")
    return names


def _key(change: Change, schema: Schema) -> dict[str, Any] | None:
    return {name: change[name] for name in schema.key} if schema.key else None
