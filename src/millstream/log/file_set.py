"""The right set of files: every segment is there, is the one its name says, and follows the last.

A botched restore leaves a set that reads well and lacks rows: two files exchanged, one of another
database, one of last week, one left out. Each segment says which one it is and which one it
follows, and a sealed one says where it ends and whether there is a next one. So all of that is
found at open, by the first and the last bytes of each file, and refused before anything is changed.

The last segment says by itself that the log was closed. But one that was cut short afterwards, or
an older copy of it, looks like one that a crash has left; the note of a clean close, the file
``CLOSED``, distinguishes them. It is written last of all, and removed when the log is opened again,
before anything else is changed. Without it nothing is wrong.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from millstream.errors import LogFilesError
from millstream.log.files import SegmentFile, list_segments
from millstream.log.segment import SegmentRef
from millstream.log.storage import sync_directory, write_file
from millstream.log.topics import encode_json
from millstream.log.walk import find_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from millstream.log.segment import Identity, Trailer

_NAME: Final = "CLOSED"
_LOST = re.compile(r"(\d{10})\.lost")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Closed:
    """How the log was left.

    Attributes:
        ordinal: the last segment.
        number: the random number that is its own.
        size: how many bytes it has.
        end_lsn: the first LSN after it.
    """

    ordinal: int
    number: int
    size: int
    end_lsn: int

    def write(self, directory: Path) -> None:
        """Write the note; it is on the disk when this returns."""
        write_file(directory / _NAME, [encode_json(asdict(self))])

    @classmethod
    def read(cls, directory: Path) -> Closed | None:
        """The note; None when there is none, or it is damaged."""
        try:
            return cls(**json.loads((directory / _NAME).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None


def remove_note(directory: Path) -> None:
    """The log is open again."""
    if (directory / _NAME).exists():
        (directory / _NAME).unlink()
        sync_directory(directory)


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong: a file that does not belong where it is, or a segment that is missing."""

    what: str
    hint: str
    file: SegmentRef | None = None
    missing: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class _Known:
    """What a file says of itself."""

    ref: SegmentRef
    identity: Identity | None
    trailer: Trailer | None
    size: int


class FileSet:
    """The segments of a directory, checked.

    Args:
        directory: where they are.
        repair: set wrong files aside and note missing segments as lost, instead of refusing them.

    Attributes:
        refs: the segments, oldest first.
        closed: how the log was left, if it was closed.
        lost: the ordinals of those that are missing, and are known to be.

    Raises:
        LogFilesError: the set of files is wrong.
        LogVersionError: a file is of another format.
    """

    def __init__(self, directory: Path, *, repair: bool = False) -> None:
        self._directory = directory
        self._repair = repair
        self.lost = {
            int(found[1]) for path in directory.iterdir() if (found := _LOST.fullmatch(path.name))
        }
        self.closed = Closed.read(directory)
        self.refs = list_segments(directory)
        while problems := list(self._problems()):
            self._refuse(problems)

    @property
    def durable_lsn(self) -> int:
        """Everything up to this LSN was on the disk when the log was closed; 0: it was not."""
        return 0 if self.closed is None else self.closed.end_lsn - 1

    def begins_with(self, first: int) -> None:
        """Check the front: retention has removed no segment from that ordinal on.

        Raises:
            LogFilesError: one is missing.
        """
        gone = [n for n in range(first, self.refs[0].ordinal) if n not in self.lost]
        if gone:
            self._refuse([_missing(ordinal) for ordinal in gone])
        remove_note(self._directory)  # from here on files are changed

    def _refuse(self, problems: Sequence[_Problem]) -> None:
        if not self._repair:
            shown = "; ".join(each.what for each in problems[:_SHOWN])
            more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            raise LogFilesError(
                f"{self._directory} does not hold the files it should: {shown}{more}",
                files=tuple(each.file.name for each in problems if each.file is not None),
                missing=tuple(each.missing for each in problems if each.missing),
                hint=f"{problems[0].hint}; repair=True opens without what is missing",
            )
        for each in problems:
            if each.is_cut:
                self.closed = None
            elif each.file is not None:
                path = self._directory / each.file.name
                path.rename(path.with_suffix(".wrong"))
            else:
                write_file(self._directory / f"{each.missing:010d}.lost", [])
                self.lost.add(each.missing)
        self.refs = list_segments(self._directory)

    def _problems(self) -> Iterator[_Problem]:
        known = [self._look_at(ref) for ref in self.refs]
        databases = Counter(each.identity.database for each in known if each.identity is not None)
        database = databases.most_common(1)[0][0] if databases else None
        wrong = set[SegmentRef]()
        for each in known:
            identity = each.identity
            if identity is not None and (identity.database, identity.ref) != (database, each.ref):
                wrong.add(each.ref)
                yield _misplaced(each.ref, identity, foreign=identity.database != database)
        if wrong:
            return  # what else is wrong shows once they are where they belong
        yield from _against_neighbours(known)
        yield from self._unreadable(known)
        yield from self._missing_of(known)

    def _unreadable(self, known: Sequence[_Known]) -> Iterator[_Problem]:
        """The last segment, if nothing is left of it and it was on the disk once."""
        if len(known) < 2 or known[-1].identity is not None:
            return
        before, last = known[-2:]
        is_kept = before.trailer is not None and before.trailer.followed
        is_closed = self.closed is not None and self.closed.ordinal == last.ref.ordinal
        file = SegmentFile(self._directory, last.ref)
        if (is_kept or is_closed) and find_frame(file.fd, 0, file.size) is None:
            what = f"{last.ref.name} holds nothing that can be read"
            yield _Problem(what, "restore it from a backup", last.ref)

    def _missing_of(self, right: Sequence[_Known]) -> Iterator[_Problem]:
        """The segments that are not there, and a last one that is not as it was left."""
        there = {each.ref.ordinal for each in right}
        end = max(there, default=0)
        if right and right[-1].trailer is not None and right[-1].trailer.followed:
            end += 1
        if self.closed is not None:
            end = max(end, self.closed.ordinal)
        if right:
            yield from self._against_note(right[-1])
        for ordinal in range(min(there, default=1), end + 1):
            if ordinal not in there and ordinal not in self.lost:
                yield _missing(ordinal)

    def _against_note(self, last: _Known) -> Iterator[_Problem]:
        """The last segment, held against how it was left."""
        note = self.closed
        if note is None or last.ref.ordinal != note.ordinal:
            return
        if last.identity is not None and last.identity.id != note.number:
            what = "is of another copy of the database"
        elif last.size != note.size:
            what = f"has {last.size:,} bytes, and had {note.size:,} when it was closed"
        else:
            return
        hint = "restore the newest copy of it"
        yield _Problem(f"{last.ref.name} {what}", hint, last.ref, is_cut=True)

    def _look_at(self, ref: SegmentRef) -> _Known:
        file = SegmentFile(self._directory, ref)
        return _Known(ref, file.identity, file.trailer, file.size)


def _against_neighbours(known: Sequence[_Known]) -> Iterator[_Problem]:
    """What each file says, held against what the next one says."""
    others = set[SegmentRef]()
    for before, after in pairwise(known):
        one, other = before.ref, after.ref
        if one.ordinal == other.ordinal:
            yield _Problem(
                f"{one.name} and {other.name} are both segment {one.ordinal}",
                "move the one that does not belong there out of the directory",
                other,
            )
        elif one.ordinal + 1 == other.ordinal:
            if before.trailer is not None and before.trailer.end_lsn != other.base_lsn:
                yield _Problem(
                    f"{one.name} is an older copy: it ends before LSN {before.trailer.end_lsn}, "
                    f"and the next one begins at {other.base_lsn}",
                    "restore the newest copy of it",
                    one,
                )
            elif _is_of_another_copy(before, after) and one not in others:
                others.add(other)
                yield _Problem(
                    f"{other.name} does not follow {one.name}: one of them is of another copy "
                    "of the database",
                    "restore both from the same backup",
                    other,
                )


def _is_of_another_copy(before: _Known, after: _Known) -> bool:
    if before.identity is None or after.identity is None or not after.identity.previous:
        return False
    return after.identity.previous != before.identity.id


def _misplaced(ref: SegmentRef, identity: Identity, *, foreign: bool) -> _Problem:
    if foreign:
        return _Problem(
            f"{ref.name} is of another database",
            "move it out of the directory, and restore the one that belongs there",
            ref,
        )
    return _Problem(
        f"{ref.name} holds segment {identity.ref.name}",
        "give the files the names of the segments that they hold",
        ref,
    )


def _missing(ordinal: int) -> _Problem:
    return _Problem(
        f"segment {ordinal:010d} is missing", "restore it from a backup", missing=ordinal
    )
