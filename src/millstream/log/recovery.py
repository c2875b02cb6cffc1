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
import re
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
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from uuid import UUID

    import pyarrow as pa

    from millstream.log.frame import Frame

    Step = tuple[int, Frame, pa.Buffer | None]

_LEFTOVER = re.compile(r"\d{10}-\d{20}\.tmp")


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
    last_time: int
    seal: Seal
    recovery: Recovery


def recover(directory: Path) -> State | None:
    """Bring a directory into a state that can be appended to; None when it holds no log yet."""
    for leftover in directory.glob("*.tmp"):
        if _LEFTOVER.fullmatch(leftover.name):
            leftover.unlink()
    refs = list_segments(directory)
    if not refs:
        return None
    files = (SegmentFile(directory, ref) for ref in reversed(refs))
    anchor = next(filter(_has_head, files), None) or SegmentFile(directory, refs[-1])
    vouched, seal = anchor.head.synced, anchor.seal
    if anchor.ref == refs[-1] and seal is not None and seal.closed:
        _truncate(anchor, seal.end)
        return _state(refs, anchor, seal, Recovery(clean=True))
    unsure = [SegmentFile(directory, ref) for ref in refs if ref.ordinal > vouched]
    return _repair(directory, refs, unsure)


def _has_head(file: SegmentFile) -> bool:
    try:
        return bool(file.head)
    except LogCorruptError:
        return False


def _state(refs: Sequence[SegmentRef], last: SegmentFile, seal: Seal, report: Recovery) -> State:
    time = max(seal.index.last_time, last.head.created_at)
    return State(tuple(refs), last.head.database, time, seal, report)


def _repair(directory: Path, refs: list[SegmentRef], unsure: list[SegmentFile]) -> State:
    """After a crash: check what the disk was not asked to keep yet, cut at the first tear."""
    promised = cache(lambda: max(map(_durable_lsn, unsure)))
    scans: list[_Scan] = []
    for place, file in enumerate(unsure):
        if not _has_head(file) and promised() < file.ref.base_lsn:
            break  # it was begun, but not on the disk when the power went
        scans.append(_Scan(file, promised))
        if scans[-1].read(until=[later.ref for later in unsure[place + 1 :]]):
            break
    dropped = unsure[len(scans) :]
    before = [ref for ref in refs if ref < unsure[0].ref]
    if not scans and before:
        scans.append(_Scan(SegmentFile(directory, before[-1]), promised))
        scans[-1].read(until=[])
    if not scans:
        raise unsure[0].corrupt("its first frame is damaged", 0)
    last = scans[-1]
    cut = last.torn_bytes + sum(file.size for file in dropped)
    where = (last.file.ref.name, last.end) if cut else ("", 0)
    damaged = tuple(damage for scan in scans for damage in scan.damaged)
    _drop(dropped)
    _truncate(last.file, last.end)
    for scan in scans:
        sync_data(scan.file.fd)  # from now on we vouch for them
    sync_directory(directory)
    kept = [ref for ref in refs if ref <= last.file.ref]
    return _state(kept, last.file, last.seal(), Recovery(False, cut, *where, damaged))


def _drop(files: Sequence[SegmentFile]) -> None:
    """Remove segments after the torn end; one without a head is set aside instead, for a look."""
    for file in reversed(files):
        if _has_head(file):
            file.path.unlink()
        else:
            file.path.rename(file.path.with_suffix(".torn"))


def _truncate(file: SegmentFile, end: int) -> None:
    fd = os.open(file.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, end)
        sync_data(fd)
    finally:
        os.close(fd)


def _durable_lsn(file: SegmentFile) -> int:
    """The newest LSN that any whole frame of a segment knows to have been durable."""
    steps = whole_frames(file.fd, 0, file.size)
    return max((frame.durable_lsn for _, frame, _ in steps), default=0)


class _Scan:
    """One pass over a segment: what holds at the end of its last whole commit."""

    def __init__(self, file: SegmentFile, promised: Callable[[], int]) -> None:
        self.file = file
        self.end = file.start
        self.damaged: list[Damage] = []
        self._limit = file.size if file.seal is None else file.seal.end
        self._promised = promised
        self._topics, self._epochs = file.head.topics, file.head.epochs
        self._index = SegmentIndex(file.ref.base_lsn)

    @property
    def torn_bytes(self) -> int:
        """How much stands after the last whole commit."""
        return self._limit - self.end

    def seal(self) -> Seal:
        """What would seal the segment if it ended here."""
        return Seal.of(self._index, self.end, self._epochs, self._topics)

    def read(self, until: Sequence[SegmentRef]) -> bool:
        """Read all frames; whether the log ends here, with the segments after it in ``until``."""
        self._read_frames()
        if self.torn_bytes:
            return True
        # Cut just between two frames, it looks whole; but the next segment says where it ended.
        is_short = bool(until) and self._index.end_lsn < until[0].base_lsn
        if is_short and self._promised() >= self._index.end_lsn:
            self.damaged.append(Damage(self.file.ref.name, self.end, self.end))
            return False
        return is_short

    def _read_frames(self) -> None:
        """Stop at a torn end, step over damage that is no torn end."""
        start, end = self.file.start, self._limit
        commit: list[Step] = []
        while start < end:
            try:
                for step in walk(self.file.fd, start, end):
                    commit.append(step)
                    if step[1].ends_commit:
                        self._take(commit)
            except DamageError as damage:
                if self._promised() < self._index.end_lsn:
                    return
                start = find_frame(self.file.fd, damage.offset + 8, end) or end
                self.damaged.append(Damage(self.file.ref.name, damage.offset, start))
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
            raise self.file.corrupt(what, offset)


def _json(payload: pa.Buffer) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(payload.to_pybytes())
    return data
