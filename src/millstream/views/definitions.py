"""Where views are: their log and catalog, what CREATE VIEW writes there, what opening finds."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.catalog import Definition, Options
from millstream.catalog.tenants import SelectAll
from millstream.delivery.tail import LogTail
from millstream.errors import (
    Error,
    LsnNotKeptError,
    ObjectChangedError,
    TopicNotFoundError,
    WrongObjectError,
)
from millstream.model.clock import system_clock
from millstream.sql import CreateView, parse
from millstream.sql.inputs import CLOCK, CLOCK_INPUT
from millstream.views.planning import OutdatedRowsError
from millstream.views.rows import PENDING, STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from millstream.catalog import Catalog
    from millstream.dispatch import Dispatcher
    from millstream.log import Log
    from millstream.model.schema import Column, Schema
    from millstream.model.weighted_rows import Row
    from millstream.views.planning import PlannedView, ViewPlanner
    from millstream.views.saver import Saver


HIDDEN: Final = "__query_"
"""The names of hidden views begin like this: those of subscribed queries, which no CREATE made."""


_CLOCK: Final = Definition("source", CLOCK, CLOCK_INPUT.schema, Options())


class Storage:
    """The log of a database, what commits to it, and what exists in it.

    Args:
        log: the log.
        dispatcher: commits to it.
        catalog: the definitions.

    Attributes:
        log: the log.
        dispatcher: commits to it.
        catalog: the definitions.
        select_all: plans of all rows of a log, or of those of one tenant.
        table_rows: gives the current rows of a table, the LSN at which they hold, and their
            columns; None when they are not at hand.
        view_rows: gives the current rows of a view, their weights, and the LSN at which they hold;
            None when they are not at hand.
    """

    def __init__(self, log: Log, dispatcher: Dispatcher, catalog: Catalog) -> None:
        self.log = log
        self.dispatcher = dispatcher
        self.catalog = catalog
        self.select_all = SelectAll(catalog.get)
        self.table_rows: Callable[[str], tuple[list[Row], int, Schema] | None] = _not_at_hand
        self.view_rows: Callable[[str], tuple[pa.Table, NDArray[np.int64] | None, int] | None] = (
            _not_at_hand
        )

    def tail(self, topic: str, lsn: int) -> LogTail:
        """The batches of a log after an LSN."""
        return LogTail(self.log, self.dispatcher, (topic,), self.select_all, lsn)

    def definition_of(self, name: str) -> Definition:
        """A log that the catalog knows, or that of the clock."""
        return _CLOCK if name == CLOCK else self.catalog[name]

    def schema_of(self, name: str) -> Schema:
        """The columns of a log that the catalog knows, or of that of the clock."""
        return self.definition_of(name).schema

    @property
    def checkpoints(self) -> Path:
        """The directory with the checkpoints of all views."""
        return self.log.path / "views"

    def checkpoint_of(self, definition: Definition) -> Path:
        """The directory with a view's checkpoint."""
        return self.checkpoints / definition.file_name


def _not_at_hand(_: str) -> None:
    """There are no tables, and no views."""


# ---- CREATE VIEW


def check_history(storage: Storage, read: Definition, reader: str) -> None:
    """Raise unless the log of a table or a view goes back to its beginning.

    Raises:
        LsnNotKeptError: it does not, and what is to read it would join with too few rows.
    """
    first = storage.log.topic(read.name).low_lsn
    if first > read.born:
        raise LsnNotKeptError(
            f"{reader} joins rows with the {read.kind} {read.name} as it was, and its history is "
            f"kept from LSN {first:,} on only",
            oldest=first,
            hint=f"create {read.name} WITH (retention = 'forever') to keep all of it; or write a "
            f"join that follows the {read.kind}, without FOR SYSTEM_TIME AS OF, with EMIT CHANGES",
        )


def check_histories(storage: Storage, planned: PlannedView) -> None:
    """Raise unless a view can read what it needs of the history of its inputs."""
    plan = planned.plan
    for place, name in enumerate(() if plan is None else plan.inputs):
        reads = plan is not None and place in plan.temporal
        definition = storage.definition_of(name)
        if reads and definition.has_base:
            check_history(storage, definition, planned.definition.name or "the query")


def check_inputs(storage: Storage, planned: PlannedView) -> None:
    """Raise unless what a view was planned over is still there, with the same columns.

    Raises:
        ObjectChangedError: it must be planned again.
    """
    for each in planned.read:
        found = storage.catalog.get(each.name)
        if found is None or found.born != each.born:
            what = "dropped" if found is None else "replaced"
        elif len(found.schema.columns) != len(each.schema.columns):
            what = "altered"
        else:
            continue
        raise ObjectChangedError(
            f"{each.name} was {what} meanwhile", hint="run the statement again"
        )


def bind(storage: Storage, planned: PlannedView) -> tuple[Definition, Definition | None]:
    """The definitions of a view and of its log of late rows, over its inputs as they are now.

    Called by the dispatcher's thread.

    Raises:
        ObjectChangedError: what it reads is not what it was planned over.
        LsnNotKeptError: what it needs of the history of its inputs is not kept.
    """
    check_inputs(storage, planned)
    check_histories(storage, planned)
    return _bound_to_inputs(storage, planned), _late_log(storage, planned)


def define(storage: Storage, planned: PlannedView) -> None:
    """Write a view's topics and its definition; called by the dispatcher's thread.

    All of it is written, or nothing. Afterwards ``planned.definition`` is what was written, which
    readers do not see yet.
    """
    definition, late = bind(storage, planned)
    log = storage.log
    with contextlib.ExitStack() as undo:
        undo.callback(drop_topics, log, planned.rows.topics)
        for topic, schema in planned.rows.topics.items():
            log.create_topic(topic, schema)
        if is_hidden(definition):
            definition = replace(definition, born=log.lsn + 1)
            log.create_topic(definition.name, definition.schema)
        else:
            if late is not None:  # without its view it is dropped when a database is opened
                storage.catalog.create(late)
                undo.callback(storage.catalog.drop, late.name)
            storage.catalog.check_new(definition)
            definition = storage.catalog.store(definition)
        undo.pop_all()
    planned.definition = definition


def undefine(storage: Storage, planned: PlannedView) -> None:
    """Remove what ``define`` has written, which no reader has seen; by the dispatcher's thread."""
    definition, late = planned.definition, planned.statement.late_to
    if is_hidden(definition):
        storage.log.drop_topic(definition.name)
    else:
        storage.catalog.discard(definition)
    if late is not None:
        storage.catalog.drop(late)
    drop_topics(storage.log, planned.rows.topics)


def is_hidden(definition: Definition) -> bool:
    """Whether a view is one of a subscribed query, or is being built beside another one."""
    return definition.name.startswith(HIDDEN)


def _bound_to_inputs(storage: Storage, planned: PlannedView) -> Definition:
    """The definition, with the columns and the first LSNs that the inputs have now."""
    log, inputs = storage.log, planned.inputs
    firsts = tuple((name, log.topic(name).low_lsn) for name in inputs)
    start_now = planned.definition.options.start == "now"
    return replace(
        planned.definition,
        begins=log.lsn + 1 if start_now else min(lsn for _, lsn in firsts),
        widths=tuple((name, len(storage.schema_of(name).columns)) for name in inputs),
        firsts=firsts,
    )


def _late_log(storage: Storage, planned: PlannedView) -> Definition | None:
    """The log of LATE DATA TO, to be created with its view; None: there is none."""
    name, plan = planned.statement.late_to, planned.plan
    if name is None or plan is None:
        return None
    schema = storage.schema_of(plan.inputs[0])
    return Definition("stream", name, schema, Options(), created_at=system_clock())


def drop_topics(log: Log, topics: Iterable[str]) -> None:
    """Drop those of some topics that exist."""
    for topic in topics:
        with contextlib.suppress(TopicNotFoundError):
            log.drop_topic(topic)


# ---- opening


def remove_leftovers(storage: Storage, saver: Saver) -> None:
    """Remove what a crash has left of hidden views, and of views that were dropped."""
    _drop_orphaned_topics(storage)
    definitions = list(storage.catalog)
    _drop_orphaned_late_logs(storage, definitions)
    saver.remove_others(definitions)
    _remove_orphaned_checkpoints(storage, definitions)


def _drop_orphaned_topics(storage: Storage) -> None:
    for topic in storage.log.topics:
        owner = topic.removeprefix(STATE).removeprefix(PENDING)
        if topic.startswith(HIDDEN) or (owner != topic and owner not in storage.catalog):
            storage.log.drop_topic(topic)


def _drop_orphaned_late_logs(storage: Storage, definitions: list[Definition]) -> None:
    late = [each.name for each in definitions if each.is_late_log]
    written = _late_logs(definitions) if late else None
    for name in late:
        if written is not None and name.lower() not in written:
            storage.dispatcher.call(partial(storage.catalog.drop, name))


def _late_logs(definitions: list[Definition]) -> set[str] | None:
    """The logs that views write late rows to; None when that of some view is not known."""
    try:
        made = [parse(each.query)[0] for each in definitions if each.query]
    except Error:
        return None
    return {(each.late_to or "").lower() for each in made if isinstance(each, CreateView)}


def _remove_orphaned_checkpoints(storage: Storage, definitions: list[Definition]) -> None:
    known = {storage.checkpoint_of(each).name for each in definitions}
    folders = storage.checkpoints.iterdir() if storage.checkpoints.is_dir() else ()
    for folder in folders:
        if folder.name not in known:
            shutil.rmtree(folder, ignore_errors=True)


def statement_of(definition: Definition) -> CreateView:
    """The statement that has created a view.

    Raises:
        WrongObjectError: its definition is damaged, or it is no view.
    """
    if definition.broken:
        raise WrongObjectError(definition.broken)
    statement = parse(definition.query)[0]
    if not isinstance(statement, CreateView):
        raise WrongObjectError(f"{definition.name} was not made by CREATE VIEW")
    return statement


def replan(storage: Storage, planner: ViewPlanner, definition: Definition) -> PlannedView:
    """The plan of a view that the catalog has; its columns are known, so Spark is not needed.

    Raises:
        WrongObjectError: its definition is damaged, or it is no view.
        OutdatedRowsError: an earlier version has stored its rows otherwise.
    """
    statement = statement_of(definition)
    hidden: tuple[Column, ...] = ()
    state = STATE + definition.name
    if PENDING + definition.name in storage.log.topics:
        raise OutdatedRowsError(definition)
    if state in storage.log.topics:  # hidden columns follow those that are shown
        hidden = storage.log.topic(state).schema.columns[len(definition.schema.columns) :]
    on_spark = storage.checkpoint_of(definition).exists()
    return planner.replan(statement, definition, hidden, on_spark=on_spark)
