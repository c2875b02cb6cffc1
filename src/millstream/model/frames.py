"""Frames: Arrow tables as pandas and polars frames; both packages are optional."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import MissingExtraError

if TYPE_CHECKING:
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
