"""Options: what WITH (...) holds."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from millstream.sql.statements.statement import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.sql.statements.reader import Reader
    from millstream.sql.statements.statement import OptionValue


def read_options(reader: Reader) -> Mapping[str, Option]:
    """Read what follows WITH."""
    options: dict[str, Option] = {}

    def read_option() -> None:
        at = reader.offset
        key = reader.option_key()
        if key in options:
            raise reader.error(f"the option {key} is given twice", hint="Give it once.", at=at)
        reader.expect("=", hint=f"Write {key} = value.")
        place = reader.place
        options[key] = Option(_read_value(reader, key), *place, reader.place_of(at))

    reader.wrapped(read_option)
    return MappingProxyType(options)


def _read_value(reader: Reader, key: str) -> OptionValue:
    if reader.skip("TRUE"):
        return True
    if reader.skip("FALSE"):
        return False
    value = reader.constant()
    if value is not None:
        return value
    word = reader.word.lower()
    hint = f"Write {key} = '{word}'." if word.isidentifier() else "Write a number or a '...'."
    raise reader.expected(f"the value of {key}", hint=hint)
