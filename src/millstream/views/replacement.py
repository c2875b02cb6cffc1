"""CREATE OR REPLACE: the new view is built beside the old one, and takes its place at one LSN.

It is built as a hidden view. When that has caught up, its rows become the first commit of a view of
the old one's name, and its checkpoint that view's; from there it goes on as after a restart. What
has a log to begin (a stream, a log of late rows) begins it in the place of the old one instead.
Either way one entry of the catalog says all of it: after a crash there is the old one or the new.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.dispatch import make_durable, make_readable
from millstream.errors import ObjectChangedError, ObjectNotFoundError
from millstream.model.batch import ChangeBatch
from millstream.state.bags import Bag
from millstream.threads import uninterrupted
from millstream.views.definitions import HIDDEN, bind
from millstream.views.rows import PENDING, STATE
from millstream.views.run.checkpoint import move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.catalog import Definition
    from millstream.log import Log
    from millstream.sql import CreateView
    from millstream.views.planning import PlannedView
    from millstream.views.running import RunningView
    from millstream.views.views import Views

_BUILDS: Final = itertools.count(1)
"""Numbers the hidden views: one view may be replaced by several statements at once."""


def build_beside(views: Views, statement: CreateView) -> RunningView:
    """A hidden view of a statement, once it has caught up; nothing else has changed.

    Raises:
        ViewFailedError: its query fails. Nothing is left of it.
        ObjectChangedError: what it reads was dropped or altered meanwhile.
    """
    name = f"{HIDDEN}new_{statement.name.lower()}_{next(_BUILDS)}"
    planned, ddl = views.plan(statement, name), views.storage.catalog.ddl

    @uninterrupted(undo=views.shared.drop)
    def create() -> RunningView:
        with ddl.held(f"CREATE OR REPLACE {statement.name}"):
            return views.create(planned)

    built = create()
    try:
        with contextlib.suppress(ObjectNotFoundError):  # it was dropped with what it reads
            built.wait_for(views.storage.dispatcher.barrier(), None)
        check_built(views, built)
    except BaseException:
        views.shared.drop(built)
        raise
    return built


def check_built(views: Views, built: RunningView) -> None:
    """Raise unless a hidden view still runs: DROP ... CASCADE of what it reads drops it, too.

    Raises:
        ObjectChangedError: it does not.
    """
    if views.get(built.view.name) is not built:
        raise ObjectChangedError(
            f"what {built.planned.statement.name} reads was dropped meanwhile",
            hint="run the statement again",
        )


def take_over(
    built: RunningView,
    views: Views,
    old: Definition,
    *,
    late: Sequence[str],
    remove: Callable[[], None],
    show: Callable[[Definition], None],
) -> None:
    """Put a hidden view in the place of another one; with the DDL lock held.

    Args:
        built: the hidden view; nothing is left of it.
        views: where both run.
        old: the view that it replaces.
        late: the logs of its late rows, which go with it.
        remove: ends the readers of both; called by the dispatcher's thread.
        show: has readers see the new definition; called by the dispatcher's thread.

    Raises:
        ObjectChangedError: what the hidden view reads was dropped.
    """
    storage = views.storage
    check_built(views, built)
    try:
        # Without a checkpoint the new view would read all of it again, which may be gone by then.
        built.stop(gracefully=True, patiently=True)
        built.runner.join()
        built.view.end()
        make_readable(storage.dispatcher, storage.log)  # raises, if the disk is full
        views.replace(old, lambda: _store(views, built, old, late, remove), show)
    finally:
        views.shared.drop(built)


def begin_instead(
    planned: PlannedView,
    views: Views,
    old: Definition,
    *,
    late: Sequence[str],
    remove: Callable[[], None],
    show: Callable[[Definition], None],
) -> None:
    """Put a view that has no rows yet in the place of another one; with the DDL lock held.

    For a stream and a view with a log of late rows, which are their log: it begins with them. The
    arguments are those of ``take_over``; ``planned`` is the new view.
    """
    storage = views.storage
    make_readable(storage.dispatcher, storage.log)  # raises, if the disk is full
    bound, late_log = storage.dispatcher.call(lambda: bind(storage, planned))

    def store() -> Definition:
        planned.definition, stored_late = storage.catalog.replace(
            old,
            bound,
            drops=(STATE + old.name, PENDING + old.name, *late),
            creates=planned.rows.topics,
            between=remove,
            late=late_log,
        )
        if stored_late is not None:
            storage.catalog.adopt(stored_late)
        return planned.definition

    views.replace(old, lambda: storage.dispatcher.call(store), show, planned)


def _store(
    views: Views,
    built: RunningView,
    old: Definition,
    late: Sequence[str],
    remove: Callable[[], None],
) -> Definition:
    """Remove the old view, and store the new one with its rows, between two commits."""
    storage, topics = views.storage, built.planned.rows.topics
    log, hidden = storage.log, built.planned.definition
    moved = replace(hidden, name=built.planned.statement.name)
    parts = [
        (_named(topic, moved), rows)
        for topic in (hidden.name, *topics)
        if (rows := _rows_of(log, topic, built.view.cause)) is not None
    ]
    if built.view.event_time is not None and parts:
        parts[0][1].watermark = built.view.event_time.logged

    def store() -> Definition:
        stored, _ = storage.catalog.replace(
            old,
            moved,
            drops=(STATE + old.name, PENDING + old.name, *late),
            creates={_named(topic, moved): schema for topic, schema in topics.items()},
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
