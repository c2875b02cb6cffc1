"""Retention: what may go, by age, by size, and by what is still needed; and how it goes.

Topics share segments but not their retention. A topic is first trimmed: its definition says that
rows before some LSN are gone. Then the space is taken back: leading segments that hold nothing
alive are removed, others of which at least half is dead are rewritten without the dead frames.
Rewriting keeps names and LSNs, so it changes nothing for readers; one that has the old file open
reads on in it. A ``Hold`` keeps rows that a reader still needs.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from millstream.errors import LogCorruptError, LogFullError
from millstream.log.frame import NO_TAIL, Encoded, link, tail_of
from millstream.log.segment import SegmentIndex
from millstream.log.storage import sync_directory, translate, write_file
from millstream.log.trims import Trims
from millstream.log.walk import DamageError, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from millstream.log.files import SegmentFile, SegmentFiles, Written
    from millstream.log.segment import Seal
    from millstream.log.topics import Topic
    from millstream.log.writer import DefinitionWriter, LogWriter
    from millstream.model.clock import Clock

_DEAD_SHARE: Final = 0.5
_logger = logging.getLogger("millstream.log")


class Hold:
    """Rows from ``lsn`` on are kept, of some topics, until it moves on or is released.

    A hold lives as long as the process: take it again right after opening.
    """

    def __init__(self, holds: Holds, topics: frozenset[int], lsn: int) -> None:
        self._holds = holds
        self.topics = topics
        self.lsn = lsn

    def advance(self, lsn: int) -> None:
        """Rows before ``lsn`` are no longer needed. Never moves back."""
        self.lsn = max(self.lsn, lsn)

    def release(self) -> None:
        """Nothing is needed any more. Releasing twice is fine."""
        self._holds.drop(self)


class Holds:
    """All holds of a log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[Hold] = set()

    def take(self, topics: Iterable[int], lsn: int) -> Hold:
        """A new hold."""
        hold = Hold(self, frozenset(topics), lsn)
        with self._lock:
            self._all.add(hold)
        return hold

    def drop(self, hold: Hold) -> None:
        """Forget a hold."""
        with self._lock:
            self._all.discard(hold)

    def needed(self, topic: int) -> int | None:
        """The lowest LSN of a topic that is held; None when none is."""
        with self._lock:
            return min((hold.lsn for hold in self._all if topic in hold.topics), default=None)


@dataclass(frozen=True, slots=True)
class Retained:
    """What one round of retention did.

    Attributes:
        trimmed: the topics that lost rows, each with the first LSN that is kept.
        removed: how many segments went.
        rewritten: how many segments shrank.
        freed: how many bytes that gave back.
    """

    trimmed: Mapping[str, int]
    removed: int
    rewritten: int
    freed: int


def low_lsn(
    topic: Topic, sealed: Sequence[SegmentIndex], *, now: int, needed: int | None, newer: int = 0
) -> int:
    """The first LSN of a topic that has to be kept. Pure.

    Args:
        topic: with its retention and what it was trimmed to before.
        sealed: the indexes of the sealed segments, oldest first.
        now: the time, in microseconds since 1970.
        needed: the lowest LSN that is still needed, or None.
        newer: how many bytes of the topic are in segments after them.
    """
    low, limit = topic.low_lsn, topic.retention
    max_age = limit.max_age_micros
    for index in reversed(sealed):
        extent = index.extents.get(topic.id)
        if extent is None or extent.last_lsn < topic.low_lsn:
            continue
        too_old = max_age is not None and index.last_time < now - max_age
        # Segments go as a whole, and at least as much as the limit says stays.
        too_large = limit.max_bytes is not None and newer >= limit.max_bytes
        if too_old or too_large:
            low = max(low, extent.last_lsn + 1)
            break
        newer += extent.size
    return low if needed is None else max(topic.low_lsn, min(low, needed))


def is_dead(topic: Topic | None, last_lsn: int) -> bool:
    """Whether rows of a topic up to an LSN are not kept any more."""
    return topic is None or topic.dropped or last_lsn < topic.low_lsn


def dead_share(index: SegmentIndex, topics: Mapping[int, Topic]) -> float:
    """How much of a segment is dead, from 0 to 1; 1 for a segment without rows. Pure."""
    extents = tuple(index.extents.items())  # one step: that of the last segment grows
    total = sum(extent.size for _, extent in extents)
    dead = sum(
        extent.size
        for topic_id, extent in extents
        if is_dead(topics.get(topic_id), extent.last_lsn)
    )
    return dead / total if total else 1.0


class Collector:
    """Trims topics, and takes back the space of dead frames."""

    def __init__(
        self,
        writer: LogWriter,
        definitions: DefinitionWriter,
        files: SegmentFiles,
        holds: Holds,
        *,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._segments = writer.segments
        self._definitions = definitions
        self._files = files
        self._holds = holds
        self._clock = clock
        self.trims = Trims(files.directory, self._segments.written.topics.by_id)
        self.at_work = threading.Lock()  # one round at a time

    def retain(self) -> Retained:
        """One round: trim the topics, then take the space back."""
        with self.at_work:
            trimmed = self._trim(self._clock())
            collected = self._collect()
            self._forget_topics()
            self._segments.refill_reserve()
            self.trims.save()
            return Retained(trimmed, *collected)

    def _trim(self, now: int) -> dict[str, int]:
        """Trim each topic to what its retention and its readers ask for."""
        self._roll_if_old(now)
        self._roll_if_dead()
        sealed = [file.seal.index for file in self._settled() if file.seal is not None]
        lows = list(self._lows(self._segments.written, sealed, now))
        if lows:
            self.trims.take(lows, self._settled())
        done = {topic.name: self._trim_to(topic.id, low) for topic, low in lows}
        return {name: low for name, low in done.items() if low is not None}

    def _lows(
        self, written: Written, sealed: Sequence[SegmentIndex], now: int
    ) -> Iterator[tuple[Topic, int]]:
        """The topics that have rows to spare, each with the first LSN that has to be kept."""
        for topic in written.topics:
            active = written.index.extents.get(topic.id)
            low = low_lsn(
                topic,
                sealed,
                now=now,
                needed=self._holds.needed(topic.id),
                newer=0 if active is None else active.size,
            )
            if low > topic.low_lsn:
                yield topic, low

    def _trim_to(self, number: int, low: int) -> int | None:
        """Trim a topic, as far as no hold needs its rows; returns up to where, or None."""
        with self._definitions.lock:
            topic = self._segments.written.topics.by_id.get(number)
            needed = self._holds.needed(number)
            if needed is not None:
                low = min(low, needed)
            if topic is None or topic.dropped or low <= topic.low_lsn:
                return None
            total, rows = topic.trimmed_rows, self.trims.rows(topic, topic.low_lsn, low)
            total = None if total is None or rows is None else total + rows
            self._definitions.define(
                replace(topic, low_lsn=low, trimmed_rows=total), makes_room=True
            )
            return low

    def _collect(self) -> tuple[int, int, int]:
        """Remove and rewrite segments: how many of each, and the bytes that gave back."""
        dead = self._leading_dead()
        rewritten, freed = 0, self._remove(dead)
        for file in self._settled():
            if file.seal is None or not file.seal.index.extents:
                continue
            if dead_share(file.seal.index, self._segments.written.topics.by_id) >= _DEAD_SHARE:
                try:
                    freed += self._rewrite(file)
                    rewritten += 1
                except LogFullError as error:  # others may still give space back
                    _logger.warning("retention: %s", error.message)
        return len(dead), rewritten, freed

    def _leading_dead(self) -> list[SegmentFile]:
        """The segments without anything alive, from the front; never beyond a damaged one."""
        dead: list[SegmentFile] = []
        for file in self._settled():
            seal = file.seal
            if seal is None or seal.index.partial:
                break
            if dead and file.ref.ordinal != dead[-1].ref.ordinal + 1:
                break
            if dead_share(seal.index, self._segments.written.topics.by_id) < 1.0:
                break
            dead.append(file)
        return dead

    def _forget_topics(self) -> None:
        """Forget topics that were dropped, once no frame of theirs is left anywhere."""
        dropped = {id_ for id_, t in self._segments.written.topics.by_id.items() if t.dropped}
        if dropped:
            for _, extent in self._files.open_all(self._segments):
                dropped -= set(extent.index.extents) if extent.index is not None else dropped
            self._definitions.forget(dropped)
            self.trims.forget(dropped)

    def _settled(self) -> Iterable[SegmentFile]:
        """The segments that are sealed and on the disk, oldest first; a missing one is left out."""
        for ref in self._segments.settled():
            try:
                yield self._files.open(ref)
            except LogCorruptError as error:
                _logger.warning("retention: %s", error.message)

    def _roll_if_old(self, now: int) -> None:
        """Rows of the segment that is being written cannot go; when they are old, begin another."""
        written = self._segments.written
        limits = (topic.retention.max_age_micros for topic in written.topics)
        ages, first = [age for age in limits if age is not None], written.index.first_time
        if ages and first and first < now - min(ages):
            self._writer.roll()

    def _roll_if_dead(self) -> None:
        """On a full disk, begin another segment when much of the last one is dead."""
        if self._writer.queue.stalled:
            written = self._segments.written
            if dead_share(written.index, written.topics.by_id) >= _DEAD_SHARE:
                self._writer.roll()

    def _remove(self, dead: Sequence[SegmentFile]) -> int:
        """Remove leading segments, oldest first; returns the bytes given back."""
        if not dead:
            return 0
        segments = self._segments.written.segments
        # Said before it is done: a segment that is missing and was to stay was not removed by us.
        self._definitions.keep_from(segments[segments.index(dead[-1].ref) + 1])
        freed = 0
        for file in dead:
            freed += file.size
            self._segments.forget(file.ref)
            self._files.forget(file.ref)
            try:
                file.path.unlink()
                sync_directory(self._files.directory)
            except OSError as error:
                raise translate(error, file.path, "remove") from error
        return freed

    def _rewrite(self, file: SegmentFile) -> int:
        """Replace a segment by one with only its live frames; returns the bytes given back."""
        seal = file.seal
        if seal is None:
            raise AssertionError("only sealed segments are rewritten")
        live = {
            topic_id
            for topic_id, extent in seal.index.extents.items()
            if not is_dead(self._segments.written.topics.by_id.get(topic_id), extent.last_lsn)
        }
        try:
            buffers = _live_buffers(file, seal, live)
        except (DamageError, LogCorruptError):
            return 0  # left as it is, for a repair; its readers meet the damage
        before = file.size
        try:
            write_file(file.path, buffers)
        except OSError as error:
            failed = translate(error, file.path, "rewrite")
            if not (isinstance(failed, LogFullError) and self._rewrite_in_reserve(file, buffers)):
                raise failed from error
        self._files.forget(file.ref)
        return before - sum(map(len, buffers))

    def _rewrite_in_reserve(self, file: SegmentFile, buffers: list[bytes | pa.Buffer]) -> bool:
        """Replace a segment in the space of the reserve; False when its live frames do not fit."""
        try:
            with self._segments.lock, self._segments.reserve.given_back():
                write_file(file.path, buffers)
        except OSError:
            return False
        return True


def _live_buffers(file: SegmentFile, seal: Seal, live: set[int]) -> list[bytes | pa.Buffer]:
    """The bytes of a segment with only the frames of some topics, and the definitions."""
    buffers = file.head.encode()
    offset = sum(map(len, buffers))
    index = SegmentIndex(file.ref.base_lsn, seal.index.watermarks)
    index.partial = seal.index.partial
    before = NO_TAIL
    for _, frame, payload in walk(file.fd, file.start, seal.end, live | {0}):
        if payload is None:
            continue
        if frame.span:
            index.add(frame, offset)
        linked = link([Encoded(frame, payload)], before)
        buffers += linked[0].buffers
        before = tail_of(linked, before)
        offset += frame.size
    index.end_lsn = seal.index.end_lsn
    return buffers + replace(seal, index=index, end=offset).encode()
