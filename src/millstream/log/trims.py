"""What retention has taken: how many rows of each topic, and at which LSNs.

A reader that comes too late for some rows is given their number instead. The LSNs of a topic's rows
are runs of neighbours; those of the rows that were trimmed are kept, the newest ``MOST_RUNS`` of
each topic, in a file beside the segments. Without it nothing is wrong but that some numbers are not
known: that of all rows that were ever trimmed is in the topic's definition.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.log.frame import Kind
from millstream.log.storage import translate, write_file
from millstream.log.topics import encode_json
from millstream.log.walk import whole_frames
from millstream.model.change import Gap
from millstream.model.lsn import FIRST_LSN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from millstream.log.files import SegmentFile
    from millstream.log.topics import Topic

MOST_RUNS: Final = 1 << 16
_MOST_TIMES: Final = 1 << 10
_NAME: Final = "trims.json"
_NONE: Final = np.zeros(0, np.int64)

_logger = logging.getLogger("millstream.log")


@dataclass(slots=True)
class Taken:
    """Rows of one topic in one segment: runs of LSNs, and the time of the last commit."""

    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    time: int = 0

    def add(self, first: int, last: int, time: int) -> None:
        """The rows of one more frame."""
        self.time = time
        if self.lasts and self.lasts[-1] + 1 == first:
            self.lasts[-1] = last
        else:
            self.firsts.append(first)
            self.lasts.append(last)


class Trimmed:
    """What was taken of one topic. Pure.

    Attributes:
        since: of rows from here on it is known where they were.
        until: up to here, not inclusive, rows were taken, or are about to be.
    """

    def __init__(self, since: int, until: int) -> None:
        self.since = since
        self.until = until
        self._firsts: NDArray[np.int64] = _NONE
        self._lasts: NDArray[np.int64] = _NONE
        self._times: list[tuple[int, int]] = []  # the last time in a segment, its first LSN

    def add(self, parts: Iterable[Taken], until: int) -> None:
        """More was taken; ``until`` is the first LSN that is kept."""
        self._forget_oldest()  # now: what is added may be counted as a whole once
        firsts, lasts = [self._firsts], [self._lasts]
        for part in parts:
            firsts.append(np.array(part.firsts, np.int64))
            lasts.append(np.array(part.lasts, np.int64))
            self._times.append((part.time, part.firsts[0]))
        self._firsts, self._lasts = _merged(np.concatenate(firsts), np.concatenate(lasts))
        self.until = max(self.until, until)

    def _forget_oldest(self) -> None:
        if len(self._firsts) > MOST_RUNS:
            self._firsts, self._lasts = self._firsts[-MOST_RUNS:], self._lasts[-MOST_RUNS:]
            self.since = int(self._firsts[0])
        del self._times[:-_MOST_TIMES]

    def cut(self, low: int) -> None:
        """Only what is before an LSN was taken after all."""
        kept = self._firsts < low
        self._firsts, self._lasts = self._firsts[kept], np.minimum(self._lasts[kept], low - 1)
        self._times = [each for each in self._times if each[1] < low]
        self.until = min(self.until, low)

    def rows(self, first: int, low: int) -> int | None:
        """How many rows were between two LSNs, the second not included; None: not known."""
        if first < self.since or low > self.until:
            return None
        begins = np.maximum(self._firsts, first)
        ends = np.minimum(self._lasts, low - 1)
        return int(np.maximum(ends - begins + 1, 0).sum())

    def first_since(self, time: int) -> int | None:
        """The first LSN that may have been committed at a time or later; None: none was."""
        return next((lsn for last, lsn in self._times if last >= time), None)

    def to_json(self) -> dict[str, Any]:
        """All of it; runs as distances."""
        bounds = np.column_stack((self._firsts, self._lasts)).ravel()
        runs = np.diff(bounds, prepend=0).tolist()
        return {"since": self.since, "until": self.until, "runs": runs, "times": self._times}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trimmed:
        """What ``to_json`` described."""
        made = cls(data["since"], data["until"])
        bounds = np.cumsum(np.array(data["runs"], np.int64)).reshape(-1, 2)
        made._firsts, made._lasts = bounds[:, 0], bounds[:, 1]
        made._times = [(last, lsn) for last, lsn in data["times"]]
        made._forget_oldest()
        return made


class Trims:
    """What was taken of each topic of a log.

    Args:
        directory: where the file is.
        topics: the topics when the log was opened, by number.
    """

    def __init__(self, directory: Path, topics: Mapping[int, Topic]) -> None:
        self._path = directory / _NAME
        self._lock = threading.Lock()
        self._topics: dict[int, Trimmed] = _load(self._path, topics)
        self._is_saved = True

    def rows(self, topic: Topic, first: int, low: int) -> int | None:
        """How many rows between two LSNs, the second not included, retention takes."""
        with self._lock:
            found = self._topics.get(topic.id)
            return None if found is None else found.rows(max(first, FIRST_LSN), low)

    def lost(self, topic: Topic, first: int) -> Gap | None:
        """What retention has taken of a topic from an LSN on; None: nothing."""
        if topic.low_lsn <= first:
            return None
        count = topic.trimmed_rows if first <= FIRST_LSN else self.rows(topic, first, topic.low_lsn)
        return Gap(max(first, FIRST_LSN), topic.low_lsn - 1, count) if count != 0 else None

    def first_since(self, topic: Topic, time: int) -> int | None:
        """From where on rows were taken that may have been committed at a time or later."""
        with self._lock:
            found = self._topics.get(topic.id)
            return None if found is None else found.first_since(time)

    def take(self, lows: Sequence[tuple[Topic, int]], files: Iterable[SegmentFile]) -> None:
        """Note what is about to be taken: of each topic, the rows before an LSN.

        It is on the disk when this returns, unless there is no room for it.
        """
        with self._lock:
            wanted: dict[int, tuple[int, int]] = {}
            for topic, low in lows:
                since = max(topic.low_lsn, FIRST_LSN)
                noted = self._topics.setdefault(topic.id, Trimmed(since, since))
                wanted[topic.id] = (noted.until, low)
        parts = {topic: list[Taken]() for topic in wanted}
        for file in files:
            for number, taken in _taken(file, wanted).items():
                parts[number].append(taken)
        with self._lock:
            for topic, low in lows:
                self._topics[topic.id].add(parts[topic.id], low)
            self._is_saved = False
        self.save()

    def forget(self, topics: Iterable[int]) -> None:
        """Topics were dropped."""
        with self._lock:
            for topic in topics:
                self._topics.pop(topic, None)

    def save(self) -> None:
        """Write the file if there is news; on a full disk it is tried again when there is room."""
        if self._is_saved:
            return
        with self._lock:
            data = {str(topic): each.to_json() for topic, each in self._topics.items()}
        try:
            write_file(self._path, [encode_json(data)])
        except OSError as error:
            _logger.warning("retention: %s", translate(error, self._path, "write").message)
        else:
            self._is_saved = True


def _load(path: Path, topics: Mapping[int, Topic]) -> dict[int, Trimmed]:
    """The file as far as it fits the topics; what cannot be read is not known."""
    try:
        data: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        found = {int(number): Trimmed.from_json(each) for number, each in data.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        _logger.warning("%s cannot be read: %s", path, error)
        found = {}
    kept: dict[int, Trimmed] = {}
    for number, topic in topics.items():
        known = found.get(number)
        if known is None or known.until < topic.low_lsn:
            known = Trimmed(max(topic.low_lsn, FIRST_LSN), max(topic.low_lsn, FIRST_LSN))
        known.cut(max(topic.low_lsn, FIRST_LSN))
        kept[number] = known
    return kept


def _taken(file: SegmentFile, wanted: Mapping[int, tuple[int, int]]) -> dict[int, Taken]:
    """Of each topic, what a segment has of its rows between two LSNs."""
    seal = file.seal
    if seal is None or not any(
        extent.last_lsn >= wanted[topic][0] and extent.first_lsn < wanted[topic][1]
        for topic, extent in seal.index.extents.items()
        if topic in wanted
    ):
        return {}
    found: defaultdict[int, Taken] = defaultdict(Taken)
    for _, frame, _ in whole_frames(file.fd, file.start, seal.end):
        since, low = wanted.get(frame.topic, (0, 0))
        first, last = max(frame.first_lsn, since), min(frame.end_lsn, low) - 1
        if frame.kind == Kind.ROWS and first <= last:
            found[frame.topic].add(first, last, frame.committed_at)
    return found


def _merged(
    firsts: NDArray[np.int64], lasts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Runs that follow each other without a hole, as one."""
    if not len(firsts):
        return firsts, lasts
    apart = firsts[1:] != lasts[:-1] + 1
    return firsts[np.append(True, apart)], lasts[np.append(apart, True)]
