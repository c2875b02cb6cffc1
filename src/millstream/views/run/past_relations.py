"""Rows of the past: what a query's inputs had at an LSN, as relations that Spark reads in batch."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import Error
from millstream.model.schema import Schema
from millstream.spark.bridge.frames import END, FAILED, HEADER, ROWS
from millstream.views.plan.plan import dated_relation, log_relation
from millstream.views.run.columns import FeedColumns, Part, dated_fields
from millstream.views.run.inputs import FeedInputs, FeedLogs, in_time, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.log import Log
    from millstream.model.batch import ChangeBatch
    from millstream.spark.bridge.connection import Connection
    from millstream.views.plan.plan import ViewPlan

Runs = Iterator[tuple[int, list[Part]]]
"""Batches of one log together, each with the number of the log."""

_PARTS: Final = 2 * (os.cpu_count() or 2)
_PART_LSNS: Final = 1 << 17


@dataclass(slots=True)
class PastRelation:
    """A relation that Spark's tasks read by partitions; Spark may read one several times.

    Attributes:
        schemas: the columns of the logs that it has rows of.
        columns: its own, as a feed of these logs has them.
        partitions: what the tasks read, at the same time.
        bytes: about how large it is; -1: not known.
        error: why a partition could not be read, or None.
    """

    schemas: Sequence[Schema]
    columns: pa.Schema
    partitions: list[Callable[[], Runs]]
    bytes: int = -1
    error: Error | None = None

    def serve(self, role: str, words: Sequence[str], wire: Connection) -> None:
        """Send some columns of a partition."""
        del role
        columns = FeedColumns(self.schemas, words[0].split("\x1f"))
        wire.send(columns.schema.serialize())
        try:
            for log, run in self.partitions[int(words[1])]():
                wire.send(HEADER.pack(ROWS, 0, 0), columns.batches(log, run).serialize())
        except Error as error:
            self.error = error
            text = str(error).encode()
            wire.send(HEADER.pack(FAILED, 0, len(text)) + text)
            return
        wire.send(HEADER.pack(END, 0, 0))


class PastInputs:
    """What a query reads, as it was at an LSN.

    Args:
        inputs: its logs; without a window and timed logs, no row is late.
        plan: the query.
        log: the durable log.
        lsn: the LSN.
        held: by its place, the rows of each input that is not read from its log.
    """

    def __init__(
        self,
        inputs: FeedInputs,
        plan: ViewPlan,
        log: Log,
        lsn: int,
        held: Mapping[int, Sequence[ChangeBatch]],
    ) -> None:
        self._inputs = inputs
        self._plan = plan
        self._logs = FeedLogs(inputs, log)
        self._lsn = lsn
        self._held = held

    def relations(self) -> dict[str, PastRelation]:
        """By the names in the query's SQL, what Spark reads."""
        schemas, plan = self._inputs.schemas, self._plan
        made = {}
        for log, (schema, width) in enumerate(zip(schemas, plan.widths, strict=True)):
            own = Schema(schema.columns[:width])
            partitions: list[Callable[[], Runs]] = [
                partial(_alone, each) for each in self._partitions([log])
            ]
            made[log_relation(log)] = PastRelation((own,), own.arrow, partitions, self._bytes(log))
            if log in plan.dated:
                dated = pa.schema([*own.arrow, *dated_fields()])
                size = self._bytes(log)
                made[dated_relation(log)] = PastRelation((own,), dated, partitions, size)
        return made

    def _bytes(self, log: int) -> int:
        return sum(each.arrow.nbytes for each in self._held[log]) if log in self._held else -1

    def _partitions(self, logs: Sequence[int]) -> list[Callable[[], Runs]]:
        """The rows of some of the logs, in partitions."""
        inputs = self._inputs
        if inputs.window is not None or inputs.timed:
            return [partial(self._in_order, logs)]  # what is late goes by all that is before it
        partitions: list[Callable[[], Runs]] = []
        for log in logs:
            if log in self._held:
                partitions.append(partial(_runs, [(log, each) for each in self._held[log]]))
            else:
                partitions += [partial(self._range, log, *each) for each in self._ranges()]
        return partitions

    def _ranges(self) -> list[tuple[int, int]]:
        """Ranges of LSNs, about as many as there are cores, if there is enough to read."""
        first, last = self._inputs.start, self._lsn
        size = max(_PART_LSNS, -(-(last - first + 1) // _PARTS))
        starts = range(first, last + 1, size) or [first]
        return [(start, min(start + size - 1, last)) for start in starts]

    def _range(self, log: int, first: int, last: int) -> Runs:
        return _runs(self._logs.read(first, last, [log]))

    def _in_order(self, logs: Sequence[int]) -> Runs:
        """The rows in LSN order, without those that came too late."""
        tracker = self._logs.tracker_at(self._logs.initial_offset)
        held = ((log, (each, None)) for log in self._held for each in self._held[log])
        others = [log for log in range(len(self._inputs.topics)) if log not in self._held]
        read = self._logs.read(self._inputs.start, self._lsn, others)
        found = itertools.chain(held, in_time(tracker, read, late=[]))
        return runs(each for each in found if each[0] in logs)


def _runs(batches: Iterable[tuple[int, ChangeBatch]]) -> Runs:
    return runs((log, (batch, None)) for log, batch in batches if len(batch))


def _alone(read: Callable[[], Runs]) -> Runs:
    """What is read of a log, as of the only one."""
    return ((0, run) for _, run in read())
