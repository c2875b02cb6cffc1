"""What CREATE VIEW writes: the topics of a view, its definition, the log of its late rows."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.catalog import Definition, Options
from millstream.errors import Error, TopicNotFoundError
from millstream.model.clock import system_clock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.log import Log
    from millstream.views.planning import PlannedView
    from millstream.views.storage import Storage

HIDDEN: Final = "__query_"
"""The names of hidden views begin like this: those of subscribed queries, which no CREATE made."""


def define(storage: Storage, planned: PlannedView, *, if_not_exists: bool) -> bool:
    """Write a view's topics and its definition; called by the dispatcher's thread.

    All of it is written, or nothing. Afterwards ``planned.definition`` is what was written.

    Returns:
        False when it exists already, and may.
    """
    if if_not_exists and planned.definition.name in storage.catalog:
        return False
    definition = _bound_to_inputs(storage, planned)
    is_hidden = definition.name.startswith(HIDDEN)
    if not is_hidden:
        storage.catalog.check_new(definition)
    log, topics = storage.log, planned.shape.topics
    late: Definition | None = None
    try:
        for topic, schema in topics.items():
            log.create_topic(topic, schema)
        if is_hidden:
            definition = replace(definition, born=log.lsn + 1)
            log.create_topic(definition.name, definition.schema)
        else:
            late = _create_late_log(storage, planned)
            definition = storage.catalog.create(definition)
    except Error:
        if late is not None:
            storage.catalog.drop(late.name)
        drop_topics(log, topics)
        raise
    planned.definition = definition
    return True


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


def _create_late_log(storage: Storage, planned: PlannedView) -> Definition | None:
    """Create the log of LATE DATA TO. Without its view it is dropped when a database is opened."""
    name, plan = planned.statement.late_to, planned.plan
    if name is None or plan is None:
        return None
    schema = storage.schema_of(plan.inputs[0])
    late = Definition("stream", name, schema, Options(), created_at=system_clock())
    return storage.catalog.create(late)


def drop_topics(log: Log, topics: Iterable[str]) -> None:
    """Drop those of some topics that exist."""
    for topic in topics:
        with contextlib.suppress(TopicNotFoundError):
            log.drop_topic(topic)
