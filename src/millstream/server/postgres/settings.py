"""Settings of a connection: SET, SHOW and RESET, and those that clients are told of."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from millstream.engine.functions import SERVER_VERSION
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.styles import INTERVAL_STYLES, ISO, date_style, time_zone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.server.postgres.text import Text, Token

REPORTED: Final = (
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "default_transaction_read_only",
    "in_hot_standby",
    "is_superuser",
    "session_authorization",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
)
"""Those of which a client is told at the start, and when they change."""

_DEFAULTS: Final = {
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "default_transaction_read_only": "off",
    "transaction_read_only": "off",
    "in_hot_standby": "off",
    "is_superuser": "off",
    "session_authorization": "millstream",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed",
    "search_path": '"$user", public',
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "extra_float_digits": "1",
    "client_min_messages": "notice",
    "bytea_output": "hex",
    "max_identifier_length": "63",
    "max_prepared_transactions": "0",
    "row_security": "off",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "millstream.stale_ok": "off",
}
_FIXED: Final = {
    "server_version",
    "server_version_num",
    "server_encoding",
    "integer_datetimes",
    "is_superuser",
    "in_hot_standby",
    "max_identifier_length",
    "max_prepared_transactions",
}
_ONLY: Final = {
    "client_encoding": ("utf8", "utf-8", "unicode"),
    "standard_conforming_strings": ("on", "true", "1"),
    "bytea_output": ("hex",),
}
"""Settings that change how values are written, and the only ones that are written here."""

_FLAGS: Final = {
    *("default_transaction_read_only", "transaction_read_only", "row_security"),
    "millstream.stale_ok",
}
_SCHEMAS: Final = {"public", "$user", "pg_catalog"}

_MULTIPLES: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Settings:
    """The settings of one connection.

    >>> settings = Settings()
    >>> settings.set("statement_timeout", "5s"), settings.timeout
    (None, 5.0)

    Attributes:
        timeout: after so many seconds a query is cancelled; None: never.
        stale_ok: whether queries read the rows that views have, without waiting for them.
        style: how times are written and read.
    """

    def __init__(self) -> None:
        self._names = {name.lower(): name for name in _DEFAULTS}
        self._values = dict(_DEFAULTS)
        self._first = dict(_DEFAULTS)
        self.timeout: float | None = None
        self.stale_ok = False
        self.style = ISO

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(sorted(self._values.items(), key=lambda pair: pair[0].lower()))

    def get(self, name: str) -> str:
        """The value of a setting.

        Raises:
            PostgresError: there is none of that name.
        """
        known = self._names.get(name.lower())
        if known is None:
            raise PostgresError(
                f'unrecognized configuration parameter "{name}"',
                sqlstate="42704",
                hint="SHOW ALL lists them; SHOW SOURCES, TABLES and VIEWS list what there is",
            )
        return self._values[known]

    @property
    def is_read_only(self) -> bool:
        """Whether a transaction that begins now may change nothing."""
        return self._values["default_transaction_read_only"] == "on"

    def has(self, name: str) -> bool:
        """Whether there is a setting of a name, or it may be made: one of the client's own."""
        return name.lower() in self._names or "." in name

    def set(self, name: str, value: str) -> str | None:
        """Set one; returns its name if the client has to be told.

        Raises:
            PostgresError: it cannot have that value.
        """
        low = name.lower()
        known = self._names.get(low)
        if known is None:
            if "." not in name:
                self.get(name)  # which raises
            known = self._names[low] = name  # a setting of the client's own
        if value.lower() == "default":
            value = self._first.get(known, "")
        if known in _FIXED and value != self._values[known]:
            raise PostgresError(f'parameter "{known}" cannot be changed', sqlstate="55P02")
        allowed = _ONLY.get(low)
        if allowed is None:
            self._values[known] = self._taken(known, value)
        elif value.strip("'\"").lower() not in allowed:
            raise PostgresError(
                f'"{known}" cannot be {value!r}',
                sqlstate="0A000",
                hint=f"it is {self._values[known]}: values are written in that form only",
            )
        return known if known in REPORTED else None

    def start(self, name: str, value: str) -> None:
        """Set one from the start-up message: RESET brings it back to that.

        Raises:
            PostgresError: it cannot have that value.
        """
        self.set(name, value)
        self._first[self._names[name.lower()]] = self.get(name)

    def _taken(self, name: str, value: str) -> str:
        """The value as SHOW has it, once it has its effect."""
        if name in _FLAGS:
            value = "on" if _boolean(name, value) else "off"
        if name == "statement_timeout":
            self.timeout = _seconds(value)
        elif name == "millstream.stale_ok":
            self.stale_ok = value == "on"
        elif name == "search_path":
            _check_path(value)
        elif name == "TimeZone":
            value, zone = time_zone(value)
            self.style = replace(self.style, zone=zone)
        elif name == "DateStyle":
            dates, order = date_style(value, self.style)
            value = f"{dates}, {order}"
            self.style = replace(self.style, dates=dates, order=order)
        elif name == "IntervalStyle":
            value = value.lower()
            if value not in INTERVAL_STYLES:
                raise _invalid(name, value, hint=", ".join(INTERVAL_STYLES))
            self.style = replace(self.style, intervals=value)
        return value

    def reset(self, name: str) -> list[str]:
        """RESET name, or ALL; returns the names that the client has to be told."""
        if name.lower() != "all":
            self.get(name)
        names = list(self._values) if name.lower() == "all" else [self._names[name.lower()]]
        changed = [each for each in names if self._values[each] != self._first.get(each, "")]
        return [each for each in changed if self.set(each, self._first.get(each, "")) is not None]


def _invalid(name: str, value: str, hint: str = "") -> PostgresError:
    message = f'invalid value for parameter "{name}": {value!r}'
    return PostgresError(message, sqlstate="22023", hint=hint)


def _check_path(value: str) -> None:
    """Refuse a search_path that would hide what there is, which is in the schema public."""
    names = [each.strip().strip("'\"") for each in value.split(",")]
    if "public" not in names or not _SCHEMAS.issuperset(names):
        raise PostgresError(
            f"search_path cannot be {value!r}", sqlstate="3F000", hint="the only schema is public"
        )


def _boolean(name: str, value: str) -> bool:
    found = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
    if value.lower() not in found:
        raise PostgresError(
            f'parameter "{name}" requires a Boolean value', sqlstate="22023", hint="on, or off"
        )
    return found[value.lower()]


def _seconds(value: str) -> float | None:
    text = value.strip().lower()
    unit = text.lstrip("0123456789.").strip()
    try:
        number = float(text.removesuffix(unit)) * _MULTIPLES[unit or "ms"]
    except (ValueError, KeyError) as error:
        raise PostgresError(
            f'invalid value for "statement_timeout": {value!r}', sqlstate="22023"
        ) from error
    return number or None


def assignment(text: Text) -> tuple[str, str]:
    """The name and the value of ``SET [SESSION | LOCAL] name TO | = value``.

    Raises:
        PostgresError: it is written otherwise.
    """
    tokens = list(text.tokens[1:])
    if tokens and tokens[0].word in {"SESSION", "LOCAL"} and len(tokens) > 2:
        tokens = tokens[1:]
    if [each.word for each in tokens[:2]] == ["TIME", "ZONE"]:
        return "TimeZone", _value(tokens[2:])
    name, place = _name(tokens)
    if name.lower() == "timezone" and place < len(tokens) and tokens[place].word == "INTERVAL":
        return "TimeZone", _value(tokens[place:])
    if place < len(tokens) and tokens[place].word in {"TO", "="}:
        return name, _value(tokens[place + 1 :])
    raise PostgresError("SET name TO value is expected", sqlstate="42601", position=text.start + 1)


def access_mode(text: Text) -> bool | None:
    """Whether a statement says READ ONLY; None: neither that nor READ WRITE."""
    pairs = pairwise(each.word for each in text.tokens)
    modes = [after for word, after in pairs if word == "READ" and after in {"ONLY", "WRITE"}]
    return modes[-1] == "ONLY" if modes else None


def reset_name(text: Text) -> str:
    """The name of ``RESET name``."""
    return _name(list(text.tokens[1:]))[0]


def _name(tokens: list[Token]) -> tuple[str, int]:
    parts, place = [], 0
    while place < len(tokens) and tokens[place].identifier:
        parts.append(tokens[place].text.strip('"'))
        place += 1
        if place >= len(tokens) or tokens[place].text != ".":
            break
        place += 1
    return ".".join(parts), place


def _value(tokens: list[Token]) -> str:
    if tokens and tokens[0].word == "INTERVAL":  # SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE
        tokens = tokens[1:2]
        return f"interval {tokens[0].value}" if tokens else ""
    parts, sign = [], ""
    for each in tokens:
        if each.text in {"-", "+"}:
            sign = each.text
        elif each.text != ",":
            parts.append(sign + each.value)
            sign = ""
    if not parts:
        raise PostgresError("SET needs a value", sqlstate="42601")
    return ", ".join(parts)


def startup_options(text: str) -> list[tuple[str, str]]:
    """The settings in the ``options`` of a start-up message: ``-c name=value`` or ``--name=value``.

    >>> startup_options(r"-c statement_timeout=5s --search-path=public")
    [('statement_timeout', '5s'), ('search_path', 'public')]

    Raises:
        PostgresError: it has something else.
    """
    words = [re.sub(r"\\(.)", r"\1", each) for each in re.findall(r"(?:\\.|[^\s\\])+", text)]
    found = []
    rest = iter(words)
    for word in rest:
        given = word[2:] if word.startswith(("-c", "--")) else None
        if word == "-c":
            given = next(rest, None)
        name, is_set, value = (given or "").partition("=")
        if not name or not is_set:
            raise PostgresError(
                f"invalid command-line argument for server process: {word}",
                sqlstate="42601",
                hint="options are -c name=value",
                is_fatal=True,
            )
        found.append((name.replace("-", "_"), value))
    return found
