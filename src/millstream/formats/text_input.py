"""Where text comes from: a str, bytes, a path or an open file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, TypeAlias

from millstream.errors import SchemaMismatchError

TextInput: TypeAlias = str | bytes | os.PathLike[str] | IO[str] | IO[bytes]
"""A ``str`` and ``bytes`` are the text itself, never a path; a path is a ``pathlib.Path`` or
anything else that is ``os.PathLike``; a file may be open for text or in binary, and is read from
where it stands to its end."""


def read_input(data: TextInput) -> str | bytes:
    """The whole text.

    >>> import io
    >>> read_input(io.StringIO("a,b"))
    'a,b'

    Raises:
        SchemaMismatchError: it is neither text nor a path nor a file, or the file has no text.
        OSError: the path cannot be read.
    """
    given: Any = data
    if isinstance(given, os.PathLike):
        given = Path(given).read_bytes()
    elif hasattr(given, "read"):
        try:
            given = given.read()
        except (TypeError, ValueError) as error:  # no file; closed; or in another encoding
            raise SchemaMismatchError(
                f"the file cannot be read: {error}", hint="Open it in binary: open(path, 'rb')."
            ) from error
    if isinstance(given, str):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise SchemaMismatchError(
        f"expected text, bytes, a path or an open file, got {type(data).__name__}",
        hint="A str is the text itself; for a file give pathlib.Path(name) or open(name, 'rb').",
    )


def path_hint(data: object) -> str:
    """What to say of text that cannot be read and is the name of a file."""
    if not isinstance(data, str) or not _names_a_file(data):
        return ""
    return f"A str is the text itself; for the file of that name give pathlib.Path({data!r})."


def _names_a_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with a NUL
        return False
