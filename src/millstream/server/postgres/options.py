"""``WITH (name = value, ...)`` at the end of a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.parameters import interval

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from millstream.server.postgres.text import Text, Token

Options = dict[str, str]
"""Their values as text, by their names in lower case; of one without a value, ``true``."""


def split_options(tokens: tuple[Token, ...]) -> tuple[tuple[Token, ...], Options]:
    """The tokens before ``[WITH] (...)`` at the end, and the options in it.

    Raises:
        PostgresError: the options are not written as options.
    """
    if not tokens or tokens[-1].text != ")":
        return tokens, {}
    depth = 0
    for place in range(len(tokens) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(tokens[place].text, 0)
        if depth == 0:
            if tokens[place - 1].word != "WITH":
                return tokens, {}
            return tokens[: place - 1], read_options(tokens[place + 1 : -1])
    return tokens, {}


def read_options(tokens: tuple[Token, ...]) -> Options:
    """The options between parentheses.

    Raises:
        PostgresError: they are not written as options.
    """
    made: Options = {}
    part: list[Token] = []
    for token in (*tokens, None):
        if token is not None and token.text != ",":
            part.append(token)
            continue
        if not part or not part[0].identifier:
            raise _misread(part or list(tokens))
        values = [each for each in part[1:] if each.text != "="]
        made[part[0].identifier] = "".join(each.value for each in values) if values else "true"
        part = []
    return made


def _misread(tokens: list[Token]) -> PostgresError:
    position = tokens[0].start + 1 if tokens else 0
    return PostgresError(
        "an option is expected", sqlstate="42601", hint="name = value", position=position
    )


def check_names(options: Options, known: Collection[str], text: Text) -> None:
    """Raise if there is an option that nobody knows.

    Raises:
        PostgresError: there is.
    """
    for name in options:
        if name not in known:
            raise PostgresError(
                f'option "{name}" is not recognized',
                sqlstate="42601",
                hint=f"the options are {', '.join(sorted(known))}",
                position=text.start + 1,
            )


def flag(options: Options, name: str, default: bool = False) -> bool:
    """The value of an option that is true or false."""
    value = options.get(name)
    if value is None:
        return default
    if value.lower() not in {"true", "on", "1", "false", "off", "0"}:
        raise PostgresError(f"{name} is true or false, not {value!r}", sqlstate="22023")
    return value.lower() in {"true", "on", "1"}


def duration(options: Options, name: str) -> float | None:
    """The value of an option that is a length of time, in seconds."""
    value = options.get(name)
    if value is None:
        return None
    try:
        length: timedelta = interval(value)
    except (ValueError, OverflowError) as error:
        raise PostgresError(
            f"{name} cannot be {value!r}", sqlstate="22007", hint="such as '1s' or '500 ms'"
        ) from error
    return max(length.total_seconds(), 0.0)
