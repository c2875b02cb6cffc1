"""The Spark queries of a view in several partitions: one for each, with a checkpoint of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.log.storage import make_private, write_file
from millstream.model.types import type_from_arrow
from millstream.spark import internals
from millstream.views.partitions.common_key import PartitionKey
from millstream.views.partitions.keys import KINDS, Partitioner
from millstream.views.run.checkpoint import offset_in, roll_back
from millstream.views.run.columns import name_in_feed
from millstream.views.run.query import RunningQuery, SparkQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from millstream.views.run.checkpoint import Offset

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


@dataclass(slots=True)
class PartitionedQuery(SparkQuery):
    """The queries of all partitions, which are started and stopped together.

    Attributes:
        partitioner: which partition a row belongs to; its key is found when the query is planned.
        stopping: called before the queries are stopped, so that none of them waits for another.
    """

    partitioner: Partitioner = field(default_factory=lambda: Partitioner(1))
    stopping: Callable[[], None] = lambda: None
    _partitions: list[SparkQuery] = field(default_factory=list)
    _keyed: Any = None  # the session in which the key was found

    def start(self) -> RunningQuery:
        """Run them, all from the same place on.

        Raises:
            SparkError: Spark refuses one.
        """
        if self._keyed is not self.session:
            self.partitioner.keys = keys_of(self)
            self._keyed = self.session
        self._align()
        running: list[RunningQuery] = []
        try:
            running.extend(partition.start() for partition in self.partitions)
        except BaseException:
            RunningPartitions(running, self.stopping).stop()
            raise
        return RunningPartitions(running, self.stopping)

    @property
    def partitions(self) -> list[SparkQuery]:
        """The query of each partition."""
        if not self._partitions:
            folders = partition_folders(self.checkpoint, self.partitioner.count)
            self._partitions = [
                SparkQuery(
                    self.spark,
                    self.plan,
                    self.columns,
                    folder,
                    self.server,
                    feed,
                    self.logs,
                    self.times,
                    self.timed,
                    before_rebuild=self.before_rebuild,
                )
                for folder, feed in zip(folders, self.feeds, strict=True)
            ]
        return self._partitions

    @property
    def feeds(self) -> list[str]:
        """The names under which the server knows the partitions."""
        return [f"{self.feed}/{partition}" for partition in range(self.partitioner.count)]

    def state_size(self) -> tuple[int, int] | None:
        """How many rows their state has, and how many bytes; None when that is not known."""
        sizes = [each.state_size() for each in self._partitions]
        known = [each for each in sizes if each is not None]
        if not known or len(known) < len(sizes):
            return None
        return sum(rows for rows, _ in known), sum(size for _, size in known)

    def _align(self) -> None:
        """Have all partitions continue at one place: those a batch ahead go back to it.

        Raises:
            ViewFailedError: they must be rebuilt, and what they have read is gone.
        """
        folders = [each.checkpoint for each in self.partitions]
        found = [place.lsn for each in folders if (place := offset_in(each)) is not None]
        key = json.dumps([self.partitioner.count, self.partitioner.keys])
        noted = self.checkpoint / _KEY
        fits = noted.exists() and noted.read_text() == key and len(found) == len(folders)
        if fits:
            for each in folders:
                roll_back(each, min(found))
            fits = {offset_in(each) for each in folders} == {offset_in(folders[0])}
            fits = fits and offset_in(folders[0]) is not None
        if not fits:
            if found:
                self.before_rebuild()
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            make_private(self.checkpoint)
            write_file(noted, [key.encode()], durable=False)


class RunningPartitions(RunningQuery):
    """The queries of all partitions, which were started.

    Args:
        partitions: each of them.
        stopping: called before they are stopped.
    """

    def __init__(self, partitions: list[RunningQuery], stopping: Callable[[], None]) -> None:
        self._partitions = partitions
        self._stopping = stopping

    @property
    def is_active(self) -> bool:
        """Whether all of them run."""
        return all(each.is_active for each in self._partitions)

    def stop(self) -> None:
        """End them, and wait for that."""
        self._stopping()
        for each in self._partitions:
            with contextlib.suppress(Exception):
                each.stop()

    def check(self) -> None:
        """Raise what ended one of them, if anything did.

        Raises:
            SparkError: it failed.
        """
        for each in self._partitions:
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
    found = PartitionKey(catalyst, leaf).of(internals.optimized_plan(frame))
    return tuple(
        tuple(_column(logs, log, each[log]) for each in found if log in each)
        for log in range(len(logs))
    )


def _column(logs: Sequence[pa.Schema], log: int, place: int) -> tuple[str, str, str]:
    column = logs[log].field(place)
    return column.name, name_in_feed(log, column.name, len(logs)), _kind(column.type)


def _kind(arrow: pa.DataType) -> str:
    return type_from_arrow(arrow).kind
