"""``connector = 'files'``: the files of a directory, each once, as they come.

A file is known by its name. It is taken when it is complete, piece by piece; the position after a
piece is the set of files that are done and, in the one at hand, the offset after the piece.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from millstream.connectors._storage import ACCESS, place_of
from millstream.connectors.contract import (
    WITHIN,
    Delivery,
    Option,
    Rejected,
    SourceConnector,
    SourceReader,
)
from millstream.connectors.sources._directory import Directory, FoundFile
from millstream.connectors.sources._done_files import DoneFiles
from millstream.errors import (
    ConnectorFailedError,
    FileFormatError,
    InvalidOptionError,
    SchemaMismatchError,
)
from millstream.files.formats import FORMATS, FileOptions
from millstream.files.reading import PIECE_ROWS, discover_schema, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.files.pieces import Piece
    from millstream.files.place import Place
    from millstream.model.schema import Schema

_MOST_FILES: Final = 256
_NANOSECONDS: Final = 1_000_000_000
_LOCAL_SETTLE: Final = 1.0
_MEND: Final = "mend or remove the file and RESUME, or create it with on_bad_file = 'skip'"


class FilesSource(SourceConnector):
    """Follows a directory or a pattern."""

    name = "files"
    kinds: ClassVar = ("source", "table")
    options: ClassVar = (
        Option(
            "path",
            "place",
            required=True,
            help="a directory or a pattern (data/*.csv), or its URL: s3://",
        ),
        Option("format", "choice", choices=FORMATS, help="of the files; else by their endings"),
        Option(
            WITHIN,
            help="links must not lead out of this directory; a server sets it for --files-dir",
        ),
        Option("poll_interval", "duration", default=1.0, help="how often it is looked at"),
        Option(
            "settle",
            "duration",
            help="a file is complete when size and time stay so long; 1 second, in stores 0",
        ),
        Option("max_age", "duration", help="files that are so much older are passed over"),
        Option(
            "on_bad_file",
            "choice",
            default="fail",
            choices=("fail", "skip"),
            help="what to do with a file that cannot be read",
        ),
        Option("delimiter", default=",", help="of CSV"),
        Option("header", "bool", default=True, help="of CSV"),
        Option("null", default="", help="of CSV: how NULL is written"),
        *ACCESS,
    )

    @property
    def file_options(self) -> FileOptions:
        """How its files are read."""
        settings = self.settings
        return FileOptions(
            settings["format"],
            header=settings["header"],
            delimiter=settings["delimiter"],
            null=settings["null"],
        )

    def directory(self) -> Directory:
        """What is looked at."""
        place = place_of(self.settings, self.settings["path"])
        if place.is_local and Path(place.path).is_file():
            raise InvalidOptionError(
                f"{place.path} is a file, and a directory or a pattern is followed",
                hint="COPY reads one file; or give its directory",
            )
        settle = self.settings["settle"]
        if settle is None:
            settle = _LOCAL_SETTLE if place.is_local else 0.0
        return Directory(
            place,
            any_ending=self.settings["format"] is not None,
            settle=settle,
            clock=time.monotonic,
            within=self.settings[WITHIN],
        )

    def check(self) -> None:
        """See that the options fit, and that the directory can be read."""
        _ = self.file_options
        self.directory().look()

    def discover(self) -> Schema:
        """The columns of the oldest file."""
        directory = self.directory()
        found = directory.all_files()
        if not found:
            raise ConnectorFailedError(
                f"there is no file in {directory.place.path} yet, so its columns are not known",
                hint=f"write them: CREATE {self.target.kind.upper()} {self.target.name} (a BIGINT)",
            )
        return discover_schema(directory.place.child(found[0].name), self.file_options)

    def open(self, position: Any) -> SourceReader:  # noqa: ANN401 - a JSON value
        """Go on after what is done."""
        return FilesReader(self, position)


class FilesReader(SourceReader):
    """Takes the files that are new."""

    def __init__(self, connector: FilesSource, position: Any) -> None:  # noqa: ANN401
        settings = connector.settings
        self._directory = connector.directory()
        self._schema: Schema = connector.target.schema
        self._options = connector.file_options
        self._skips_bad = settings["on_bad_file"] == "skip"
        self._every: float = settings["poll_interval"]
        self._max_age: float | None = settings["max_age"]
        position = position or {}
        self._done = DoneFiles.from_json(position.get("done", []))
        self._recent: dict[str, int] = dict(position.get("recent", {}))  # with max_age: their times
        self._horizon: int = position.get("horizon", 0)
        self._at: dict[str, Any] | None = position.get("file")
        self._waiting: list[FoundFile] = []
        self._pieces: Iterator[Piece] | None = None
        self._next_look = 0.0
        self._files = 0

    # ---- what is new

    def _is_done(self, found: FoundFile) -> bool:
        if self._max_age is None:
            return found.name in self._done
        return found.modified < self._horizon or found.name in self._recent

    def _finish(self, found: FoundFile) -> None:
        """A file is done."""
        self._files += 1
        self._at = self._pieces = None
        if self._max_age is None:
            self._done.add(found.name)
            return
        self._recent[found.name] = found.modified
        newest = max(self._recent.values()) - int(self._max_age * _NANOSECONDS)
        if newest > self._horizon:
            self._horizon = newest
            self._recent = {name: at for name, at in self._recent.items() if at >= newest}

    def _position(self) -> dict[str, Any]:
        if self._max_age is None:
            return {"done": self._done.to_json(), "file": self._at}
        return {"recent": dict(self._recent), "horizon": self._horizon, "file": self._at}

    def _look(self) -> None:
        self._next_look = time.monotonic() + self._every
        found = self._directory.look()
        at = self._at
        waiting = [each for each in found if not self._is_done(each)]
        if at is not None:  # it was half done when this reader was opened
            waiting = [each for each in waiting if each.name == at["name"]]
            if not waiting and not self._directory.has(at["name"]):
                raise ConnectorFailedError(
                    f"the file {at['name']} is gone, of which only a part was read",
                    hint="put it back as it was, and RESUME",
                )
        self._waiting = waiting

    # ---- reading

    def read(self, timeout: float) -> Delivery | None:
        """The next piece of a file, or several small files."""
        deadline = time.monotonic() + timeout
        while not self._waiting:
            if time.monotonic() >= self._next_look:
                self._look()
                if self._waiting:
                    break
            now = time.monotonic()
            if now >= deadline:
                return None
            time.sleep(max(0.0, min(self._next_look, deadline) - now))
        tables: list[pa.Table] = []
        rejected: list[Rejected] = []
        rows = files = 0
        while self._waiting and rows + len(rejected) < PIECE_ROWS and files < _MOST_FILES:
            found = self._waiting[0]
            piece = self._next_piece(found, rejected)
            if piece is None:
                files += 1
                self._waiting.pop(0)
                continue
            tables += [pa.Table.from_batches([each.arrow]) for each in piece.batches]
            rows += piece.rows
            rejected += [
                Rejected(each.reason, each.payload, f"{found.name}:{each.line}")
                for each in piece.bad
            ]
        made = pa.concat_tables(tables) if tables else ()
        return Delivery(rows=made, position=self._position(), rejected=rejected)

    def _next_piece(self, found: FoundFile, rejected: list[Rejected]) -> Piece | None:
        """The next piece of a file; None: it is done."""
        try:
            piece = next(self._opened(found), None)
        except (FileFormatError, SchemaMismatchError) as error:
            if not self._skips_bad:
                hint = f"{error.hint.rstrip('.')}; {_MEND}"
                raise ConnectorFailedError(error.message, hint=hint) from error
            rejected.append(Rejected(error.message, b"", found.name))
            self._finish(found)
            return None
        if piece is None:
            self._check_unchanged(found)
            self._finish(found)
            return None
        self._at = {
            "name": found.name,
            "size": found.size,
            "modified": found.modified,
            "offset": piece.offset,
            "line": piece.line,
        }
        return piece

    def _opened(self, found: FoundFile) -> Iterator[Piece]:
        if self._pieces is None:
            start = line = 0
            at = self._at
            if at is not None and at["name"] == found.name:
                if (at["size"], at["modified"]) != (found.size, found.modified):
                    raise _changed(found)
                start, line = at["offset"], at["line"]
            place = self._directory.place.child(found.name)
            self._pieces = read_file(
                place, self._schema, self._options, start=start, line=line, tolerant=True
            )
        return self._pieces

    def _check_unchanged(self, found: FoundFile) -> None:
        """Raise if a file is not what it was when it was found."""
        place: Place = self._directory.place.child(found.name)
        info = place.system.get_file_info(place.path)
        if info.size is not None and (info.size, info.mtime_ns) != (found.size, found.modified):
            raise _changed(found)

    def lag(self) -> int | None:
        """How many files wait."""
        return len(self._waiting)

    def metrics(self) -> dict[str, int | float]:
        """How many files were taken."""
        return {"files": self._files, "files_known": len(self._done) or len(self._recent)}


def _changed(found: FoundFile) -> ConnectorFailedError:
    return ConnectorFailedError(
        f"the file {found.name} has changed while it was read",
        hint="write files under another name and rename them, or let settle be longer; "
        "a file that was taken is not read again",
    )


CONNECTOR = FilesSource
