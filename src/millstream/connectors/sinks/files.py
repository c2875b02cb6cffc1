"""``connector = 'files'``: changes as files of Parquet, CSV, JSON lines or Arrow IPC.

A file holds whole batches. Its name ends with the token of the last one, and it appears whole or
not at all: so the newest name says what is stored, and a restart goes on exactly after it.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.connectors._storage import (
    ACCESS,
    appended,
    check_mode,
    check_not_again,
    place_of,
    stored_schema,
)
from millstream.connectors.contract import Option, SinkConnector, SinkWriter
from millstream.files.formats import FileOptions, check_csv
from millstream.files.place import NewFile
from millstream.files.writing import open_writer

if TYPE_CHECKING:
    from millstream.connectors.batches import SinkBatch
    from millstream.files.place import Place
    from millstream.files.writing import RowWriter

_ENDINGS: Final = {"parquet": "parquet", "csv": "csv", "json": "jsonl", "arrow": "arrow"}


class FilesSink(SinkConnector):
    """Writes files to a directory, a new one after so many bytes or so long."""

    name = "files"
    transactional = True
    options: ClassVar = (
        Option(
            "path", "place", required=True, help="a directory or its URL: s3://, gs://, abfs://"
        ),
        Option(
            "format",
            "choice",
            default="parquet",
            choices=("parquet", "csv", "json", "arrow"),
            help="of the files",
        ),
        Option("mode", "choice", choices=("append", "changelog"), help="rows, or changes"),
        Option("roll_size", "size", default=128 << 20, help="a new file after so many bytes"),
        Option("roll_interval", "duration", default=60.0, help="a new file after so long"),
        Option("delimiter", default=",", help="of CSV"),
        Option("header", "bool", default=True, help="of CSV"),
        *ACCESS,
    )

    @property
    def mode(self) -> str:
        """Rows, or changes."""
        given: str | None = self.settings["mode"]
        return given or ("changelog" if self.input.retracts else "append")

    def check(self) -> None:
        """See that the directory can be listed, and the mode fits."""
        check_mode(self.mode, self.input)
        if self.settings["format"] == "csv":
            check_csv(self.settings["delimiter"], is_written=True)
        directory = place_of(self.settings, self.settings["path"])
        next(directory.files(), None)
        if directory.is_local:
            NewFile(directory).discard()

    def open(self) -> SinkWriter:
        """Find out what is stored."""
        return FilesWriter(self)

    def drop(self) -> None:
        """Remove the note of what was stored; the files stay."""
        place = place_of(self.settings, self.settings["path"]).child(_note_name(self.input.id))
        if place.read_bytes() is not None:
            place.system.delete_file(place.path)


def _note_name(identity: str) -> str:
    return f"_{identity}.token"


class FilesWriter(SinkWriter):
    """Holds rows in a file that has no name yet, until it is large or old enough."""

    def __init__(self, connector: FilesSink) -> None:
        super().__init__()
        settings, source = connector.settings, connector.input
        self._directory: Place = place_of(settings, settings["path"])
        self._mode = connector.mode
        self._form: Any = settings["format"]
        self._options = FileOptions(
            self._form, header=settings["header"], delimiter=settings["delimiter"]
        )
        self._schema = stored_schema(source, self._mode)
        self._id = source.id
        self._roll_size: int = settings["roll_size"]
        self._roll_seconds: float = settings["roll_interval"]
        self._new: NewFile | None = None
        self._writer: RowWriter | None = None
        self._rows = self._files = 0
        self._began = 0.0
        self._token = ""
        self._lsn = 0
        self._stored = self._find()

    def _find(self) -> str | None:
        """The newest token: of the names, or of the note, if somebody has moved files away."""
        pattern = re.compile(rf"{re.escape(self._id)}-(\d{{19}})-(ms[\w-]+)\.[a-z]+")
        found = [
            (int(matched[1]), matched[2])
            for each in self._directory.files()
            if (matched := pattern.fullmatch(each.base_name))
        ]
        note = self._directory.child(_note_name(self._id)).read_bytes()
        if note:
            lsn, _, token = note.decode().partition(" ")
            found.append((int(lsn), token))
        return max(found)[1] if found else None

    def position(self) -> str | None:
        """The token of the newest file."""
        return self._stored

    def write(self, batch: SinkBatch) -> bool:
        """Add rows to the file; end it when it is large enough."""
        if batch.replaces:
            check_not_again(has_token=self._stored is not None, what="the directory")
        rows = appended(batch, self._mode)
        if rows.num_rows:
            self._opened().write_batch(rows)
            self._rows += rows.num_rows
        if not batch.is_complete:
            return False
        if self._new is None and not self._token:
            self._began = time.monotonic()
        self._token, self._lsn = batch.token, batch.lsn
        if self._new is None:
            return False  # nothing but its token is to be stored: in time
        is_due = self._new.size >= self._roll_size or self._is_old()
        return self._roll() if is_due else False

    def flush(self, *, finish: bool) -> bool:
        """End the file when it is old enough."""
        if not self._token:
            return self._new is None
        if not finish and not self._is_old():
            return False
        return self._roll() if self._new is not None else self._note()

    def _is_old(self) -> bool:
        return time.monotonic() - self._began >= self._roll_seconds

    def _opened(self) -> RowWriter:
        if self._writer is None:
            self._new = NewFile(self._directory)
            self._writer = open_writer(self._new.file, self._schema, self._form, self._options)
            self._began, self._token = time.monotonic(), ""
        return self._writer

    def _roll(self) -> bool:
        """Let the file appear under its name, then note its token."""
        new, writer = self._new, self._writer
        if new is None or writer is None:
            return True
        self._new = self._writer = None
        with new:
            writer.close()
            ending = _ENDINGS[self._form]
            new.finish(f"{self._id}-{self._lsn:019d}-{self._token}.{ending}")
        self._files += 1
        self._rows = 0
        return self._note()

    def _note(self) -> bool:
        """Store the token beside the files, for when they are moved away."""
        with NewFile(self._directory) as note:
            note.file.write(f"{self._lsn} {self._token}".encode())
            note.finish(_note_name(self._id))
        self._stored, self._token = self._token, ""
        return True

    def metrics(self) -> dict[str, int | float]:
        """How many files were written, and how many rows wait for theirs."""
        return {"files": self._files, "held_rows": self._rows}

    def close(self) -> None:
        """Forget the file that has no name."""
        if self._new is not None:
            self._new.discard()
            self._new = self._writer = None


CONNECTOR = FilesSink
