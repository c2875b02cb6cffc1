"""The views of one database: planned, created, opened, dropped, closed."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from millstream.errors import Error
from millstream.model.clock import system_clock
from millstream.threads import uninterrupted
from millstream.views.create import HIDDEN, define, drop_topics
from millstream.views.follower import Stalled
from millstream.views.on_spark import SparkViews
from millstream.views.planning import ViewPlanner
from millstream.views.recovery import remove_leftovers, replan
from millstream.views.result_shapes import PENDING, STATE
from millstream.views.running import follow, half_dropped, unopened
from millstream.views.saver import Saver
from millstream.views.shared import SharedViews
from millstream.views.storage import Storage
from millstream.views.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.catalog import Catalog, Definition
    from millstream.dispatch import Dispatcher
    from millstream.errors import ViewFailedError
    from millstream.log import Log
    from millstream.spark.session import Spark
    from millstream.sql import CreateView
    from millstream.views.planning import PlannedView
    from millstream.views.running import RunningView


class Views:
    """The views of one database, by name.

    CREATE VIEW is ``plan`` and ``create``; a view that the catalog has is opened by ``open``.

    Args:
        log: where everything is.
        dispatcher: commits to it.
        catalog: what exists.
        spark: started when it is needed.

    Attributes:
        storage: log, dispatcher and catalog.
        saver: writes the rows of views and tables to the disk.
        shared: hidden views, shared by identical queries.
        failed: the views that could not be opened, and why.
        spark: what connects the views with Spark.
        planner: plans views.
    """

    def __init__(self, log: Log, dispatcher: Dispatcher, catalog: Catalog, *, spark: Spark) -> None:
        self.storage = Storage(log, dispatcher, catalog)
        self.saver = Saver(log, dispatcher.barrier)
        self.spark = SparkViews(self.storage, spark)
        self.shared = SharedViews(self, self.storage)
        self.failed: dict[str, ViewFailedError] = {}
        self._running: dict[str, RunningView] = {}
        self.planner = ViewPlanner(
            catalog,
            planned_of=lambda name: self[name].planned,
            query_of=lambda plan: self.spark.query(plan, "plan", self.storage.checkpoints),
            check_room=lambda: spark.check_room(sum(each.feed is not None for each in self)),
        )
        remove_leftovers(self.storage, self.saver)

    # ---- what there is

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def __getitem__(self, name: str) -> RunningView:
        """The view of that name.

        Raises:
            ViewFailedError: it could not be opened.
        """
        if name in self.failed:
            raise self.failed[name].again()
        return self._running[name]

    def __iter__(self) -> Iterator[RunningView]:
        return iter(list(self._running.values()))

    def get(self, name: str) -> RunningView | None:
        """The view of that name; None when there is none that runs."""
        return self._running.get(name)

    def readers_of(self, name: str) -> list[str]:
        """The views that read a log, or write their late rows to it."""
        lower, catalog = name.lower(), self.storage.catalog
        failed = [each for each in self.failed if name in dict(catalog[each].widths)]
        return failed + [
            each.view.name
            for each in self
            if name in each.planned.inputs
            or (each.planned.statement.late_to or "").lower() == lower
        ]

    def late_log(self, name: str) -> str | None:
        """The log of a view's late rows; None without one."""
        return self._running[name].planned.statement.late_to if name in self._running else None

    # ---- CREATE VIEW, and opening

    def plan(self, statement: CreateView, name: str | None = None) -> PlannedView:
        """What a statement asks for, checked; nothing is written.

        Raises:
            SqlError: it cannot be answered exactly; it says why, and what to write instead.
        """
        try:
            return self.planner.plan(statement, name)
        except Exception:
            self.spark.spark.check()  # else it says whatever Spark says that is just being stopped
            raise

    @uninterrupted
    def create(self, planned: PlannedView, *, if_not_exists: bool = False) -> None:
        """Create a view that was planned, and start it."""
        defined = partial(define, self.storage, planned, if_not_exists=if_not_exists)
        if not self.storage.dispatcher.call(defined):
            return
        running = self._connected(planned, self._loaded(planned))
        self._running[running.view.name] = running
        running.start()

    def open(self, definition: Definition) -> None:
        """Prepare a view that the catalog has; one that cannot be opened is among the failed."""
        try:
            planned = replan(self.storage, self.planner, definition)
            running = self._connected(planned, self._loaded(planned))
            self._running[running.view.name] = running
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the database
            self.failed[definition.name] = unopened(definition, error)

    def start(self) -> None:
        """Start the views that were opened."""
        for each in self:
            each.start()

    def _loaded(self, planned: PlannedView) -> View:
        """The view, with the rows that were saved of it and those of its log after them."""
        definition = planned.definition
        view = View(
            definition.name,
            definition.schema,
            planned.shape,
            dispatcher=self.storage.dispatcher,
            make_durable=self.storage.make_durable,
            clock=system_clock,
        )
        view.load(self.storage.log, self.saver.read(definition))
        if not definition.name.startswith(HIDDEN):
            self.saver.add(definition, view)
        if planned.nothing is not None:
            view.take(planned.nothing.to_batches(), 0, None, durably=False)
        return view

    def _connected(self, planned: PlannedView, view: View) -> RunningView:
        """The view with what will keep it up to date: a follower of one log, or Spark."""
        if planned.select is not None:
            return follow(self.storage, planned, planned.select, view)
        if planned.plan is not None:
            return self.spark.connect(planned, planned.plan, view)
        raise AssertionError("a view has a plan")

    # ---- DROP VIEW, and closing

    def drop(self, name: str, forget: Callable[[], None]) -> None:
        """Stop a view; remove its topics, its saved rows and its checkpoint.

        Args:
            name: the view.
            forget: removes its definition, and its log. All else is removed after that: after a
                crash before it, it is needed; after a crash behind it, it is found and removed.
        """
        if name in self.failed:
            definition = self.storage.catalog[name]
            forget()
            del self.failed[name]
            self._remove_files(definition, (STATE + name, PENDING + name))
            return
        running = self._running[name]
        running.stop(gracefully=False)
        running.runner.join()
        running.view.end()  # a connection may still be about to send results
        try:
            forget()
        except Error as error:
            running.runner = Stalled(running.view, half_dropped(name, error))
            running.runner.start()
            raise
        del self._running[name]
        self._remove_files(running.planned.definition, running.planned.shape.topics)
        running.holds.release()

    def _remove_files(self, definition: Definition, topics: Iterable[str]) -> None:
        storage = self.storage
        self.saver.remove(definition)
        storage.dispatcher.call(lambda: drop_topics(storage.log, topics))
        shutil.rmtree(storage.checkpoint_of(definition), ignore_errors=True)

    def close(self) -> None:
        """Stop all views, at a checkpoint each, and Spark."""
        views = list(self)
        for each in views:
            each.stop(gracefully=not each.view.name.startswith(HIDDEN))
        for each in views:
            each.runner.join()
        self.saver.close()
        self.spark.close()
