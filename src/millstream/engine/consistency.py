"""Checks that all that is stored of definitions fits together: for ``doctor``, and for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.catalog import SYSTEM
from millstream.engine.deliveries import PREFIX
from millstream.sql.inputs import CLOCK
from millstream.views.definitions import HIDDEN
from millstream.views.rows import PENDING, STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.catalog import Definition
    from millstream.engine.engine import Engine

_OF_NONE: Final = ("__catalog", "__inserted", "__notifications", "__positions", CLOCK)
"""The database's own topics that belong to no object."""


def inconsistencies(engine: Engine) -> list[str]:
    """What does not fit together in an open database, a line for each; none, if all is well.

    Each object has its topic, with its columns; each view runs, and what it reads exists; each
    topic and each checkpoint belongs to an object; what sinks and durable subscriptions read
    exists.
    """
    with engine.catalog.ddl.held("a check of the catalog"):
        return engine.dispatcher.call(
            lambda: [
                *_of_objects(engine),
                *_of_views(engine),
                *_of_late_logs(engine),
                *_of_topics(engine),
                *_of_checkpoints(engine),
                *_of_readers(engine),
            ]
        )


def _of_objects(engine: Engine) -> Iterator[str]:
    topics = set(engine.log.topics)
    for each in engine.catalog:
        if each.broken:
            yield f"{each.name} cannot be used: {each.broken}"
        elif each.name not in topics:
            yield f"the {each.kind} {each.name} has no topic"
        elif engine.log.topic(each.name).schema.names != each.schema.names:
            yield f"the topic of {each.name} has other columns than the {each.kind}"


def _of_views(engine: Engine) -> Iterator[str]:
    catalog, views = engine.catalog, engine.views
    for name, error in views.failed.items():
        yield f"the view {name} does not run: {error.message}"
    for each in views:
        name, planned = each.view.name, each.planned
        if not name.startswith(HIDDEN) and name not in catalog:
            yield f"the view {name} runs, and is not in the catalog"
        read = {*planned.depends_on, *dict(planned.definition.widths)} - {CLOCK}
        for missing in sorted(each for each in read if each not in catalog):
            yield f"{name} reads {missing}, which does not exist"
    for definition in catalog:
        runs = definition.name in views or definition.name in views.failed
        if definition.query and not runs:
            yield f"the {definition.kind} {definition.name} does not run"


def _of_late_logs(engine: Engine) -> Iterator[str]:
    named = [each.planned.statement.late_to for each in engine.views]
    written = {name.lower() for name in named if name is not None}
    for name in written:
        if name not in engine.catalog:
            yield f"the log {name} of late rows does not exist"
    for each in engine.catalog:
        if each.is_late_log and each.name.lower() not in written and not engine.views.failed:
            yield f"no view writes its late rows to {each.name}"


def _of_topics(engine: Engine) -> Iterator[str]:
    known = {each.view.name for each in engine.views} | set(engine.views.failed)
    for topic in engine.log.topics:
        if topic.startswith((STATE, PENDING)):
            is_known = topic.removeprefix(STATE).removeprefix(PENDING) in known
        elif topic.startswith(HIDDEN):
            is_known = topic in known
        elif topic.startswith(PREFIX):
            is_known = topic in {_position(each) for each in engine.catalog if each.feed}
        elif topic.startswith(SYSTEM):
            is_known = topic in _OF_NONE
        else:
            is_known = topic in engine.catalog
        if not is_known:
            yield f"the topic {topic} belongs to nothing"


def _position(definition: Definition) -> str:
    return f"{PREFIX}{definition.file_name}"


def _of_checkpoints(engine: Engine) -> Iterator[str]:
    storage = engine.views.storage
    definitions = [*engine.catalog, *(each.planned.definition for each in engine.views)]
    known = {storage.checkpoint_of(each).name for each in definitions}
    folders = storage.checkpoints.iterdir() if storage.checkpoints.is_dir() else ()
    for folder in folders:
        if folder.name not in known:
            yield f"the checkpoint {folder.name} belongs to no view"


def _of_readers(engine: Engine) -> Iterator[str]:
    for sink in engine.catalog.sinks:
        if sink.relation not in engine.catalog:
            yield f"the sink {sink.name} reads {sink.relation}, which does not exist"
        letters = sink.connection.dead_letters
        if letters and letters not in engine.catalog:
            yield f"the dead letters {letters} of the sink {sink.name} do not exist"
    for durable in engine.positions.all():
        if durable.target and durable.target not in engine.log.topics:
            yield f"the subscription {durable.name} reads {durable.target}, which does not exist"
