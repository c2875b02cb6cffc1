"""Watermarks: "no row older than this is still to come", in microseconds since 1970 in UTC.

``None`` is the watermark of a source that has not told one yet: every row may still come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class MonotonicWatermark:
    """A watermark that only moves forward.

    >>> watermark = MonotonicWatermark()
    >>> watermark.advance(100), watermark.advance(50), watermark.value
    (True, False, 100)
    """

    __slots__ = ("_value",)

    def __init__(self, value: int | None = None) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"MonotonicWatermark({self._value})"

    @property
    def value(self) -> int | None:
        """The newest watermark, or None when there was none yet."""
        return self._value

    def advance(self, value: int) -> bool:
        """Take ``value`` if it is newer, and tell whether the watermark moved.

        An older one is no error: rows come out of order, and promises once made are kept.
        """
        if self._value is not None and value <= self._value:
            return False
        self._value = value
        return True


def combine(values: Iterable[int | None]) -> int | None:
    """Return the watermark of several inputs read together: the least, or None if one has none.

    Without any input nothing is known, so the answer is None too.

    >>> combine([30, 10, 20])
    10
    >>> combine([30, None]) is None
    True
    """
    least: int | None = None
    for value in values:
        if value is None:
            return None
        if least is None or value < least:
            least = value
    return least
