"""Which values of an Arrow array Python can hold: the check of Arrow data at the door.

Arrow's types are wider than Python's: its times go beyond the year 9999, its text may be no UTF-8,
its maps may have a key twice, its decimals more digits than their type. ``check_rows`` lets none of
these in, and neither may Arrow data: whoever reads the rows one day may read them as Python.

Each type has a quick test without a look at any row, and an exact one for arrays that fail it.
What NULLs hide, their own bytes or those of their children, does not count. Nested arrays are
checked for lists that end before they begin, or outside of their elements, too.
"""

from __future__ import annotations

import reprlib
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.arrow_lists import list_offsets, map_entries
from millstream.model.clock import EPOCH, from_datetime
from millstream.model.values import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.model.types import SqlType

    Found = tuple[int, str] | None
    Check = Callable[[SqlType, pa.Array], Found]

_CHUNK = 1 << 20  # bytes of text that are looked at in one go
_SMALL = 1 << 14  # bytes up to which all of a buffer is looked at, shown or not
_FEW = 2048  # numbers up to which Python's own bytes are as quick as numpy
_EPOCH_DAY = EPOCH.toordinal()


def reading_check(of: SqlType) -> Check | None:
    """The check of arrays of a type; None when Python can hold every value of it.

    >>> from millstream.model.types import parse_type
    >>> reading_check(parse_type("STRUCT<n BIGINT, x DOUBLE>")) is None
    True
    """
    return _CHECKS.get(of.kind) if _is_wider(of) else None


def _is_wider(of: SqlType) -> bool:
    """Whether Arrow can hold values of a type that Python cannot."""
    return of.kind in _WIDER or any(map(_is_wider, of.children))


def unreadable(of: SqlType, array: pa.Array) -> Found:
    """The first place of an array, of exactly ``of.arrow``, that Python cannot hold, and why.

    >>> from millstream.model.types import DATE
    >>> unreadable(DATE, pa.array([0, 2932897], pa.date32()))
    (1, 'day 2932897 from 1970 is outside of the years 1 to 9999')
    """
    check = reading_check(of)
    return None if check is None else check(of, array)


# --- Text and decimals: what Arrow itself calls valid ---------------------------------------------


def _text(_of: SqlType, array: pa.Array) -> Found:
    if _is_ascii(array):
        return None
    place = _first_invalid(array)
    if place is None:
        return None
    held = array.slice(place, 1).view(pa.binary())[0].as_py()
    return place, f"{reprlib.repr(held)} is not valid UTF-8"


def _is_ascii(array: pa.Array) -> bool:
    """Whether all bytes of its text, those under NULLs included, are ASCII: quick to see."""
    _, ends, held = array.buffers()
    if held is None or (held.size <= _SMALL and held.to_pybytes().isascii()):
        return True
    places = memoryview(ends).cast("i")
    start, stop = places[array.offset], places[array.offset + len(array)]
    text = memoryview(held)[start:stop]
    if stop - start <= _CHUNK:
        return text.tobytes().isascii()
    return all(text[at : at + _CHUNK].tobytes().isascii() for at in range(0, len(text), _CHUNK))


def _decimals(of: SqlType, array: pa.Array) -> Found:
    place = _first_invalid(array)
    return None if place is None else (place, f"it has more digits than a {of.sql}")


def _first_invalid(array: pa.Array) -> int | None:
    """The first place that Arrow's own validation refuses."""
    if _is_valid(array):
        return None
    start, stop = 0, len(array)
    while stop - start > 1:
        middle = (start + stop) // 2
        if _is_valid(array.slice(start, middle - start)):
            start = middle
        else:
            stop = middle
    return start


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


# --- Times: numbers from the least to the greatest ------------------------------------------------


def _between(
    arrow: pa.DataType, low: int, high: int, safe: Mapping[int, bytes], said: str
) -> Check:
    """The check of numbers from ``low`` to ``high``.

    Args:
        arrow: the integers that they are stored as.
        low: the least.
        high: the greatest.
        safe: of some bytes of a number, by place, those that only numbers well inside have.
        said: what is said of a number that is outside.
    """
    width = arrow.bit_width // 8
    unsigned = np.dtype(f"<u{width}")

    def is_inside(array: pa.Array) -> bool:
        """Whether the numbers are all well inside, those under NULLs included: quick to see."""
        held, start, size = array.buffers()[1], array.offset * width, len(array)
        if size > _FEW:
            # Negative ones are huge when read without their sign: one pass sees both ends.
            return bool(np.frombuffer(held, unsigned, size, start).max(initial=0) <= high)
        # numpy would let go of the interpreter meanwhile, and be given it back who knows when.
        text = memoryview(held)[start : start + size * width].tobytes()
        for place, inside in safe.items():  # noqa: SIM110 - all() takes longer than the look
            if text[place::width].translate(None, inside):
                return False
        return True

    def check(_of: SqlType, array: pa.Array) -> Found:
        if is_inside(array):
            return None
        numbers = array.view(arrow)
        outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
        place: int = pc.index(outside, value=True).as_py()
        return None if place < 0 else (place, said.format(numbers[place].as_py()))

    return check


_dates = _between(
    pa.int32(),
    date.min.toordinal() - _EPOCH_DAY,
    date.max.toordinal() - _EPOCH_DAY,
    {3: b"\0", 2: bytes(range(0x2C))},  # from 1970 to the year 9864
    "day {} from 1970 is outside of the years 1 to 9999",
)
_timestamps = _between(
    pa.int64(),
    from_datetime(datetime.min.replace(tzinfo=UTC)),
    from_datetime(datetime.max.replace(tzinfo=UTC)),
    {7: b"\0\1\2"},  # from 1970 to the year 8819
    "microsecond {} from 1970 is outside of the years 1 to 9999",
)
_intervals = _between(
    pa.int64(),
    -LONGEST // timedelta(microseconds=1),
    LONGEST // timedelta(microseconds=1),
    {7: bytes(range(0x7F)) + bytes(range(0x81, 0x100))},
    "{} microseconds are more than 292 thousand years",
)


# --- Nested types ---------------------------------------------------------------------------------


def _lists(of: SqlType, array: pa.Array) -> Found:
    found = _malformed(array)
    if found is not None:
        return found
    return _at_row(array, unreadable(of.children[0], array.flatten()))


def _malformed(lists: pa.Array) -> Found:
    """The first list that has no length; what flattens an array trusts that all have."""
    try:
        lists.validate()
    except pa.ArrowInvalid as error:
        return 0, f"the array is malformed: {error}"
    place: int = pc.index(pc.less(lists.value_lengths(), 0), value=True).as_py()
    return None if place < 0 else (place, "the array is malformed: a list ends before it begins")


def _structs(of: SqlType, array: pa.Array) -> Found:
    fields = zip(of.names, of.children, array.flatten(), strict=True)
    return _earliest(
        [_within(f"field {name!r}", unreadable(child, each)) for name, child, each in fields]
    )


def _maps(of: SqlType, array: pa.Array) -> Found:
    entries = map_entries(array)
    found = _malformed(entries)
    if found is not None:
        return found
    keys, values = entries.flatten().flatten()
    found = _earliest(
        [
            _within("a key", unreadable(of.children[0], keys)),
            _within("a value", unreadable(of.children[1], values)),
            _repeated_key(entries, keys),
        ]
    )
    return _at_row(entries, found)


def _repeated_key(entries: pa.Array, keys: pa.Array) -> Found:
    """The first entry whose key is in its map before; -0.0 and 0.0 are one key, and so is NaN."""
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0.0, keys.type))
    encoded = keys.dictionary_encode()
    rows = _rows_of(entries, np.arange(len(keys)))
    pairs = rows * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    _, first = np.unique(pairs, return_index=True)
    if len(first) == len(pairs):
        return None
    is_first = np.zeros(len(pairs), bool)
    is_first[first] = True
    place = int(np.argmin(is_first))
    return place, "a key appears twice"


def _at_row(lists: pa.Array, found: Found) -> Found:
    """What was found in ``lists.flatten()``, at the list that has it."""
    if found is None:
        return None
    place, reason = found
    return int(_rows_of(lists, place)), reason


def _rows_of(lists: pa.Array, places: Any) -> Any:  # noqa: ANN401 - a number, or an array of them
    """Which list has each place of ``lists.flatten()``."""
    return np.searchsorted(list_offsets(lists).to_numpy(), places, side="right") - 1


def _within(part: str, found: Found) -> Found:
    return None if found is None else (found[0], f"{part}: {found[1]}")


def _earliest(found: Sequence[Found]) -> Found:
    there = [each for each in found if each is not None]
    return min(there) if there else None


_CHECKS: Final[dict[str, Check]] = {
    "VARCHAR": _text,
    "DECIMAL": _decimals,
    "DATE": _dates,
    "TIMESTAMP": _timestamps,
    "INTERVAL": _intervals,
    "ARRAY": _lists,
    "STRUCT": _structs,
    "MAP": _maps,
}
_WIDER: Final = frozenset(_CHECKS) - {"STRUCT"}
