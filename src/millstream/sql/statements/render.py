"""Rendering: definitions as SQL text, for SHOW CREATE. ``parse`` reads what is written here."""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from millstream.model.names import quote_name, quote_string
from millstream.sql.statements.durations import duration_text
from millstream.sql.statements.statement import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.model import Schema
    from millstream.sql.statements.statement import OptionValue, WatermarkSpec

    Options = Mapping[str, Option | OptionValue]

_NO_OPTIONS: Options = MappingProxyType({})


def create_source(
    name: str,
    schema: Schema,
    *,
    watermark: WatermarkSpec | None = None,
    options: Options = _NO_OPTIONS,
    if_not_exists: bool = False,
) -> str:
    """Return the CREATE SOURCE that makes such a source.

    >>> from millstream.model import Schema
    >>> print(create_source("t", Schema.of(a="INT NOT NULL", b="DATE"), options={"size": 5}))
    CREATE SOURCE t (
      a INTEGER NOT NULL,
      b DATE
    ) WITH (size = 5)
    """
    parts = [column.ddl for column in schema.columns]
    if watermark is not None:
        parts.append(_watermark(watermark))
    return _create("SOURCE", name, parts, options, if_not_exists=if_not_exists)


def create_table(
    name: str, schema: Schema, *, options: Options = _NO_OPTIONS, if_not_exists: bool = False
) -> str:
    """Return the CREATE TABLE that makes such a table.

    >>> from millstream.model import Schema
    >>> print(create_table("t", Schema.of(key=("a",), a="INT NOT NULL")))
    CREATE TABLE t (
      a INTEGER NOT NULL,
      PRIMARY KEY (a)
    )
    """
    parts = [column.ddl for column in schema.columns]
    parts.append(f"PRIMARY KEY ({', '.join(map(quote_name, schema.key))})")
    return _create("TABLE", name, parts, options, if_not_exists=if_not_exists)


def create_sink(name: str, query: str, options: Options = _NO_OPTIONS) -> str:
    """Return the CREATE SINK that makes such a sink.

    >>> print(create_sink("s", "SELECT * FROM v", {"connector": "files"}))
    CREATE SINK s AS SELECT * FROM v WITH (connector = 'files')
    """
    return f"CREATE SINK {quote_name(name)} AS {query} WITH ({_options(options)})"


def _create(
    kind: str, name: str, parts: list[str], options: Options, *, if_not_exists: bool
) -> str:
    head = f"CREATE {kind} {'IF NOT EXISTS ' if if_not_exists else ''}{quote_name(name)}"
    body = ",\n  ".join(parts)
    tail = _options(options)
    return f"{head} (\n  {body}\n)" + (f" WITH ({tail})" if tail else "")


def _options(options: Options) -> str:
    return ", ".join(f"{_key(key)} = {_value(value)}" for key, value in options.items())


def _watermark(watermark: WatermarkSpec) -> str:
    column = quote_name(watermark.column)
    if watermark.delay == timedelta(0):
        return f"WATERMARK FOR {column} AS {column}"
    delay = duration_text(watermark.delay)
    return f"WATERMARK FOR {column} AS {column} - INTERVAL '{delay}'"


def _key(key: str) -> str:
    return ".".join(map(quote_name, key.split(".")))


def _value(option: Option | OptionValue) -> str:
    value = option.value if isinstance(option, Option) else option
    if isinstance(value, str):
        return quote_string(value)
    return str(value).upper() if isinstance(value, bool) else repr(value)
