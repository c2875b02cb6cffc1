"""How results look outside: pandas and polars frames, ``dir()``, texts that fit a line."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from types import ModuleType


def pandas_frame(table: pa.Table) -> Any:  # noqa: ANN401 - pandas need not be there
    """Return a pandas frame. Integers with a NULL among them become Int64 and the like.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    pandas = _extra("pandas")
    # pandas' own way is a float, which a large integer does not survive.
    dtypes = {
        column.type: getattr(pandas, f"Int{column.type.bit_width}Dtype")()
        for column in table.columns
        if pa.types.is_integer(column.type) and column.null_count
    }
    return table.to_pandas(types_mapper=dtypes.get)


def polars_frame(table: pa.Table) -> Any:  # noqa: ANN401 - polars need not be there
    """Return a polars frame.

    Raises:
        MissingExtraError: polars is not installed.
    """
    return _extra("polars").from_arrow(table)


def _extra(name: str) -> ModuleType:
    """An optional package that is named like the extra which installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{name} is not installed", hint=f"pip install 'millstream[{name}]'"
        ) from error


# ---- names and texts


_WIDTH = 80


def public_names(thing: object, internal: Collection[str] = ()) -> list[str]:
    """Return what ``dir()`` shows of an object: no underscores, and nothing for us alone."""
    names = object.__dir__(thing)
    return sorted(name for name in names if not name.startswith("_") and name not in internal)


class PublicNames(type):
    """A metaclass: ``dir()`` of the class shows no names that are for us alone."""

    _internal: Collection[str] = ()

    def __new__(
        cls, name: str, bases: tuple[type, ...], names: dict[str, Any], internal: Collection[str]
    ) -> PublicNames:
        """A class without some names in its ``dir()``."""
        made = super().__new__(cls, name, bases, names)
        made._internal = internal
        return made

    def __dir__(cls) -> list[str]:
        names = type.__dir__(cls)
        return sorted(each for each in names if each[0] != "_" and each not in cls._internal)


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
