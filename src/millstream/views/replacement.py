"""CREATE OR REPLACE: the new view is built beside the old one, and takes its place at one LSN.

It is built as a hidden view. When that has caught up, its rows become the first commit of a view of
the old one's name, and its checkpoint that view's; from there it goes on as after a restart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.dispatch import make_durable, make_readable
from millstream.model.batch import ChangeBatch
from millstream.spark.checkpoint import move
from millstream.state.bags import Bag
from millstream.views.definitions import HIDDEN
from millstream.views.result_shapes import PENDING, STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.catalog import Definition
    from millstream.log import Log
    from millstream.sql import CreateView
    from millstream.views.running import RunningView
    from millstream.views.views import Views


def build_beside(views: Views, statement: CreateView) -> RunningView:
    """A hidden view of a statement, once it has caught up; nothing else has changed.

    Raises:
        ViewFailedError: its query fails. Nothing is left of it.
    """
    name = f"{HIDDEN}new_{statement.name.lower()}"
    views.create(views.plan(statement, name))
    built = views[name]
    try:
        built.wait_for(views.storage.dispatcher.barrier(), None)
    except BaseException:
        views.shared.drop(built)
        raise
    return built


def take_over(
    views: Views,
    built: RunningView,
    old: Definition,
    *,
    late: Sequence[str],
    remove: Callable[[], None],
    show: Callable[[Definition], None],
) -> None:
    """Put a hidden view in the place of another one.

    Args:
        views: where both run.
        built: the hidden view; nothing is left of it.
        old: the view that it replaces.
        late: the logs of its late rows, which go with it.
        remove: ends the readers of both; called by the dispatcher's thread.
        show: has readers see the new definition; called by the dispatcher's thread.
    """
    storage = views.storage
    try:
        built.stop(gracefully=True)
        built.runner.join()
        built.view.end()
        make_readable(storage.dispatcher, storage.log)  # raises, if the disk is full
        views.replace(old, lambda: _store(views, built, old, late, remove), show)
    finally:
        views.shared.drop(built)


def _store(
    views: Views,
    built: RunningView,
    old: Definition,
    late: Sequence[str],
    remove: Callable[[], None],
) -> Definition:
    """Remove the old view, and store the new one with its rows, between two commits."""
    storage, shape = views.storage, built.planned.shape
    log, hidden = storage.log, built.planned.definition
    moved = replace(hidden, name=built.planned.statement.name)
    parts = [
        (_named(topic, moved), rows)
        for topic in (hidden.name, *shape.topics)
        if (rows := _rows_of(log, topic, built.view.cause)) is not None
    ]
    if built.view.event_time is not None and parts:
        parts[0][1].watermark = built.view.event_time.logged

    def store() -> Definition:
        stored = storage.catalog.replace(
            old,
            moved,
            drops=(STATE + old.name, PENDING + old.name, *late),
            creates={_named(topic, moved): schema for topic, schema in shape.topics.items()},
            between=remove,
        )
        if parts:
            storage.dispatcher.commit_inside(parts)
        return stored

    stored = storage.dispatcher.call(store)
    make_durable(storage.dispatcher, log)  # the rows first, then the checkpoint that counts on them
    checkpoint = storage.checkpoint_of(hidden)
    if checkpoint.exists():
        move(checkpoint, storage.checkpoint_of(stored))
    return stored


def _named(topic: str, definition: Definition) -> str:
    """A topic of a hidden view as one of the view that it becomes."""
    return topic[: topic.index(HIDDEN)] + definition.name


def _rows_of(log: Log, topic: str, cause: int) -> ChangeBatch | None:
    """What the changes of a log come to, as one batch; None when there are no rows."""
    schema = log.topic(topic).schema
    batches = [batch for batch in log.read(topic) if len(batch)]
    if all(batch.is_insert_only for batch in batches):
        rows = pa.Table.from_batches([batch.arrow for batch in batches], schema.arrow)
    else:
        bag = Bag(schema)
        for batch in batches:
            bag.load(batch)
        rows = bag.snapshot()
    if not rows.num_rows:
        return None
    [data] = rows.combine_chunks().to_batches()
    return ChangeBatch(schema, None, schema.conform(data), None, cause=cause)
