"""The Spark queries of a view in several parts: one for each, with a checkpoint of its own."""

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
from millstream.views.partitions.keys import KINDS, KeyParts
from millstream.views.run.checkpoint import offset_in, roll_back
from millstream.views.run.columns import name_in_feed
from millstream.views.run.query import RunningQuery, SparkQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from millstream.views.run.checkpoint import Offset

_KEY: Final = "key.json"


def part_folders(checkpoint: Path, count: int) -> list[Path]:
    """The checkpoint of each part."""
    return [checkpoint / f"part{part}" for part in range(count)]


def offset_of_parts(checkpoint: Path, count: int) -> Offset | None:
    """The place that all parts have reached; None when one of them has no state yet."""
    found = [offset_in(each) for each in part_folders(checkpoint, count)]
    return min((each for each in found if each is not None), key=_lsn) if all(found) else None


def _lsn(offset: Offset) -> int:
    return offset.lsn


@dataclass(slots=True)
class PartedQuery(SparkQuery):
    """The queries of all parts, which are started and stopped together.

    Attributes:
        key_parts: which part a row belongs to; its key is found when the query is planned.
        stopping: called before the queries are stopped, so that none of them waits for another.
    """

    key_parts: KeyParts = field(default_factory=lambda: KeyParts(1))
    stopping: Callable[[], None] = lambda: None
    _parts: list[SparkQuery] = field(default_factory=list)
    _keyed: Any = None  # the session in which the key was found

    def start(self) -> RunningQuery:
        """Run them, all from the same place on.

        Raises:
            SparkError: Spark refuses one.
        """
        if self._keyed is not self.session:
            self.key_parts.keys = keys_of(self)
            self._keyed = self.session
        self._align()
        running: list[RunningQuery] = []
        try:
            running.extend(part.start() for part in self.parts)
        except BaseException:
            RunningParts(running, self.stopping).stop()
            raise
        return RunningParts(running, self.stopping)

    @property
    def parts(self) -> list[SparkQuery]:
        """The query of each part."""
        if not self._parts:
            folders = part_folders(self.checkpoint, self.key_parts.count)
            self._parts = [
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
                    begin_anew=self.begin_anew,
                )
                for folder, feed in zip(folders, self.feeds, strict=True)
            ]
        return self._parts

    @property
    def feeds(self) -> list[str]:
        """The names under which the server knows the parts."""
        return [f"{self.feed}/{part}" for part in range(self.key_parts.count)]

    def state_size(self) -> tuple[int, int] | None:
        """How many rows their state has, and how many bytes; None when that is not known."""
        sizes = [each.state_size() for each in self._parts]
        known = [each for each in sizes if each is not None]
        if not known or len(known) < len(sizes):
            return None
        return sum(rows for rows, _ in known), sum(size for _, size in known)

    def _align(self) -> None:
        """Have all parts continue at one place: those that are ahead, by a batch, go back to it.

        Raises:
            ViewFailedError: they have to begin anew, and what they have read is gone.
        """
        folders = [each.checkpoint for each in self.parts]
        found = [place.lsn for each in folders if (place := offset_in(each)) is not None]
        key = json.dumps([self.key_parts.count, self.key_parts.keys])
        noted = self.checkpoint / _KEY
        fits = noted.exists() and noted.read_text() == key and len(found) == len(folders)
        if fits:
            for each in folders:
                roll_back(each, min(found))
            fits = {offset_in(each) for each in folders} == {offset_in(folders[0])}
            fits = fits and offset_in(folders[0]) is not None
        if not fits:
            if found:
                self.begin_anew()
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            make_private(self.checkpoint)
            write_file(noted, [key.encode()], durable=False)


class RunningParts(RunningQuery):
    """The queries of all parts, which were started.

    Args:
        parts: each of them.
        stopping: called before they are stopped.
    """

    def __init__(self, parts: list[RunningQuery], stopping: Callable[[], None]) -> None:
        self._parts = parts
        self._stopping = stopping

    @property
    def is_active(self) -> bool:
        """Whether all of them run."""
        return all(each.is_active for each in self._parts)

    def stop(self) -> None:
        """End them, and wait for that."""
        self._stopping()
        for each in self._parts:
            with contextlib.suppress(Exception):
                each.stop()

    def check(self) -> None:
        """Raise what ended one of them, if anything did.

        Raises:
            SparkError: it failed.
        """
        for each in self._parts:
            each.check()


# ---- the key


def keys_of(query: SparkQuery) -> tuple[tuple[tuple[str, str, str], ...], ...]:
    """For each log of a query, the columns of the key that its parts are split by.

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
