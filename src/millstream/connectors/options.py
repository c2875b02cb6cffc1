"""Options of connectors: checked at CREATE; their values, with secrets resolved, when opened."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.catalog.connection import mask_value
from millstream.catalog.options import parse_size
from millstream.connectors.contract import Option, Settings
from millstream.errors import ConnectorFailedError, InvalidOptionError
from millstream.masking import MASK, looks_secret, mask_url, passwords_in
from millstream.sql import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.catalog.connection import OptionValue

_REFERENCE: Final = re.compile(r"\$\{(?P<where>env|file|secret):(?P<name>[^}]+)\}")

COMMON: Final = (
    Option("rate_limit", "float", help="at most so many rows in a second", least=1e-3),
    Option("retry_delay", "duration", default=0.5, help="pause after the first failure"),
    Option("retry_max_delay", "duration", default=60.0, help="longest pause between attempts"),
    Option(
        "retry_limit", "int", default=20, help="failures in a row until it is given a rest", least=1
    ),
    Option("retry_rest", "duration", default=300.0, help="how long that rest is"),
)
"""Options that all connectors have."""

OF_SOURCES: Final = (
    *COMMON,
    Option("dead_letters", "text", help="the log of rejected records; NAME_dead_letters"),
    Option("reject_limit", "int", help="rejected records in a row at which it stops", least=1),
)
OF_SINKS: Final = (
    *COMMON,
    Option("dead_letters", "text", help="the log of rejected rows; NAME_dead_letters"),
    Option("start", "choice", choices=("snapshot", "earliest", "now"), help="where it begins"),
    Option("batch_rows", "int", help="at most so many rows in a batch", least=1),
    Option("batch_delay", "duration", help="how long rows are gathered for a batch"),
)


_OF_ALL: Final = frozenset(each.name for each in (*OF_SOURCES, *OF_SINKS))


class OptionProblemError(ValueError):
    """An option that cannot be; ``name`` says which, ``about_name`` whether it is unknown."""

    def __init__(self, message: str, name: str, hint: str, *, about_name: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.name = name
        self.hint = hint
        self.about_name = about_name


def check_options(given: Mapping[str, OptionValue], known: Sequence[Option]) -> tuple[str, ...]:
    """Check what was given; returns the names of the secret ones.

    >>> check_options({"topic": "t", "password": "x"},
    ...               (Option("topic", required=True), Option("password", secret=True)))
    ('password',)

    Raises:
        OptionProblemError: an unknown option, a wrong value, one that is missing.
    """
    for name, value in given.items():
        option = find_option(name, known)
        if option is None:
            names = [each.name for each in known]
            near = difflib.get_close_matches(name, names, 1)
            did = f"did you mean {near[0]}? " if near else ""
            hint = f"{did}available: {', '.join(names)}"
            raise OptionProblemError(f"there is no option {name}", name, hint, about_name=True)
        if has_reference(value):
            if name in _OF_ALL:  # which are needed before anything is opened
                raise OptionProblemError(f"{name} is {value!r}", name, "write the value itself")
            continue  # what it stands for is checked when it is opened
        try:
            _value(option, value)
        except ValueError as error:
            shown = mask_value(value, secret=_is_secret(name, option))
            raise OptionProblemError(f"{name} is {shown!r}", name, str(error)) from None
    for option in known:
        if option.required and option.name not in given:
            what = f": {option.help}" if option.help else ""
            raise OptionProblemError(
                f"the option {option.name} is missing", option.name, f"give it{what}"
            )
    return tuple(
        name
        for name in given
        if (found := find_option(name, known)) is not None and _is_secret(name, found)
    )


def find_option(name: str, known: Iterable[Option]) -> Option | None:
    """The option that a name means."""
    for each in known:
        if each.name == name or (each.name.endswith(".*") and name.startswith(each.name[:-1])):
            return each
    return None


def _is_secret(name: str, option: Option) -> bool:
    """Whether a value is secret: of those that are passed on unread, by the name as well."""
    return option.secret or (option.name.endswith(".*") and looks_secret(name))


def settings_of(given: Mapping[str, OptionValue], known: Sequence[Option]) -> Settings:
    """The values of all options; references are resolved now.

    >>> settings_of({"every": "2 seconds"}, (Option("every", "duration"), Option("size", "size")))
    Settings(every=2.0, size=None)

    Raises:
        ConnectorFailedError: a reference leads nowhere, or to a value that cannot be.
    """
    values = {each.name: each.default for each in known if not each.name.endswith(".*")}
    secrets = [each.name for each in known if each.secret]
    for name, value in given.items():
        option = find_option(name, known)
        if option is None:
            continue  # of an older version of the connector
        if _is_secret(name, option):
            secrets.append(name)
        resolved = resolve(value)
        try:
            values[name] = _value(option, resolved)
        except ValueError as error:
            shown = mask_value(resolved, secret=_is_secret(name, option))
            raise ConnectorFailedError(f"{name} is {shown!r}", hint=str(error)) from None
    return Settings(values, secrets=secrets)


# ---- secrets


def has_reference(value: object) -> bool:
    """Whether a value says where a secret is, entirely or in a part."""
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def resolve(value: OptionValue) -> OptionValue:
    """A value with what its references stand for: the environment's or a file's.

    Raises:
        ConnectorFailedError: there is no such variable or file.
    """
    return _REFERENCE.sub(_referred, value) if isinstance(value, str) else value


def _referred(found: re.Match[str]) -> str:
    name = found["name"]
    if found["where"] == "env":
        value = os.environ.get(name)
        if value is None:
            raise ConnectorFailedError(
                f"the environment variable {name} is not set",
                hint="set it for the process of the database, and RESUME the connector",
            )
        return value
    if found["where"] == "secret":  # what the catalog shows of one that is lost
        raise ConnectorFailedError(
            "a secret that was written out is not in secrets.json",
            hint="restore the file, or DROP and CREATE with ${env:NAME} or ${file:/path}",
        )
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConnectorFailedError(
            f"the file {name} cannot be read: {why}", hint="mend it, and RESUME the connector"
        ) from None


class Scrubber:
    """Takes secrets out of texts that are shown: errors of drivers like to repeat them.

    >>> Scrubber({"password": "hunter2"}, ("password",))("wrong password: hunter2")
    'wrong password: ***'
    """

    __slots__ = ("_words",)

    def __init__(self, given: Mapping[str, OptionValue], secrets: Iterable[str]) -> None:
        words: set[str] = set()
        for name, value in given.items():
            text = str(value)
            if name in secrets and not has_reference(text):
                words.add(text)
            for found in _REFERENCE.finditer(text):
                try:
                    words.add(_referred(found))
                except ConnectorFailedError:
                    continue
            words |= passwords_in(text)
        self._words = sorted((each for each in words if len(each) > 2), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """A text without the secrets."""
        for word in self._words:
            text = text.replace(word, MASK)
        return mask_url(text)


# ---- kinds of values


def _value(option: Option, value: object) -> Any:  # noqa: ANN401 - as its kind says
    """The value of an option; ValueError says what it should be."""
    if option.kind == "choice":
        if isinstance(value, str) and value.lower() in option.choices:
            return value.lower()
        raise ValueError("one of " + ", ".join(f"'{word}'" for word in option.choices))
    found = _KINDS[option.kind](value)
    least, most = option.least, option.most
    if (least is not None and found < least) or (most is not None and found > most):
        up_to = "" if most is None else f", and at most {most:,}"
        raise ValueError(f"a number of at least {least or 0:,}{up_to}")
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("a text")


def _int(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        return int(value)
    if type(value) is int:
        return value
    raise ValueError("a whole number, such as 100")


def _float(value: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if math.isfinite(found):
            return found
    raise ValueError("a number, such as 0.5")


def _bool(value: object) -> bool:
    known = {"true": True, "false": False, "on": True, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise ValueError("true or false")


def _duration(value: object) -> float:
    duration = timedelta(-1)
    if isinstance(value, str):
        try:
            duration = parse_duration(value)
        except InvalidOptionError:
            duration = timedelta(-1)
    if duration < timedelta(0):
        raise ValueError("a time, such as '5 seconds'")
    return duration.total_seconds()


def _json(value: object) -> Any:  # noqa: ANN401 - whatever it says
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            pass
    raise ValueError("JSON text, such as '{\"a\": 1}'")


_KINDS: Final[dict[str, Callable[[object], Any]]] = {
    "text": _text,
    "place": _text,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "duration": _duration,
    "size": parse_size,
    "json": _json,
}
