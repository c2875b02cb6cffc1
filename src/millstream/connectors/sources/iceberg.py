"""``connector = 'iceberg'``: the rows of a table of Iceberg, and every snapshot that appends.

A snapshot that deletes or overwrites rows is refused: which rows they were is not in the table. One
that only arranges files anew, as a compaction does, is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from millstream.connectors._iceberg import CATALOG, find_table, open_catalog
from millstream.connectors.contract import Delivery, SourceReader
from millstream.connectors.registry import needs
from millstream.connectors.sources._lake_table import FOLLOWING, LakeReader, LakeSource
from millstream.errors import ConnectorFailedError

if TYPE_CHECKING:
    import pyarrow as pa


class IcebergSource(LakeSource):
    """Follows a table of Iceberg."""

    name = "iceberg"
    extra = "iceberg"
    options: ClassVar = (*CATALOG, *FOLLOWING)

    def table(self) -> Any:  # noqa: ANN401 - of the library
        """The table.

        Raises:
            ConnectorFailedError: there is none.
        """
        found = find_table(open_catalog(self.settings), self.settings["table"])
        if found is None:
            raise ConnectorFailedError(
                f"there is no table {self.settings['table']} in the catalog",
                hint="see its name, and RESUME",
            )
        return found

    def found(self) -> pa.Schema:
        """The columns of the table."""
        return self.table().schema().as_arrow()

    def open(self, position: Any) -> SourceReader:  # noqa: ANN401 - a JSON value
        """Go on after a snapshot, or within it."""
        return IcebergReader(self, position)


class IcebergReader(LakeReader):
    """Reads snapshots one after the other, and their files in the order of their names.

    A position is ``{"snapshot": id}``, all of it, or ``{"snapshot": id, "file": 2}``, two files of
    it; with ``"all"``, of the files that the table had then. The id is 0 before the first snapshot.
    """

    def __init__(self, connector: IcebergSource, position: Any) -> None:  # noqa: ANN401
        super().__init__(connector.settings["poll_interval"])
        self._table = connector.table()
        self._schema = connector.target.schema
        self._waiting: list[Any] = []
        self._tasks: list[Any] | None = None
        if position is None:
            current = self._table.current_snapshot()
            position = {"snapshot": 0 if current is None else current.snapshot_id}
            if current is not None and connector.settings["start"] == "snapshot":
                position |= {"file": 0, "all": True}
        self._at: dict[str, Any] = dict(position)

    def read(self, timeout: float) -> Delivery | None:
        """The rows of the next file."""
        if "file" in self._at:
            return self._next_file()
        if not self.has_next(timeout):
            return None
        snapshot = self._waiting.pop(0)
        operation = snapshot.summary.operation.value if snapshot.summary else "append"
        if operation in {"delete", "overwrite"}:
            raise ConnectorFailedError(
                f"the snapshot {snapshot.snapshot_id} of the table is an {operation}, and which "
                "rows it has removed is not known",
                hint="only appends can be followed; DROP this and create it anew, which begins "
                "with the rows that are there",
            )
        self._at = {"snapshot": snapshot.snapshot_id}
        if operation == "replace":
            return Delivery(position=dict(self._at))
        self._at["file"] = 0
        return self._next_file()

    # ---- snapshots

    def is_behind(self) -> bool:
        """Whether there are snapshots that wait."""
        return bool(self._waiting)

    def look(self) -> None:
        """Find the snapshots after the one that is done."""
        self._table.refresh()
        self._waiting = self._after(self._at["snapshot"])

    def _after(self, known: int) -> list[Any]:
        """The snapshots after one, oldest first."""
        found: list[Any] = []
        snapshot = self._table.current_snapshot()
        while snapshot is not None and snapshot.snapshot_id != known:
            found.append(snapshot)
            parent = snapshot.parent_snapshot_id
            if parent is None:
                break
            snapshot = self._table.snapshot_by_id(parent)
            if snapshot is None and parent != known:
                raise _lost(known)
        else:
            return found[::-1]
        if known:
            raise _lost(known)
        return found[::-1]

    # ---- files

    def _next_file(self) -> Delivery:
        tasks = self._planned()
        place: int = self._at["file"]
        rows: pa.Table | tuple[()] = ()
        if place < len(tasks):
            rows = self._rows(tasks[place])
            self._at = {**self._at, "file": place + 1}
        if self._at["file"] >= len(tasks):
            self._at, self._tasks = {"snapshot": self._at["snapshot"]}, None
        return Delivery(rows=rows, position=dict(self._at))

    def _planned(self) -> list[Any]:
        if self._tasks is None:
            snapshot = self._table.snapshot_by_id(self._at["snapshot"])
            if snapshot is None:
                raise _lost(self._at["snapshot"])
            if self._at.get("all"):
                scan = self._table.scan(snapshot_id=snapshot.snapshot_id)
            else:
                scan = self._table.incremental_append_scan(
                    from_snapshot_id_exclusive=snapshot.parent_snapshot_id,
                    to_snapshot_id_inclusive=snapshot.snapshot_id,
                )
            self._projection = scan.projection()
            self._tasks = sorted(scan.plan_files(), key=lambda task: str(task.file.file_path))
        return self._tasks

    def _rows(self, task: Any) -> pa.Table:  # noqa: ANN401 - of the library
        library = needs("pyiceberg.io.pyarrow", "iceberg")
        always = needs("pyiceberg.expressions", "iceberg").AlwaysTrue()
        scan = library.ArrowScan(self._table.metadata, self._table.io, self._projection, always)
        found = scan.to_table([task])
        return found.select([name for name in found.column_names if name in self._schema.names])

    def lag(self) -> int | None:
        """How many snapshots wait."""
        return len(self._waiting) + ("file" in self._at)


def _lost(known: int) -> ConnectorFailedError:
    return ConnectorFailedError(
        f"the snapshot {known}, up to which the table was read, is not in its history any more",
        hint="it has expired, or the table was rolled back: DROP this and create it anew",
    )


CONNECTOR = IcebergSource
