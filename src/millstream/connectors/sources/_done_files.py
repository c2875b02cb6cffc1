"""The set of files that were taken, in a compact form that is exact (pure)."""

from __future__ import annotations

import base64
import json
import re
import zlib
from bisect import bisect_right
from typing import Any, Final

_NUMBERED: Final = re.compile(r"(?P<head>.*?)(?P<digits>[0-9]{1,18})(?P<tail>[^0-9]*)", re.DOTALL)
_LARGE: Final = 4096

Group = tuple[str, int, str]


class DoneFiles:
    """Names of files. Those that differ in a number at their end are kept as ranges of numbers.

    >>> done = DoneFiles()
    >>> for number in range(1000):
    ...     done.add(f"part-{number:05}.parquet")
    >>> "part-00999.parquet" in done, "part-01000.parquet" in done, "part-999.parquet" in done
    (True, False, False)
    >>> done.to_json()
    [['part-', 5, '.parquet', [0, 999]]]
    """

    __slots__ = ("_count", "_ranges")

    def __init__(self) -> None:
        self._ranges: dict[Group, list[int]] = {}  # first, last, first, last, ...
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        group, number = _split(name)
        ranges = self._ranges.get(group)
        if ranges is None:
            return False
        place = bisect_right(ranges, number)
        return place % 2 == 1 or (place > 0 and ranges[place - 1] == number)

    def add(self, name: str) -> None:
        """Add a name."""
        if name in self:
            return
        self._count += 1
        group, number = _split(name)
        ranges = self._ranges.setdefault(group, [])
        place = bisect_right(ranges, number)
        follows = place > 0 and ranges[place - 1] == number - 1
        leads = place < len(ranges) and ranges[place] == number + 1
        if follows and leads:
            del ranges[place - 1 : place + 1]
        elif follows:
            ranges[place - 1] = number
        elif leads:
            ranges[place] = number
        else:
            ranges[place:place] = [number, number]

    def to_json(self) -> Any:  # noqa: ANN401 - a JSON value
        """All names; compressed if they are many."""
        listed = [[*group, list(ranges)] for group, ranges in sorted(self._ranges.items())]
        text = json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) < _LARGE:
            return listed
        return base64.b85encode(zlib.compress(text)).decode()

    @classmethod
    def from_json(cls, value: Any) -> DoneFiles:  # noqa: ANN401 - what ``to_json`` gave
        """What ``to_json`` has written."""
        done = cls()
        if isinstance(value, str):
            value = json.loads(zlib.decompress(base64.b85decode(value)))
        for head, width, tail, ranges in value:
            done._ranges[head, width, tail] = list(ranges)
            firsts, lasts = ranges[::2], ranges[1::2]
            done._count += sum(last - first + 1 for first, last in zip(firsts, lasts, strict=True))
        return done


def _split(name: str) -> tuple[Group, int]:
    """What a name has in common with its neighbours, and its number."""
    matched = _NUMBERED.fullmatch(name)
    if matched is None:
        return (name, 0, ""), 0
    digits = matched["digits"]
    return (matched["head"], len(digits), matched["tail"]), int(digits)
