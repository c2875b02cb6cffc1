"""Connectors for tests: lines of a file as a source or a table, a SQLite database as a sink.

Imported, also by child processes, they are registered.
"""

import json
import sqlite3
import time
from pathlib import Path

from millstream.connectors import (
    TRUNCATE,
    UNCHANGED,
    ConnectorFailedError,
    Delivery,
    Option,
    Rejected,
    Schema,
    SinkConnector,
    SinkWriter,
    SourceConnector,
    SourceReader,
    delete,
    register,
    upsert,
)


class Lines(SourceConnector):
    """Each line is a JSON array: a row; or, of a table, an object that says what to do."""

    name = "test-lines"
    kinds = ("source", "table")
    options = (
        Option("path", required=True, help="the file"),
        Option("password", secret=True),
        Option("lines", "int", default=7, help="lines of a delivery"),
        Option("mode", "choice", default="plain", choices=("plain", "timed", "fails", "raises")),
    )

    def check(self):
        if self.settings["mode"] == "fails":
            raise ConnectorFailedError(f"no entry with {self.settings['password']}")
        if self.settings["mode"] == "raises":
            raise OSError(f"cannot connect with {self.settings['password']}")

    def discover(self):
        columns = {"id": "BIGINT NOT NULL", "v": "VARCHAR"}
        if self.settings["mode"] == "timed":
            columns["ts"] = "TIMESTAMP"
        return Schema.of(columns, key=("id",))

    def open(self, position):
        return LinesReader(self.settings, self.target, position or 0)

    def drop(self, position):
        Path(self.settings["path"] + ".dropped").write_text(str(position))


class LinesReader(SourceReader):
    def __init__(self, settings, target, position):
        if settings["password"] == "wrong":
            raise OSError("password 'wrong' was refused by db://me:wrong@there")
        self._file = open(settings["path"], "rb")  # noqa: SIM115
        self._file.seek(position)
        self._lines = settings["lines"]
        self._is_table = target.kind == "table"
        self._notes = Path(settings["path"] + ".committed")

    def read(self, timeout):
        rows, changes, rejected = [], [], []
        deadline = time.monotonic() + timeout
        while True:
            for _ in range(self._lines):
                at = self._file.tell()
                line = self._file.readline()
                if not line.endswith(b"\n"):
                    self._file.seek(at)
                    break
                try:
                    value = json.loads(line)
                except ValueError as error:
                    rejected.append(Rejected(str(error), line, f"byte {at}"))
                    continue
                (changes if self._is_table and isinstance(value, dict) else rows).append(value)
            if rows or changes or rejected:
                return Delivery(
                    rows=[tuple(row) for row in rows],
                    changes=[made(each) for each in changes],
                    position=self._file.tell(),
                    rejected=rejected,
                )
            if time.monotonic() > deadline:
                return None
            time.sleep(0.002)

    def committed(self, position):
        self._notes.write_text(str(position))

    def lag(self):
        return Path(self._file.name).stat().st_size - self._file.tell()

    def metrics(self):
        return {"lines": self._lines}

    def close(self):
        self._file.close()


def made(value):
    if value["op"] == "truncate":
        return TRUNCATE
    if value["op"] == "delete":
        return delete(tuple(value["key"]))
    row = tuple(UNCHANGED if each == "?" else each for each in value["row"])
    return upsert(row, tuple(value["key"]) if "key" in value else None)


class Sqlite(SinkConnector):
    """Rows by key, and the token of the last batch, in one transaction."""

    name = "test-sqlite"
    transactional = True
    options = (Option("path", required=True), Option("held", "bool", default=False))

    def open(self):
        return SqliteWriter(self.settings, self.input)


class SqliteWriter(SinkWriter):
    def __init__(self, settings, given):
        super().__init__()
        self._held = settings["held"]
        self._id = given.id
        self._db = sqlite3.connect(settings["path"], isolation_level=None)
        self._db.execute("CREATE TABLE IF NOT EXISTS stored (id BIGINT PRIMARY KEY, v TEXT)")
        self._db.execute("CREATE TABLE IF NOT EXISTS tokens (sink TEXT PRIMARY KEY, token TEXT)")

    def position(self):
        found = self._db.execute("SELECT token FROM tokens WHERE sink = ?", (self._id,)).fetchone()
        return None if found is None else found[0]

    def write(self, batch):
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
        if batch.replaces:
            self._db.execute("DELETE FROM stored")
        net = batch.net()
        self._db.executemany("DELETE FROM stored WHERE id = ?", net.deletes)
        self._db.executemany("INSERT OR REPLACE INTO stored VALUES (?, ?)", net.upserts)
        if not batch.is_complete:
            return False
        self._db.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?)", (self._id, batch.token))
        return False if self._held else self.flush(finish=True)

    def flush(self, *, finish):
        if self._db.in_transaction:
            self._db.execute("COMMIT")
        return True

    def close(self):
        self._db.close()


class Append(SinkConnector):
    """Appends rows to a file, at least once; refuses rows whose text is ``poison``."""

    name = "test-append"
    rejects = True
    options = (Option("path", required=True),)

    def open(self):
        return AppendWriter(self.settings["path"])


class AppendWriter(SinkWriter):
    def __init__(self, path):
        super().__init__()
        self._path = Path(path)

    def write(self, batch):
        with self._path.open("a") as file:
            for change in batch:
                if change.row[1] == "poison":
                    self.reject("it is poison", json.dumps(change.row).encode(), f"{change.lsn}")
                else:
                    file.write(json.dumps(change.row) + "\n")
        return True


for each in (Lines, Sqlite, Append):
    register(each)
