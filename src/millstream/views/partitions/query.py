"""The Spark queries of a view in several partitions: one for each, with a checkpoint of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.log.storage import make_private, write_file
from millstream.model.types import type_from_arrow
from millstream.spark import internals
from millstream.views.lower.analysis import optimized_plan
from millstream.views.partitions.common_key import PartitionKey
from millstream.views.partitions.keys import KINDS
from millstream.views.run.checkpoint import offset_in, roll_back
from millstream.views.run.columns import name_in_feed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from millstream.views.partitions.keys import Partitioner
    from millstream.views.run.checkpoint import Offset
    from millstream.views.run.query import RunningQuery, SparkQuery

_KEY: Final = "key.json"


def partition_folders(checkpoint: Path, count: int) -> list[Path]:
    """The checkpoint of each partition."""
    return [checkpoint / f"part{partition}" for partition in range(count)]


def offset_of_partitions(checkpoint: Path, count: int) -> Offset | None:
    """The place that all partitions have reached; None when one of them has no state yet."""
    found = [offset_in(each) for each in partition_folders(checkpoint, count)]
    return min((each for each in found if each is not None), key=_lsn) if all(found) else None


def _lsn(offset: Offset) -> int:
    return offset.lsn


class PartitionedQuery:
    """The queries of all partitions, which are started and stopped together.

    Args:
        query: the view's.
        partitioner: which partition a row belongs to; its key is found when the query is started.
        abandon: called so that what the queries have sent no longer counts, and none of them waits
            for another.

    Attributes:
        spark: the session's owner.
        server: gives what their tasks connect to.
        partitions: the query of each partition.
        feeds: the names under which the server knows them.
    """

    def __init__(
        self, query: SparkQuery, partitioner: Partitioner, abandon: Callable[[], None]
    ) -> None:
        self.spark = query.spark
        self.server = query.server
        self.feeds = [f"{query.feed}/{each}" for each in range(partitioner.count)]
        folders = partition_folders(query.checkpoint, partitioner.count)
        self.partitions = [
            replace(query, feed=feed, checkpoint=folder, _session=None, _frame=None, _lowered=None)
            for feed, folder in zip(self.feeds, folders, strict=True)
        ]
        self._checkpoint = query.checkpoint
        self._before_rebuild = query.before_rebuild
        self._partitioner = partitioner
        self._abandon = abandon
        self._keyed: Any = None  # the session in which the key was found

    def start(self) -> RunningQueries:
        """Run them, all from the same place on.

        Raises:
            SparkError: Spark refuses one.
        """
        first = self.partitions[0]
        if self._keyed is not first.session:
            self._partitioner.keys = keys_of(first)
            self._keyed = first.session
        self._align()
        self._abandon()
        running: list[RunningQuery] = []
        try:
            running.extend(each.start() for each in self.partitions)
        except BaseException:
            RunningQueries(running, self._abandon).stop()
            raise
        return RunningQueries(running, self._abandon)

    def state_size(self) -> tuple[int, int] | None:
        """How many rows their state has, and how many bytes; None when that is not known."""
        known = [size for each in self.partitions if (size := each.state_size()) is not None]
        if len(known) < len(self.partitions):
            return None
        return sum(rows for rows, _ in known), sum(size for _, size in known)

    def _align(self) -> None:
        """Have all partitions continue at one place: those a batch ahead go back to it.

        Raises:
            ViewFailedError: they must be rebuilt, and what they have read is gone.
        """
        folders = [each.checkpoint for each in self.partitions]
        found = [place.lsn for each in folders if (place := offset_in(each)) is not None]
        key = json.dumps([self._partitioner.count, self._partitioner.keys])
        noted = self._checkpoint / _KEY
        fits = noted.exists() and noted.read_text() == key and len(found) == len(folders)
        if fits:
            for each in folders:
                roll_back(each, min(found))
            fits = {offset_in(each) for each in folders} == {offset_in(folders[0])}
            fits = fits and offset_in(folders[0]) is not None
        if not fits:
            if found:
                self._before_rebuild()
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            make_private(self._checkpoint)
            write_file(noted, [key.encode()], durable=False)


class RunningQueries:
    """The queries of all partitions, which were started.

    Args:
        queries: each of them.
        abandon: called before they are stopped.
    """

    def __init__(self, queries: list[RunningQuery], abandon: Callable[[], None]) -> None:
        self._queries = queries
        self._abandon = abandon

    @property
    def is_active(self) -> bool:
        """Whether all of them run."""
        return all(each.is_active for each in self._queries)

    def stop(self) -> None:
        """End them, and wait for that."""
        self._abandon()
        for each in self._queries:
            with contextlib.suppress(Exception):
                each.stop()

    def check(self) -> None:
        """Raise what ended one of them, if anything did.

        Raises:
            SparkError: it failed.
        """
        for each in self._queries:
            each.check()


# ---- the key


def keys_of(query: SparkQuery) -> tuple[tuple[tuple[str, str, str], ...], ...]:
    """For each log of a query, the columns of the key that its partitions are split by.

    Raises:
        SqlUnsupportedError: it has no such key.
    """
    frame = query.analysed()  # which registers the logs, in each new Java
    logs, leaves = query.logs, query.leaves

    def leaf(node: Any) -> tuple[int, list[int | None]]:  # noqa: ANN401
        log = leaves.get(node.rdd().id(), 0)
        return log, [
            place
            if place < len(logs[log]) and _kind(logs[log].field(place).type) in KINDS
            else None
            for place in range(node.output().size())
        ]

    catalyst = internals.jvm_of(query.session).org.apache.spark.sql.catalyst
    found = PartitionKey(catalyst, leaf).of(optimized_plan(frame))
    return tuple(
        tuple(_column(logs, log, each[log]) for each in found if log in each)
        for log in range(len(logs))
    )


def _column(logs: Sequence[pa.Schema], log: int, place: int) -> tuple[str, str, str]:
    column = logs[log].field(place)
    return column.name, name_in_feed(log, column.name, len(logs)), _kind(column.type)


def _kind(arrow: pa.DataType) -> str:
    return type_from_arrow(arrow).kind
