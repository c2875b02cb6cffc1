"""Cuts over several queries of a server: frames turned back into ``Cut``, and their inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from millstream.client.frames import FrameReader, batch_from, gap_from, schema_from
from millstream.client.inbox import RemoteInbox
from millstream.errors import InvalidOptionError
from millstream.model.cut import Cut
from millstream.model.lsn import ResumeToken

if TYPE_CHECKING:
    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Gap
    from millstream.model.schema import Schema


class CutReader(FrameReader):
    """The frames of a subscription to several queries, across connections.

    A cut is given when its last frame is there: if the connection breaks before that, it comes
    anew, and the reader has seen nothing of the first.

    Attributes:
        schemas: by query, its columns.
        tokens: by LSN, the tokens of the cuts that were not taken, and of the last ones that were.
    """

    def __init__(self, queries: list[str]) -> None:
        super().__init__()
        self.schemas: dict[str, Schema] = {}
        self.tokens: dict[int, str] = {}
        self._queries = queries
        self._rows: list[pa.RecordBatch] = []
        self._lost: Gap | None = None
        self._batches: dict[str, list[ChangeBatch]] = {}

    def connected(self) -> None:
        """Forget what has come in part: the server will begin it anew."""
        self._rows, self._lost, self._batches = [], None, {}

    def ready(self, frame: dict[str, Any]) -> None:
        """Take a ``ready``: the subscription is open."""
        self.schemas = {each["query"]: schema_from(each) for each in frame["queries"]}
        self.schema = next(iter(self.schemas.values()))
        if not self.token:
            self._reached(frame)

    def read(self, frame: dict[str, Any], rows: pa.RecordBatch | None) -> list[ChangeBatch]:
        """The cut that is whole with a further frame, if it is."""
        kind = frame["type"]
        if kind in {"gap", "reset"}:
            self._lost = gap_from(frame if kind == "gap" else frame["gap"])
        elif rows is not None:
            self._rows.append(rows)
            if frame.get("last"):
                self._take_batch(frame)
        elif kind in {"progress", "cut"}:
            self.has_begun = True
            self._reached(frame)
            if kind == "cut":
                return [cast("ChangeBatch", self._cut(frame))]  # in its place, for its reader
        return []

    def _take_batch(self, frame: dict[str, Any]) -> None:
        query = self._queries[frame["query"]]
        rows, self._rows = self._rows, []
        gap, self._lost = self._lost, None
        place = ResumeToken.parse(frame["at"]) if frame["at"] else None
        batch = batch_from(
            frame,
            pa.concat_batches(rows),
            self.schemas[query],
            first_lsn=frame["first_lsn"],
            lsn=frame["until"],
            kind=frame["type"],
            gap=gap,
            origin=None if place is None else (place.database, place.epoch),
        )
        self._batches.setdefault(query, []).append(batch)

    def _cut(self, frame: dict[str, Any]) -> Cut:
        batches, self._batches = self._batches, {}
        by_query = {query: tuple(batches.get(query, ())) for query in self._queries}
        return Cut(frame["lsn"], by_query, frame["kind"], frame["token"])

    def _reached(self, frame: dict[str, Any]) -> None:
        self.token, self.lsn = frame["token"], frame["lsn"]
        self.tokens[self.lsn] = self.token


class RemoteCutInbox(RemoteInbox):
    """The cuts of several queries that have come and were not taken yet."""

    frames: CutReader

    @property
    def schemas(self) -> dict[str, Schema]:
        """By query, the columns that it gives."""
        return self.frames.schemas

    def token(self, lsn: int) -> str:
        """The text to resume after one of the last cuts."""
        found = self.frames.tokens.get(lsn)
        if found is None:
            raise InvalidOptionError(
                f"there is no token at LSN {lsn:,}",
                hint="cut.token is the token of a cut, subscription.token of the last one",
            )
        return found

    def lag(self) -> tuple[int, int | None]:
        """How many rows wait here; since when is not known."""
        return self._rows, None

    def settled_lsn(self) -> int:
        """Everything up to this LSN was taken."""
        return self.progress.position

    def take(self, max_rows: int | None = None, *, merge: int = 0) -> ChangeBatch | None:
        """The next cut; None when there is none at the moment."""
        before = self.progress.position
        cut = super().take(max_rows, merge=merge)
        if cut is not None:
            for lsn in [each for each in self.frames.tokens if each < before]:
                del self.frames.tokens[lsn]
        return cut

    def _lost(self, batch: ChangeBatch) -> int:
        batches = (each for _, each in cast("Cut", batch))
        return sum(each.gap.count or 0 for each in batches if each.gap is not None)
