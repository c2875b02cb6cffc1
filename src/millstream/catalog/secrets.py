"""Secrets that were written out in a statement: kept in a file of their own, not in the log.

The log has the id of a secret in its place, so that segments, and copies of them, have none.
"""

from __future__ import annotations

import json
import logging
import re
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from millstream.catalog.connection import mask_value
from millstream.log.storage import translate, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from millstream.catalog.connection import Connection

FILE_NAME: Final = "secrets.json"
_ID: Final = "secret"
_LOST: Final = re.compile(r"\$\{secret:(?P<id>[0-9a-f]+)\}")
_logger = logging.getLogger("millstream.catalog")


class Secrets:
    """The secrets of a database, in ``secrets.json``, which only its owner may read.

    Args:
        path: the file; made with the first secret.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, str] = self._read()

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._path.read_bytes())
            return {str(name): str(value) for name, value in found["secrets"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            aside = self._path.with_suffix(".damaged")
            _logger.warning("%s cannot be read, and is now %s", self._path, aside.name)
            self._path.replace(aside)
            return {}

    def _write(self, values: dict[str, str]) -> None:
        text = json.dumps({"version": 1, "secrets": values})
        try:
            write_file(self._path, [text.encode()])
        except OSError as error:
            raise translate(error, self._path, "write") from error
        self._values = values

    def take_out(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """An entry of the catalog with ids for its secrets, which are on the disk by then.

        Raises:
            LogError: they cannot be written.
        """
        connection = entry.get("connection")
        if connection is None:
            return {**entry}
        options, values = dict(connection["options"]), dict(self._values)
        for name, value in options.items():
            lost = _LOST.fullmatch(str(value))
            if lost is not None:
                options[name] = {_ID: lost["id"]}
            elif mask_value(value, secret=name in connection["secrets"]) != value:
                options[name] = {_ID: _id_of(str(value), values)}
        if len(values) > len(self._values):
            self._write(values)
        return {**entry, "connection": {**connection, "options": options}}

    def put_back(self, entry: dict[str, Any]) -> dict[str, Any]:
        """The entry that ``take_out`` was given; of a secret that is lost, a reference to it."""
        connection = entry.get("connection")
        if connection is None:
            return entry
        options = {
            name: self._value_of(value[_ID]) if isinstance(value, dict) else value
            for name, value in connection["options"].items()
        }
        return {**entry, "connection": {**connection, "options": options}}

    def _value_of(self, known: str) -> str:
        return self._values.get(known, f"${{secret:{known}}}")  # whose connector says what to do

    def keep_only(self, connections: Iterable[Connection]) -> None:
        """Forget the secrets that none of these connections has."""
        used = {str(value) for each in connections for value in each.options.values()}
        kept = {name: value for name, value in self._values.items() if value in used}
        if len(kept) < len(self._values):
            self._write(kept)


def _id_of(value: str, values: dict[str, str]) -> str:
    """The id of a secret, which is added when it is new."""
    for known, each in values.items():
        if each == value:
            return known
    made = token_hex(8)
    values[made] = value
    return made
