"""Records of text: CSV and JSON lines, cut out of a stream of bytes (pure)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READ_BYTES: Final = 1 << 20


def chunks(begin: bytes, read: Callable[[], bytes], *, is_csv: bool) -> Iterator[bytes]:
    r"""Whole records, as many as are there; a record of CSV may have ends of lines in quotes.

    >>> parts = iter([b'1,"x', b'\n', b'y"\n2,z', b""])
    >>> list(chunks(b"", lambda: next(parts), is_csv=True))
    [b'1,"x\ny"\n', b'2,z']

    Args:
        begin: what was read already.
        read: gives the next bytes, none at the end.
        is_csv: whether quotes count.
    """
    pending = more = begin or read()
    while more:
        end = _end_of_records(pending, is_csv=is_csv)
        if end:
            yield pending[:end]
            pending = pending[end:]
        more = read()
        pending += more
    if pending.strip():
        yield pending


def _end_of_records(text: bytes, *, is_csv: bool) -> int:
    end = text.rfind(b"\n") + 1
    while is_csv and end and text.count(b'"', 0, end) % 2:
        end = text.rfind(b"\n", 0, end - 1) + 1
    return end


def records(chunk: bytes, *, is_csv: bool) -> Iterator[bytes]:
    """The records of a chunk, one by one, each with its end of line."""
    held = b""
    for line in chunk.splitlines(keepends=True):
        held += line
        if not is_csv or held.count(b'"') % 2 == 0:
            yield held
            held = b""
    if held:
        yield held


def is_utf8(text: bytes) -> bool:
    """Whether bytes are text."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_json(text: bytes) -> bool:
    """Whether bytes are one value of JSON, or blank."""
    try:
        json.loads(text.strip() or b"null")
    except (ValueError, RecursionError):
        return False
    return True
