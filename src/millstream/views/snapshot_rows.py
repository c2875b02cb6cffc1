"""Where a view begins: with the current rows of the tables that it reads, not with their history.

What it reads that retracts, tables and views whose rows change, is folded up to an LSN: rows that
were inserted and deleted cancel out, and nothing is computed from them. Append-only input is read
as it is. The dataflow is exact under any order of its input, so its result is that of the
query over all rows up to that LSN; what leads there is not shown.

A query that has failed goes on in the same way: with what the changes since its checkpoint come to,
so that a row that it had no value for, and that is gone, is not computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.dispatch import make_readable
from millstream.log.reader import not_kept
from millstream.model.batch import ChangeBatch
from millstream.model.lsn import FIRST_LSN
from millstream.sql.inputs import CLOCK
from millstream.state.bags import Bag
from millstream.state.runs import net
from millstream.views.run.inputs import FeedInputs, FeedLogs, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.catalog import Definition
    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row
    from millstream.views.definitions import Storage
    from millstream.views.view import View

_FRAME_ROWS: Final = 1 << 16


class SnapshotRows:
    """What a view over input that retracts reads first.

    Args:
        storage: where its inputs are.
        view: the view.
        inputs: what it reads.
        retracting: the places of those inputs that retract.
    """

    def __init__(
        self,
        storage: Storage,
        view: View,
        inputs: FeedInputs,
        retracting: tuple[int, ...],
    ) -> None:
        self._storage = storage
        self._view = view
        self._inputs = inputs
        self._retracting = retracting

    def lsn(self) -> int:
        """The LSN up to which the first rows count.

        That of what the view has shown, if it is rebuilt: so that this is not shown again. Else
        that of all that was pushed.
        """
        view, storage = self._view, self._storage
        if view.cause or len(view):  # a result over no rows has no cause
            return view.cause
        return make_readable(storage.dispatcher, storage.log)

    def rows(
        self, lsn: int, check: Callable[[], None], wanted: Callable[[int], Sequence[str]]
    ) -> Iterator[tuple[int, ChangeBatch]]:
        """The rows that it begins with, each batch with the number of its input.

        Args:
            lsn: up to which LSN the inputs count.
            check: called now and then; raises when nobody wants them any more.
            wanted: the names of the columns that are needed of an input; batches may have others.
        """
        inputs, log = self._inputs, self._storage.log
        clock_first = sorted(self._retracting, key=lambda each: inputs.topics[each] != CLOCK)
        for place in clock_first:
            topic = inputs.topics[place]
            names = None if inputs.reads_all(place) else wanted(place)
            for batch in rows_at(self._storage, topic, lsn, check, names):
                yield place, batch if inputs.keep is None else inputs.keep(batch)
        others = [n for n in range(len(inputs.topics)) if n not in self._retracting]
        if others:
            yield from FeedLogs(inputs, log).read(inputs.start, lsn, others)

    def changes(
        self, after: int, until: int, check: Callable[[], None]
    ) -> Iterator[tuple[int, ChangeBatch]]:
        """What its inputs have from one LSN to another, each batch with the number of its input.

        Of those that retract it is what the changes come to: a row that was inserted and deleted in
        between is left out. The others are read as they are.

        Args:
            after: the first LSN is the one after it.
            until: the last LSN.
            check: called now and then; raises when nobody wants them any more.
        """
        inputs = self._inputs
        logs = FeedLogs(inputs, self._storage.log)
        for place in sorted(self._retracting, key=lambda each: inputs.topics[each] != CLOCK):
            schema = self._storage.schema_of(inputs.topics[place])
            found = []
            for _, batch in logs.read(after + 1, until, [place]):
                check()
                found.append(batch)
            for batch in _netted(schema, found, until):
                yield place, batch
        others = [n for n in range(len(inputs.topics)) if n not in self._retracting]
        if others:
            yield from logs.read(after + 1, until, others)


def _netted(schema: Schema, changes: list[ChangeBatch], lsn: int) -> Iterator[ChangeBatch]:
    """What some changes of a log come to, in batches; each row has the LSN of its last change."""
    if not any(map(len, changes)):
        return
    rows = pa.concat_batches([schema.conform(each.arrow) for each in changes])
    weights = pa.concat_arrays([each.weights_arrow() for each in changes])
    lsns = pa.concat_arrays([each.lsns_arrow() for each in changes])
    found, counts = net(rows, weights.to_numpy())
    places, signs = np.repeat(found, np.abs(counts)), np.repeat(np.sign(counts), np.abs(counts))
    topic = changes[0].topic
    for start in range(0, len(places), _FRAME_ROWS):
        taken = pa.array(places[start : start + _FRAME_ROWS])
        some = pa.array(signs[start : start + _FRAME_ROWS])
        own = lsns.take(taken)
        yield ChangeBatch(schema, None, rows.take(taken), some, topic=topic, lsn=lsn, lsns=own)


def rows_at(
    storage: Storage,
    topic: str,
    lsn: int,
    check: Callable[[], None],
    names: Sequence[str] | None = None,
) -> Iterator[ChangeBatch]:
    """The rows that the changes of a log up to an LSN come to, as batches at that LSN.

    Of a table or a view these are its current rows without the changes after that LSN, so that its
    log need not go back to its start. Of a stream, which has no current rows, a row that was
    retracted, and inserted before what is kept of it, has the weight -1.

    Args:
        storage: where the log is.
        topic: the log.
        lsn: the LSN; everything up to there is committed.
        check: called now and then; raises when nobody wants the rows any more.
        names: the columns that are needed, at least one; None: all of them.
    """
    all_columns = storage.schema_of(topic)
    schema = all_columns if names is None else all_columns.select(names)
    held = _held(storage, topic, schema)
    weights: pa.Array | None = None
    if held is not None and held.counts is None and held.lsn <= lsn:
        pieces = held.pieces()
    elif names is not None:  # rows are told apart by all columns
        yield from rows_at(storage, topic, lsn, check)
        return
    else:
        if held is not None and held.lsn <= lsn:
            bag = held.bag(schema)
        elif held is not None and _is_nearer_to_now(storage, topic, lsn, held.lsn):
            bag = _unfolded(storage, topic, held, lsn, check)
        else:
            bag = _folded(storage, topic, schema, lsn, check)
        rows, counts = _counted(bag)
        pieces = iter(rows.combine_chunks().to_batches(max_chunksize=_FRAME_ROWS))
        if not (counts == 1).all():
            weights = pa.array(counts, pa.int64())
    start = 0
    for piece in pieces:
        own = None if weights is None else weights.slice(start, len(piece))
        start += len(piece)
        lsns = pa.repeat(pa.scalar(lsn, pa.int64()), len(piece))
        yield ChangeBatch(
            schema, None, piece, own, topic=topic, lsn=lsn, lsns=lsns, kind="snapshot"
        )


@dataclass(frozen=True, slots=True)
class _Held:
    """The current rows of a table or a view.

    Attributes:
        pieces: gives them in Arrow.
        counts: how often each of them is there; None: once.
        lsn: the LSN at which they hold.
    """

    pieces: Callable[[], Iterator[pa.RecordBatch]]
    counts: NDArray[np.int64] | None
    lsn: int

    def bag(self, schema: Schema) -> Bag:
        """All of them."""
        bag, start = Bag(schema), 0
        for piece in self.pieces():
            own = None if self.counts is None else self.counts[start : start + len(piece)]
            weights = None if own is None else pa.array(own)
            bag.load(ChangeBatch(schema, None, piece, weights))
            start += len(piece)
        return bag


def _held(storage: Storage, topic: str, schema: Schema) -> _Held | None:
    """The current rows of a table or a view in these columns, if they are at hand."""
    of_table = storage.table_rows(topic)
    if of_table is not None:
        rows, lsn, columns = of_table
        return _Held(partial(_in_arrow, rows, columns, schema), None, lsn)
    of_view = storage.view_rows(topic)
    if of_view is None:
        return None
    found, counts, lsn = of_view
    return _Held(partial(_conformed, found, schema), counts, lsn)


def _in_arrow(rows: list[Row], columns: Schema, wanted: Schema) -> Iterator[pa.RecordBatch]:
    """Some columns of rows; those that the rows do not have were added just now."""
    known = set(columns.names)
    for start in range(0, len(rows), _FRAME_ROWS):
        piece = rows[start : start + _FRAME_ROWS]
        arrays = [
            columns.column_to_arrow(each.name, piece)
            if each.name in known
            else pa.nulls(len(piece), each.type)
            for each in wanted.arrow
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=wanted.arrow)


def _conformed(rows: pa.Table, schema: Schema) -> Iterator[pa.RecordBatch]:
    known = [name for name in schema.names if name in rows.schema.names]
    for piece in rows.select(known).to_batches(max_chunksize=_FRAME_ROWS):
        yield schema.conform(piece)


def _folded(
    storage: Storage, topic: str, schema: Schema, lsn: int, check: Callable[[], None]
) -> Bag:
    """The rows that the changes of a log come to.

    Raises:
        LsnNotKeptError: it is that of a table or a view, and does not go back to its start.
    """
    definition = storage.definition_of(topic)
    if definition.has_base and _has_lost_history(storage, definition):
        raise not_kept(storage.log.topic(topic), definition.born)
    bag = Bag(schema)
    for change in _changes(storage, topic, schema, (FIRST_LSN, lsn), check):
        bag.load(change)
    return bag


def _unfolded(
    storage: Storage, topic: str, held: _Held, then: int, check: Callable[[], None]
) -> Bag:
    """The rows that a table or a view had at an LSN, given those that it has at a later one."""
    schema = storage.schema_of(topic)
    storage.log.appender.wait_written(held.lsn)
    bag = held.bag(schema)
    for change in _changes(storage, topic, schema, (then + 1, held.lsn), check):
        undone = pc.negate(change.weights_arrow())
        bag.load(ChangeBatch(schema, None, change.arrow, undone))
    return bag


def _is_nearer_to_now(storage: Storage, topic: str, then: int, now: int) -> bool:
    """Whether it takes less to undo changes up to an LSN than to read all before it."""
    definition = storage.definition_of(topic)
    return now - then < then - definition.born or _has_lost_history(storage, definition)


def _has_lost_history(storage: Storage, definition: Definition) -> bool:
    """Whether the log of a table or a view does not go back to its start."""
    return storage.log.topic(definition.name).low_lsn > definition.born


def _changes(
    storage: Storage,
    topic: str,
    schema: Schema,
    lsns: tuple[int, int],
    check: Callable[[], None],
) -> Iterator[ChangeBatch]:
    """The changes of a log from one LSN to another one."""
    changes = FeedLogs(FeedInputs((topic,), (schema,)), storage.log).read(*lsns)
    for _, parts in runs((log, (batch, None)) for log, batch in changes):
        check()
        change = ChangeBatch.concat([batch for batch, _ in parts])
        data = schema.conform_known(change.arrow)
        yield ChangeBatch(schema, None, data, change.weights_arrow())


def _counted(bag: Bag) -> tuple[pa.Table, NDArray[np.int64]]:
    """The rows of a bag, each as often as it is there, and their weights."""
    rows, found = bag.capture()()
    rows = rows.cast(bag.schema.arrow)
    counts = np.ones(len(rows), np.int64) if found is None else found
    if (np.abs(counts) == 1).all():
        return rows, counts
    places = np.repeat(np.arange(len(counts)), np.abs(counts))
    return rows.take(pa.array(places)), np.sign(counts)[places]
