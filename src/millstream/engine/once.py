"""Inserts that count once: a key is committed together with the rows, in one commit of the log.

Rows and key are in the log both or neither, whatever crashes. The keys of the last day are read
back when they are first needed, so a repeated insert is recognized after a restart, too.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidOptionError
from millstream.log import Retention
from millstream.model.arguments import check_text
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from millstream.catalog import Definition
    from millstream.dispatch import Dispatcher
    from millstream.log import Log

TOPIC: Final = "__inserted"
KEPT_SECONDS: Final = 86_400.0
KEPT_KEYS: Final = 1 << 18
_SCHEMA: Final = Schema.of(digest="BINARY NOT NULL", rows="BIGINT NOT NULL")


@dataclass(frozen=True, slots=True)
class Insertion:
    """What an insert with a key has done.

    Attributes:
        rows: how many rows the first insert with that key has added.
        repeated: whether that was an earlier one, so that this one has added nothing.
    """

    rows: int
    repeated: bool


class RepeatedInsert(Exception):  # noqa: N818 - never leaves the engine
    """The key was committed before."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class InsertKey:
    """The key of one insert, to be committed with its rows. The dispatcher's thread uses it.

    Attributes:
        entry: the topic and the row that go into the commit.
    """

    __slots__ = ("_digest", "_keys", "_rows", "entry")

    def __init__(self, keys: InsertKeys, digest: bytes, rows: int) -> None:
        self._keys = keys
        self._digest = digest
        self._rows = rows
        self.entry = (TOPIC, ChangeBatch(_SCHEMA, [(digest, rows)], None, None))

    def check(self) -> None:
        """Raise if it was committed before.

        Raises:
            RepeatedInsert: it was.
            InvalidOptionError: it was, with another number of rows.
        """
        known = self._keys.get(self._digest)
        if known is None:
            return
        if known != self._rows:
            raise InvalidOptionError(
                f"this key was used for an insert of {known:,} rows, not {self._rows:,}",
                hint="use a new key for other rows",
            )
        raise RepeatedInsert(known)

    def applied(self) -> None:
        """It was committed."""
        self._keys.add(self._digest, self._rows)


class InsertKeys:
    """The keys of the inserts of the last day, at most the newest 262,144."""

    def __init__(self, log: Log, dispatcher: Dispatcher) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._lock = threading.Lock()
        self._rows: dict[bytes, int] | None = None  # the oldest first

    def key(self, definition: Definition, tenant: str | None, key: object, rows: int) -> InsertKey:
        """The key of an insert of so many rows; those of tenants and of relations are apart.

        Raises:
            InvalidOptionError: it is no text, or an empty one.
        """
        check_text(key, "the key")
        if not key:
            raise InvalidOptionError("the key is empty", hint="a new text for each insert")
        text = json.dumps([tenant, definition.name, definition.born, key])
        self._load()
        return InsertKey(self, hashlib.sha256(text.encode("utf-8")).digest()[:16], rows)

    def get(self, digest: bytes) -> int | None:
        """How many rows were committed with a key; None if none were."""
        return None if self._rows is None else self._rows.get(digest)

    def add(self, digest: bytes, rows: int) -> None:
        """Remember a key that was committed."""
        known = self._rows
        if known is None:
            raise AssertionError("keys are loaded before one is made")
        known[digest] = rows
        if len(known) > KEPT_KEYS:
            del known[next(iter(known))]

    def _load(self) -> None:
        """Read the keys that are kept in the log, the first time."""
        with self._lock:
            if self._rows is not None:
                return
            if TOPIC not in self._log.topics:
                retention = Retention(max_age=KEPT_SECONDS)
                self._dispatcher.call(
                    lambda: self._log.create_topic(TOPIC, _SCHEMA, retention=retention)
                )
            rows = [row for batch in self._log.salvage(TOPIC) for row in batch.held_rows]
            self._rows = dict(rows[-KEPT_KEYS:])
