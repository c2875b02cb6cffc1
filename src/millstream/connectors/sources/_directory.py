"""A directory or a pattern of files that is looked at again and again: which files are complete."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import FileAccessError
from millstream.files.formats import ENDINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.files.place import Place

_WILD: Final = re.compile(r"[*?\[]")
_PIECE: Final = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]]+\]|.", re.DOTALL)
_UNFINISHED: Final = (
    ".tmp",
    ".temp",
    ".part",
    ".partial",
    ".inprogress",
    ".crdownload",
    ".swp",
    "~",
)
_COMPRESSED: Final = (".gz", ".zst", ".bz2")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was found.

    Attributes:
        name: its path after that of the directory.
        size: in bytes.
        modified: in nanoseconds since 1970.
    """

    name: str
    size: int
    modified: int


class Directory:
    """The files of a directory, or of a pattern such as ``data/*/x-*.csv``.

    Args:
        place: the directory or the pattern.
        any_ending: whether files with unknown endings count.
        settle: how long a file must have stayed as it is, in seconds; 0: it is complete when it is
            there.
        clock: the time that is counted in.
        within: links must not lead out of this directory; None: they may.
    """

    def __init__(
        self,
        place: Place,
        *,
        any_ending: bool,
        settle: float,
        clock: Callable[[], float],
        within: str | None = None,
    ) -> None:
        base, pattern = split_pattern(place.path)
        self.place = place.at(base)
        self._matches = None if pattern is None else _regex(pattern)
        self._is_deep = pattern is not None and "/" in pattern
        self._any_ending = any_ending
        self._settle = settle
        self._clock = clock
        self._within = Path(within).resolve() if within and place.is_local else None
        self._seen: dict[str, tuple[FoundFile, float]] = {}

    def look(self) -> list[FoundFile]:
        """The files that are complete, oldest first.

        Raises:
            FileAccessError: the directory cannot be read, or a link leads out of ``within``.
        """
        now, seen, complete = self._clock(), self._seen, []
        self._seen = {}
        for each in self.place.files(recursive=self._is_deep):
            name = posixpath.relpath(each.path, self.place.path)
            if not self._is_wanted(name):
                continue
            self._check_within(each.path)
            found = FoundFile(name, int(each.size), int(each.mtime_ns or 0))
            before, since = seen.get(name, (found, now))
            since = since if before == found else now
            self._seen[name] = (found, since)
            if now - since >= self._settle:
                complete.append(found)
        return sorted(complete, key=lambda each: (each.modified, each.name))

    def _check_within(self, path: str) -> None:
        if self._within is not None and not Path(path).resolve().is_relative_to(self._within):
            raise FileAccessError(
                f"{path} is a link that leads out of {self._within}", hint="remove the link"
            )

    def has(self, name: str) -> bool:
        """Whether a file was there at the last look, complete or not."""
        return name in self._seen

    def all_files(self) -> list[FoundFile]:
        """All files, complete or not, oldest first."""
        self.look()
        found = (each for each, _ in self._seen.values())
        return sorted(found, key=lambda each: (each.modified, each.name))

    def _is_wanted(self, name: str) -> bool:
        if self._matches is not None and not self._matches.fullmatch(name):
            return False
        if any(part[:1] in {".", "_"} for part in name.split("/")) or name.endswith(_UNFINISHED):
            return False
        return self._any_ending or ending_of(name) in ENDINGS


def ending_of(name: str) -> str:
    """The ending of a name, without that of its compression."""
    lower = name.lower()
    for each in _COMPRESSED:
        lower = lower.removesuffix(each)
    return lower.rpartition("/")[2].rpartition(".")[2]


def split_pattern(path: str) -> tuple[str, str | None]:
    """The directory before the first part with a wildcard, and the pattern after it.

    >>> split_pattern("/data/*/x-*.csv"), split_pattern("/data")
    (('/data', '*/x-*.csv'), ('/data', None))
    """
    parts = path.split("/")
    for place, part in enumerate(parts):
        if _WILD.search(part):
            return "/".join(parts[:place]) or "/", "/".join(parts[place:])
    return path, None


def _regex(pattern: str) -> re.Pattern[str]:
    made = []
    for piece in _PIECE.findall(pattern):
        if piece == "**/":
            made.append("(?:.*/)?")
        elif piece == "**":
            made.append(".*")
        elif piece == "*":
            made.append("[^/]*")
        elif piece == "?":
            made.append("[^/]")
        elif piece.startswith("["):
            made.append("[^" + piece[2:] if piece.startswith("[!") else piece)
        else:
            made.append(re.escape(piece))
    return re.compile("".join(made))
