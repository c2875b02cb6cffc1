"""Views when a database is opened: what a crash has left over, and what the catalog has."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from millstream.errors import Error, WrongObjectError
from millstream.sql import CreateView, parse
from millstream.views.create import HIDDEN
from millstream.views.result_shapes import PENDING, STATE

if TYPE_CHECKING:
    from millstream.catalog import Catalog, Definition
    from millstream.model.schema import Column
    from millstream.views.planning import PlannedView, ViewPlanner
    from millstream.views.saver import Saver
    from millstream.views.storage import Storage


def remove_leftovers(storage: Storage, saver: Saver) -> None:
    """Remove what a crash has left of hidden views, and of views that were dropped."""
    _drop_orphaned_topics(storage)
    _drop_orphaned_late_logs(storage)
    saver.remove_others(storage.catalog)
    _remove_orphaned_checkpoints(storage)


def _drop_orphaned_topics(storage: Storage) -> None:
    for topic in storage.log.topics:
        owner = topic.removeprefix(STATE).removeprefix(PENDING)
        if topic.startswith(HIDDEN) or (owner != topic and owner not in storage.catalog):
            storage.log.drop_topic(topic)


def _drop_orphaned_late_logs(storage: Storage) -> None:
    catalog = storage.catalog
    written = _late_logs(catalog)
    for each in list(catalog):
        if written is not None and each.is_late_log and each.name.lower() not in written:
            storage.dispatcher.call(partial(catalog.drop, each.name))


def _late_logs(catalog: Catalog) -> set[str] | None:
    """The logs that views write late rows to; None when that of some view is not known."""
    try:
        made = [parse(each.query)[0] for each in catalog if each.query]
    except Error:
        return None
    return {(each.late_to or "").lower() for each in made if isinstance(each, CreateView)}


def _remove_orphaned_checkpoints(storage: Storage) -> None:
    known = {storage.checkpoint_of(each).name for each in storage.catalog}
    folders = storage.checkpoints.iterdir() if storage.checkpoints.is_dir() else ()
    for folder in folders:
        if folder.name not in known:
            shutil.rmtree(folder, ignore_errors=True)


def replan(storage: Storage, planner: ViewPlanner, definition: Definition) -> PlannedView:
    """The plan of a view that the catalog has; its columns are known, so Spark is not asked.

    Raises:
        WrongObjectError: its definition is damaged, or it is no view.
    """
    if definition.broken:
        raise WrongObjectError(definition.broken)
    statement = parse(definition.query)[0]
    if not isinstance(statement, CreateView):
        raise WrongObjectError(f"{definition.name} was not made by CREATE VIEW")
    hidden: tuple[Column, ...] = ()
    state = STATE + definition.name
    if state in storage.log.topics:  # hidden columns follow those that are shown
        hidden = storage.log.topic(state).schema.columns[len(definition.schema.columns) :]
    return planner.replan(statement, definition, hidden)
