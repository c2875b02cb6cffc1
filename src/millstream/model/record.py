"""Records: the columns that the fields of a dataclass become."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from millstream.errors import SchemaError
from millstream.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    TIMESTAMP,
    VARCHAR,
    SqlType,
    array_type,
    decimal_type,
    map_type,
    struct_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_BY_PYTHON: dict[object, SqlType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: VARCHAR,
    bytes: BINARY,
    date: DATE,
    datetime: TIMESTAMP,
    timedelta: INTERVAL,
    Decimal: decimal_type(38, 18),
}


def record_columns(record: type) -> Iterator[tuple[str, SqlType, bool]]:
    """Yield the name, the type and the nullability of the column of each field of a dataclass.

    >>> from dataclasses import make_dataclass
    >>> list(record_columns(make_dataclass("Trade", [("price", float | None)])))
    [('price', SqlType(sql='DOUBLE'), True)]

    Raises:
        SchemaError: it is no dataclass, or a field has a type without a SQL type.
    """
    for name, hint in _field_hints(record).items():
        plain, nullable = _without_none(hint)
        yield name, _type_of_hint(plain, name, (record,)), nullable


def _field_hints(record: type) -> dict[str, Any]:
    if not (isinstance(record, type) and dataclasses.is_dataclass(record)):
        raise SchemaError(
            f"{record!r} is not a dataclass", hint="Decorate the class with @dataclass."
        )
    try:
        hints = get_type_hints(record)
    except NameError as error:
        raise SchemaError(
            f"{record.__name__} has an annotation that cannot be resolved: {error}",
            hint="Define the classes that it names at the top of a module.",
        ) from error
    return {each.name: hints[each.name] for each in dataclasses.fields(record)}


def _without_none(hint: object) -> tuple[object, bool]:
    """Return an Optional's type and True, any other hint and False."""
    options = get_args(hint) if get_origin(hint) in {Union, UnionType} else ()
    rest = [each for each in options if each is not NoneType]
    return (rest[0], True) if len(rest) == 1 else (hint, False)


def _type_of_hint(hint: object, name: str, outer: tuple[object, ...]) -> SqlType:
    hint, _ = _without_none(hint)
    if hint in _BY_PYTHON:
        return _BY_PYTHON[hint]
    inner = get_args(hint)
    if get_origin(hint) is list and inner:
        return array_type(_type_of_hint(inner[0], name, outer))
    if get_origin(hint) is dict and inner:
        key, value = (_type_of_hint(each, name, outer) for each in inner)
        return map_type(key, value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in outer:
        hints = _field_hints(hint).items()
        return struct_type({each: _type_of_hint(h, each, (*outer, hint)) for each, h in hints})
    raise SchemaError(
        f"the field {name!r} has the type {hint!r}, for which there is no SQL type",
        hint="Use bool, int, float, str, bytes, date, datetime, timedelta, Decimal, list[T], "
        "dict[K, V], a dataclass that does not contain itself, or any of these | None.",
    )
