"""``connector = 'delta'``: the rows of a table of Delta Lake, and every version that follows.

A version that only adds files is read by these files. One that deletes or updates rows is read by
the table's change data feed, into a table with a key; without the feed, or into a source, it is
refused. Versions that only arrange files anew, as a compaction does, are passed over.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

import pyarrow as pa

from millstream.connectors._delta import open_table
from millstream.connectors._storage import ACCESS, STORAGE, place_of
from millstream.connectors.contract import Delivery, Option, SourceReader
from millstream.connectors.sources._lake_table import FOLLOWING, LakeReader, LakeSource, nullable
from millstream.errors import ConnectorFailedError
from millstream.model.row_change import delete, upsert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.files.place import Place
    from millstream.model.row_change import RowChange
    from millstream.model.schema import Column

_PIECE_ROWS: Final = 65_536
_FEED: Final = "delta.enableChangeDataFeed"


class DeltaSource(LakeSource):
    """Follows a table of Delta Lake."""

    name = "delta"
    extra = "delta"
    options: ClassVar = (
        Option("path", "place", required=True, help="the directory of the table, or its URL"),
        *FOLLOWING,
        *ACCESS,
        STORAGE,
    )

    def found(self) -> pa.Schema:
        """The columns of the table."""
        return _columns(_existing(open_table(self.settings), self.settings["path"]))

    def open(self, position: Any) -> SourceReader:  # noqa: ANN401 - a JSON value
        """Go on after a version, or within it."""
        return DeltaReader(self, position)


def _existing(table: Any, path: str) -> Any:  # noqa: ANN401 - of the library
    if table is None:
        raise ConnectorFailedError(
            f"there is no table of Delta Lake at {path}", hint="see the path, and RESUME"
        )
    return table


def _columns(table: Any) -> pa.Schema:  # noqa: ANN401 - of the library
    return pa.schema(table.schema().to_arrow())


class DeltaReader(LakeReader):
    """Reads versions one after the other. A position is the version at hand and what is done of it.

    ``{"version": 7}``: all of it. ``{"version": 7, "file": 2, "row": 100}``: two of its files, and
    100 rows of the third; with ``"snapshot"``, of the files that the table had at that version.
    """

    def __init__(self, connector: DeltaSource, position: Any) -> None:  # noqa: ANN401
        super().__init__(connector.settings["poll_interval"])
        self._settings = connector.settings
        self._schema = connector.target.schema
        self._is_table = connector.target.kind == "table"
        self._table = _existing(open_table(self._settings), self._settings["path"])
        self._log: Place = place_of(self._settings, self._settings["path"]).child("_delta_log")
        self._newest: int = self._table.version()
        self._files: list[str] | None = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        if position is None:
            begins_now = connector.settings["start"] == "now"
            position = {"version": self._newest}
            if not begins_now:
                position |= {"file": 0, "row": 0, "snapshot": True}
        self._at: dict[str, Any] = dict(position)

    def read(self, timeout: float) -> Delivery | None:
        """The next rows, of one version at most."""
        if "file" not in self._at and not self.has_next(timeout):
            return None
        if "file" in self._at:
            return self._next_rows()
        return self._next_version()

    def is_behind(self) -> bool:
        """Whether there is a version after the one that is done."""
        return bool(self._newest > self._at["version"])

    def look(self) -> None:
        """Find the newest version."""
        self._table.update_incremental()
        self._newest = self._table.version()

    # ---- a version

    def _next_version(self) -> Delivery:
        version = self._at["version"] + 1
        actions = self._actions(version)
        changed = [
            each
            for name in ("add", "remove")
            for action in actions
            if (each := action.get(name)) is not None and each.get("dataChange", True)
        ]
        removes = any(
            action["remove"].get("dataChange", True) for action in actions if "remove" in action
        )
        if removes:
            return self._changes(version)
        self._at = {"version": version}
        if not changed:
            return Delivery(position=dict(self._at), new_columns=self._new_columns(actions))
        self._files = sorted(unquote(each["path"]) for each in changed)
        self._at |= {"file": 0, "row": 0}
        return self._next_rows(self._new_columns(actions))

    def _actions(self, version: int) -> list[dict[str, Any]]:
        text = self._log.child(f"{version:020d}.json").read_bytes()
        if text is None:
            raise ConnectorFailedError(
                f"version {version} of the table is gone: its log was cleaned up",
                hint="DROP it and create it anew, which begins with the rows that are there; "
                "let delta.logRetentionDuration be longer",
            )
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def _new_columns(self, actions: list[dict[str, Any]]) -> list[Column]:
        """Columns that the table has got, when its schema has changed."""
        if not any("metaData" in action for action in actions):
            return []
        columns = nullable(_columns(self._table)).columns
        return [each for each in columns if each.name not in self._schema.names]

    def _changes(self, version: int) -> Delivery:
        """A version that deletes or updates rows, as its change data feed has them."""
        if not self._is_table:
            raise ConnectorFailedError(
                f"version {version} of the table deletes or updates rows, and a source only has "
                "new ones",
                hint="CREATE TABLE with a PRIMARY KEY, WITH the same options",
            )
        table = _existing(open_table(self._settings, version), f"version {version}")
        if table.metadata().configuration.get(_FEED) != "true":
            raise ConnectorFailedError(
                f"version {version} of the table deletes or updates rows, and it has no change "
                "data feed",
                hint=f"set {_FEED} = true on the table, then DROP this and create it anew",
            )
        found = pa.table(table.load_cdf(version, version))
        self._at = {"version": version}
        return Delivery(changes=self._row_changes(found), position=dict(self._at))

    def _row_changes(self, found: pa.Table) -> list[RowChange]:
        kinds = found["_change_type"].to_pylist()
        names = self._schema.names
        batch = found.select([name for name in names if name in found.column_names])
        rows = [row for each in batch.to_batches() for row in self._schema.arrow_to_rows(each)]
        places = [names.index(name) for name in self._schema.key]
        puts = {
            tuple(row[place] for place in places): row
            for kind, row in zip(kinds, rows, strict=True)
            if kind in {"insert", "update_postimage"}
        }
        gone = dict.fromkeys(
            key
            for kind, row in zip(kinds, rows, strict=True)
            if kind in {"delete", "update_preimage"}
            and (key := tuple(row[place] for place in places)) not in puts
        )
        return [*map(delete, gone), *(upsert(row) for row in puts.values())]

    # ---- rows of files

    def _next_rows(self, new_columns: list[Column] | None = None) -> Delivery:
        """Rows of the version at hand, up to some ten thousand."""
        at, tables, rows = self._at, [], 0
        fragments = self._fragments()
        while at["file"] < len(fragments) and rows < _PIECE_ROWS:
            if self._batches is None:
                self._batches = self._opened(fragments[at["file"]], at["row"])
            batch = next(self._batches, None)
            if batch is None:
                self._batches = None
                self._at = at = {**at, "file": at["file"] + 1, "row": 0}
                continue
            tables.append(pa.Table.from_batches([batch]))
            rows += batch.num_rows
            self._at = at = {**at, "row": at["row"] + batch.num_rows}
        if at["file"] >= len(fragments):
            self._files = self._dataset_of = None
            self._at = {"version": at["version"]}
        made = pa.concat_tables(tables, promote_options="default") if tables else ()
        return Delivery(rows=made, position=dict(self._at), new_columns=new_columns or ())

    _dataset_of: Any = None

    def _fragments(self) -> list[Any]:
        """The files of the version at hand, in an order that stays."""
        if self._dataset_of is None:
            table = _existing(open_table(self._settings, self._at["version"]), "this version")
            dataset = table.to_pyarrow_dataset()
            names = self._schema.names
            self._wanted = [name for name in dataset.schema.names if name in names]
            if "snapshot" not in self._at and self._files is None:  # opened in its middle
                actions = self._actions(self._at["version"])
                adds = [each["add"] for each in actions if "add" in each]
                self._files = [
                    unquote(each["path"]) for each in adds if each.get("dataChange", True)
                ]
            found = sorted(dataset.get_fragments(), key=lambda each: str(each.path))
            if self._files is not None:
                files = set(self._files)
                found = [each for each in found if unquote(str(each.path)) in files]
            self._dataset_of = (dataset, found)
        return list(self._dataset_of[1])

    def _opened(self, fragment: Any, start: int) -> Iterator[pa.RecordBatch]:  # noqa: ANN401
        schema = self._dataset_of[0].schema
        before = 0
        for batch in fragment.to_batches(schema=schema, use_threads=False):
            left = batch.slice(min(max(start - before, 0), batch.num_rows))
            before += batch.num_rows
            if left.num_rows:
                yield left.select(self._wanted)

    def lag(self) -> int | None:
        """How many versions wait."""
        return int(max(0, self._newest - self._at["version"]) + ("file" in self._at))

    def metrics(self) -> dict[str, int | float]:
        """The version that it is at."""
        return {"table_version": self._at["version"]}


CONNECTOR = DeltaSource
