"""Opening what a run left behind: find the end, cut what is torn, tell what was cut.

Only the last segment is read, and before it those that the last head does not vouch for, so the
time this takes does not grow with the log.

A torn end and a damaged middle look alike: a frame that is not whole. They differ in what was
promised. Each frame says how far the log was durable when it was written, so if any whole frame
after the damage says that the damaged rows were durable, they were acknowledged: nothing is cut,
the damage is reported, and readers meet it as an error. Otherwise nobody was promised those rows:
the end is torn, and is cut back to the last whole commit.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from millstream.errors import LogCorruptError
from millstream.log.frame import Kind
from millstream.log.index import SegmentIndex
from millstream.log.segment import Seal, SegmentFile, SegmentRef, list_segments
from millstream.log.storage import sync_data, sync_directory
from millstream.log.topics import Topic
from millstream.log.walk import DamageError, find_frame, walk, whole_frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from uuid import UUID

    import pyarrow as pa

    from millstream.log.frame import Frame

    Step = tuple[int, Frame, pa.Buffer | None]


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a segment that cannot be read although its rows were once acknowledged."""

    segment: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening a log found and did.

    Attributes:
        clean: the last run closed the log; nothing had to be looked for.
        cut_bytes: how much of the torn end was cut: rows that were never acknowledged as durable.
        cut_segment: in which segment, or empty.
        cut_offset: from which byte on.
        damaged: what is damaged and was left in place.
    """

    clean: bool
    cut_bytes: int = 0
    cut_segment: str = ""
    cut_offset: int = 0
    damaged: tuple[Damage, ...] = ()

    def __str__(self) -> str:
        parts = ["closed cleanly"] if self.clean else ["not closed"]
        if self.cut_bytes:
            parts.append(
                f"cut {self.cut_bytes:,} bytes of an unfinished write from {self.cut_segment} "
                f"at byte {self.cut_offset:,}"
            )
        parts += [f"damage in {d.segment}, bytes {d.start:,} to {d.end:,}" for d in self.damaged]
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class State:
    """A log as far as it is whole: where the next run goes on."""

    segments: tuple[SegmentRef, ...]
    database: UUID
    seal: Seal
    recovery: Recovery


def recover(directory: Path) -> State | None:
    """Bring a directory into a state that can be appended to; None when it holds no log yet."""
    for leftover in directory.glob("*.tmp"):
        leftover.unlink()
    segments = list_segments(directory)
    if not segments:
        return None
    torn = _set_aside_torn_heads(directory, segments)
    last = SegmentFile(directory, segments[-1])
    database = last.head.database  # refuses what a newer Millstream wrote, before anything changes
    if torn or last.seal is None:
        return _repair(directory, segments, last, torn)
    _cut(directory, last, last.seal.end, [])
    return State(tuple(segments), database, last.seal, Recovery(clean=True))


def _set_aside_torn_heads(directory: Path, segments: list[SegmentRef]) -> int:
    """Take off last segments that were begun, but not on the disk when the power went; their bytes.

    Only when there is no whole row in them: else they are damaged in some other way, and it is not
    ours to say that nobody needs them. Renamed, not removed, for the same reason.
    """
    torn = 0
    while len(segments) > 1:
        file = SegmentFile(directory, segments[-1])
        try:
            file.head  # noqa: B018 - to see whether it can be read
        except LogCorruptError:
            if any(frame.span for _, frame, _ in whole_frames(file.fd, 0, file.size)):
                raise
            file.path.rename(file.path.with_suffix(".torn"))
            torn += file.size
            segments.pop()
        else:
            break
    return torn


def _repair(directory: Path, segments: list[SegmentRef], last: SegmentFile, torn: int) -> State:
    """After a crash: check what the disk was not asked to keep yet, cut at the first tear."""
    unsure = [SegmentFile(directory, r) for r in segments if r.ordinal > last.head.synced]
    promised = cache(lambda: max(map(_durable_lsn, unsure)))
    damaged: list[Damage] = []
    for place, file in enumerate(unsure):
        end = file.size if file.seal is None else file.seal.end
        scan = _Scan(file, promised)
        scan.read(end)
        damaged += scan.damaged
        later = unsure[place + 1 :]
        if not later or file.seal is None or scan.end < end:
            cut = end - scan.end + sum(f.size for f in later) + torn
            where = (file.ref.name, scan.end) if cut else ("", 0)
            _cut(directory, file, scan.end, [f.ref for f in later])
            kept = tuple(segments[: len(segments) - len(later)])
            report = Recovery(False, cut, *where, tuple(damaged))
            return State(kept, last.head.database, scan.seal(), report)
    raise AssertionError("the last segment ends the loop")


def _cut(directory: Path, file: SegmentFile, end: int, later: list[SegmentRef]) -> None:
    for ref in reversed(later):
        (directory / ref.name).unlink()
    if later:
        sync_directory(directory)
    fd = os.open(file.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, end)
        sync_data(fd)
    finally:
        os.close(fd)


def _durable_lsn(file: SegmentFile) -> int:
    """The newest LSN that any whole frame of a segment knows to have been durable."""
    steps = whole_frames(file.fd, file.start, file.size)
    return max((frame.durable_lsn for _, frame, _ in steps), default=0)


class _Scan:
    """One pass over a segment: what holds at the end of its last whole commit."""

    def __init__(self, file: SegmentFile, promised: Callable[[], int]) -> None:
        self._file = file
        self._promised = promised
        self._topics, self._epochs = file.head.topics, file.head.epochs
        self._index = SegmentIndex(file.ref.base_lsn)
        self.end = file.start
        self.damaged: list[Damage] = []

    def seal(self) -> Seal:
        """What would seal the segment if it ended here."""
        return Seal(self._index, self.end, self._epochs, self._topics)

    def read(self, end: int) -> None:
        """Read all frames; stop at a torn end, step over damage that is no torn end."""
        start = self._file.start
        commit: list[Step] = []
        while start < end:
            try:
                for step in walk(self._file.fd, start, end):
                    commit.append(step)
                    if step[1].ends_commit:
                        self._take(commit)
            except DamageError as damage:
                if self._promised() < self._index.end_lsn:
                    return
                start = find_frame(self._file.fd, damage.offset + 8, end) or end
                self.damaged.append(Damage(self._file.ref.name, damage.offset, start))
                self._take(commit)
                self.end = start
            else:
                return

    def _take(self, commit: list[Step]) -> None:
        for offset, frame, payload in commit:
            if frame.span:
                self._check_defined(frame, offset)
                self._index.add(frame, offset)
            elif frame.kind == Kind.TOPIC and payload is not None:
                self._topics = self._topics.with_topic(Topic.from_json(_json(payload)))
            elif frame.kind == Kind.EPOCH and payload is not None:
                self._epochs = self._epochs.begin(_json(payload)["epoch"], frame.first_lsn)
            self.end = offset + frame.size
        commit.clear()

    def _check_defined(self, frame: Frame, offset: int) -> None:
        """Rows whose definition is damaged mean nothing, and their topic must not be made anew."""
        topic = self._topics.by_id.get(frame.topic)
        if topic is None or frame.version > topic.version:
            what = f"the definition of topic number {frame.topic} before it is damaged"
            raise self._file.corrupt(what, offset)


def _json(payload: pa.Buffer) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(payload.to_pybytes())
    return data
