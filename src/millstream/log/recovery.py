"""Opening what a run left behind: find the end, cut what is torn, report what was cut.

Only the last segment is read, and before it those that the last head does not list as synced, so
the time this takes does not grow with the log.

A torn end and a damaged middle look alike: a frame that is not whole. They differ in what was
acknowledged. Each frame says how far the log was durable when it was written, so if any whole frame
after the damage says that the damaged rows were durable, they were acknowledged: nothing is cut,
the damage is reported, and readers meet it as an error. Otherwise those rows were not acknowledged:
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
from millstream.log.file_set import FileSet, remove_note
from millstream.log.files import SegmentFile
from millstream.log.frame import Kind
from millstream.log.segment import Head, Identity, Seal, SegmentIndex, SegmentRef
from millstream.log.storage import sync_data, sync_directory, write_file
from millstream.log.topics import Epochs, Topic, Topics
from millstream.log.walk import DamageError, find_frame, look_at, walk, whole_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from uuid import UUID

    import pyarrow as pa

    from millstream.log.frame import Frame

    Step = tuple[int, Frame, pa.Buffer | None]

_EVERYTHING = 2**63
_LEFTOVER = re.compile(r"\d{10}-\d{20}\.tmp")


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a segment that cannot be read although its rows were once acknowledged.

    Attributes:
        segment: the name of the file.
        start: its first byte.
        end: the byte after it.
        topic: the topic that it held rows of, empty for a definition; None when that is not known.
    """

    segment: str
    start: int
    end: int
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening a log found and did.

    Attributes:
        clean: the last run closed the log; nothing had to be looked for.
        cut_bytes: how much of the torn end was cut: rows that were never acknowledged as durable.
        cut_segment: in which segment, or empty.
        cut_offset: from which byte on.
        damaged: what is damaged and was left in place.
        lost: segments that are missing, with which the log was opened all the same.
    """

    clean: bool
    cut_bytes: int = 0
    cut_segment: str = ""
    cut_offset: int = 0
    damaged: tuple[Damage, ...] = ()
    lost: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = ["closed cleanly"] if self.clean else ["not closed"]
        if self.cut_bytes:
            parts.append(
                f"cut {self.cut_bytes:,} bytes of an unfinished write from {self.cut_segment} "
                f"at byte {self.cut_offset:,}"
            )
        parts += [f"damage in {d.segment}, bytes {d.start:,} to {d.end:,}" for d in self.damaged]
        parts += [f"segment {ordinal} is lost" for ordinal in self.lost]
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class LogState:
    """A log as far as it is whole: where the next run goes on.

    Attributes:
        segments: oldest first; the last one is to be appended to.
        number: the random number that is the last one's own.
        database: the identity of the database.
        last_time: the time of the last commit, or of something after it.
        seal: what would seal the last segment as it is.
        recovery: how it came to that.
    """

    segments: tuple[SegmentRef, ...]
    number: int
    database: UUID
    last_time: int
    seal: Seal
    recovery: Recovery


def recover(directory: Path, *, repair: bool = False) -> LogState | None:
    """Bring a directory into a state that can be appended to; None when it holds no log yet.

    With ``repair``, a set of files that is wrong is made the best of, see ``file_set``.
    """
    for leftover in directory.glob("*.tmp"):
        if _LEFTOVER.fullmatch(leftover.name):
            leftover.unlink()
    files = FileSet(directory, repair=repair)
    refs = files.refs
    if not refs:
        remove_note(directory)
        return None
    last = SegmentFile(directory, refs[-1])
    if last.trailer is not None and last.trailer.followed:
        return _after_loss(directory, files, last)
    newest = (SegmentFile(directory, ref) for ref in reversed(refs))
    anchor = next(filter(_has_head, newest), None)
    if anchor is not None and anchor.ref == refs[-1]:
        seal = anchor.seal
        if seal is not None and seal.closed:
            files.begins_with(seal.topics.first)
            _truncate(anchor, seal.end)
            return _state(refs, anchor.head, seal, Recovery(True, lost=tuple(sorted(files.lost))))
    synced = 0 if anchor is None else anchor.head.synced
    unsure = [SegmentFile(directory, ref) for ref in refs if ref.ordinal > synced]
    return _repair(directory, files, unsure)


def _has_head(file: SegmentFile) -> bool:
    try:
        return bool(file.head)
    except LogCorruptError:
        return False


def _head_of(file: SegmentFile, before: SegmentFile | None) -> Head:
    """What the first frame of a segment says, or must have said if it is damaged.

    Raises:
        LogCorruptError: nothing says it.
    """
    if _has_head(file):
        return file.head
    identity = file.identity
    if identity is None and before is not None and before.identity is not None:
        # All that its first bytes said is lost with them. Its own number is not known then.
        identity = Identity(before.identity.database, file.ref, 0, before.identity.id)
    if identity is not None and before is not None and before.seal is not None:
        seal = before.seal
        index = seal.index
        return Head(identity, index.last_time, 0, seal.epochs, seal.topics, index.watermarks)
    if identity is not None and file.ref.ordinal == 1:
        return Head(identity, 0, 0, Epochs(), Topics(), {})
    return file.head


def _state(refs: Sequence[SegmentRef], head: Head, seal: Seal, report: Recovery) -> LogState:
    time = max(seal.index.last_time, head.created_at)
    identity = head.identity
    return LogState(tuple(refs), identity.id, identity.database, time, seal, report)


def _after_loss(directory: Path, files: FileSet, last: SegmentFile) -> LogState:
    """Begin a new segment: the ones after the last that is there are known to be lost."""
    scan = _Scan(last, _head_of(last, _before(directory, files.refs, last)), lambda: _EVERYTHING)
    scan.read(until=[])
    end = last.seal or scan.seal()
    files.begins_with(end.topics.first)
    ref = SegmentRef(max(files.lost) + 1, end.index.end_lsn)
    identity = Identity.new(scan.head.identity.database, ref, 0)
    time = max(end.index.last_time, scan.head.created_at)
    marks = end.index.watermarks
    head = Head(identity, time, last.ref.ordinal, end.epochs, end.topics, marks)
    buffers = head.encode()
    write_file(directory / ref.name, buffers)
    size, index = sum(map(len, buffers)), SegmentIndex(ref.base_lsn, marks)
    report = Recovery(False, damaged=tuple(scan.damaged), lost=tuple(sorted(files.lost)))
    return _state([*files.refs, ref], head, Seal.of(index, size, end.epochs, end.topics), report)


def _before(directory: Path, refs: Sequence[SegmentRef], file: SegmentFile) -> SegmentFile | None:
    place = refs.index(file.ref)
    return SegmentFile(directory, refs[place - 1]) if place else None


def _repair(directory: Path, files: FileSet, unsure: list[SegmentFile]) -> LogState:
    """After a crash: check what the disk was not asked to keep yet, cut at the first tear."""
    refs = files.refs
    durable = cache(lambda: max([files.durable_lsn, *map(_durable_lsn, unsure)]))
    scans: list[_Scan] = []
    for place, file in enumerate(unsure):
        before = _before(directory, refs, file)
        if not _has_head(file) and not _was_kept(file, before, durable):
            break  # it was begun, but not on the disk when the power went
        scans.append(_Scan(file, _head_of(file, before), durable))
        if scans[-1].read(until=[later.ref for later in unsure[place + 1 :]]):
            break
    dropped = unsure[len(scans) :]
    if not scans and (before := _before(directory, refs, unsure[0])) is not None:
        head = _head_of(before, _before(directory, refs, before))
        scans.append(_Scan(before, head, durable))
        scans[-1].read(until=[])
    if not scans:
        raise unsure[0].corrupt("its first frame is damaged", 0)
    last = scans[-1]
    files.begins_with(last.seal().topics.first)
    cut = last.torn_bytes + sum(file.size for file in dropped)
    where = (last.file.ref.name, last.end) if cut else ("", 0)
    damaged = tuple(damage for scan in scans for damage in scan.damaged)
    _drop(dropped)
    _truncate(last.file, last.end)
    for scan in scans:
        sync_data(scan.file.fd)  # the next head lists them as synced
    sync_directory(directory)
    kept = [ref for ref in refs if ref <= last.file.ref]
    report = Recovery(False, cut, *where, damaged, tuple(sorted(files.lost)))
    return _state(kept, last.head, last.seal(), report)


def _was_kept(file: SegmentFile, before: SegmentFile | None, durable: Callable[[], int]) -> bool:
    """Whether a segment without a head was on the disk once."""
    if before is None:
        return True
    trailer = before.trailer
    return durable() >= file.ref.base_lsn or (trailer is not None and trailer.followed)


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

    def __init__(self, file: SegmentFile, head: Head, durable: Callable[[], int]) -> None:
        self.file = file
        self.head = head
        self.end = file.start
        self.damaged: list[Damage] = []
        trailer = file.trailer
        self._limit = file.size if trailer is None else trailer.end
        self._is_followed = trailer is not None and trailer.followed
        self._durable = durable
        self._topics, self._epochs = head.topics, head.epochs
        self._index = SegmentIndex(file.ref.base_lsn, head.watermarks)

    @property
    def torn_bytes(self) -> int:
        """How much stands after the last whole commit."""
        return self._limit - self.end

    def seal(self) -> Seal:
        """What would seal the segment if it ended here."""
        return Seal.of(self._index, self.end, self._epochs, self._topics)

    def read(self, until: Sequence[SegmentRef]) -> bool:
        """Read all frames; whether the log ends here, with the segments after it in ``until``."""
        self._read_frames(is_last=not until)
        if self.torn_bytes:
            return True
        # Cut just between two frames, it looks whole; but the next segment says where it ended.
        is_short = bool(until) and self._index.end_lsn < until[0].base_lsn
        if is_short and self._was_kept():
            self._note(self.end, self.end, None)
            return False
        return is_short

    def _was_kept(self) -> bool:
        """Whether what stands after the last whole commit was on the disk once."""
        return self._is_followed or self._durable() >= self._index.end_lsn

    def _read_frames(self, *, is_last: bool) -> None:
        """Stop at a torn end, step over damage that is no torn end."""
        start, end = self.file.start, self._limit
        if not start:  # the head is damaged, and it was there
            start = self.end = self._find(8, is_last=is_last)
            self._note(0, start, 0)
        commit: list[Step] = []
        while start < end:
            try:
                for step in walk(self.file.fd, start, end):
                    commit.append(step)
                    if step[1].ends_commit:
                        self._take(commit)
            except DamageError as damage:
                if not self._was_kept():
                    return
                place = look_at(self.file.fd, damage.offset, end)
                start = place.end
                self._note(damage.offset, start, place.topic)
                self._take(commit)
                self.end = start
            else:
                return

    def _find(self, start: int, *, is_last: bool) -> int:
        """Where the first whole frame is; the end, if there is none.

        Raises:
            LogCorruptError: there is none, and no later segment says which LSNs were in it.
        """
        found = find_frame(self.file.fd, start, self._limit)
        if found is None and is_last:
            raise self.file.corrupt("no whole frame is in it", 0)
        return self._limit if found is None else found

    def _note(self, start: int, end: int, topic: int | None) -> None:
        known = self._topics.by_id.get(topic or 0)
        name = "" if topic == 0 else None if known is None else known.name
        self.damaged.append(Damage(self.file.ref.name, start, end, name))
        self._index.partial = True

    def _take(self, commit: list[Step]) -> None:
        for offset, frame, payload in commit:
            if frame.span:
                self._check_defined(frame, offset)
                self._index.add(frame, offset)
            elif frame.kind == Kind.TOPIC and payload is not None:
                self._topics = self._topics.with_topic(Topic.from_json(_json(payload)))
            elif frame.kind == Kind.EPOCH and payload is not None:
                self._epochs = self._epochs.begin(_json(payload)["epoch"], frame.first_lsn)
            elif frame.kind == Kind.FIRST and payload is not None:
                self._topics = self._topics.with_first(_json(payload)["first"])
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
