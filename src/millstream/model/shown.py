"""What people see of public objects: names to complete, and texts that fit a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_WIDTH = 80


def public_names(thing: object, internal: Collection[str] = ()) -> list[str]:
    """Return what ``dir()`` shows of an object: no underscores, and nothing for us alone."""
    names = object.__dir__(thing)
    return sorted(name for name in names if not name.startswith("_") and name not in internal)


def one_line(text: str, width: int = _WIDTH) -> str:
    r"""Return a text in one line, cut where it is too long.

    >>> one_line("SELECT a\n  FROM t", 10)
    'SELECT a …'
    """
    text = " ".join(text[: 10 * width].split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def shown_values(names: Iterable[str], row: Iterable[Any]) -> str:
    """Return a row as names and values, in one line.

    >>> shown_values(["id", "name"], (1, "Ada"))
    "id=1, name='Ada'"
    """
    pairs = zip(names, row, strict=True)
    return one_line(", ".join(f"{name}={one_line(repr(value), 32)}" for name, value in pairs))
