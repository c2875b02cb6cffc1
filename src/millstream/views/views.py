"""The views of one database: planned, created, opened, dropped, closed."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.errors import (
    ClosedError,
    Error,
    JavaDiedError,
    LogCorruptError,
    ObjectChangedError,
    ObjectNotFoundError,
    SparkStartError,
    SubscriptionEndedError,
    WrongObjectError,
)
from millstream.sources import EventTime
from millstream.sql import CreateView, Emit
from millstream.sql.inputs import CLOCK
from millstream.threads import Waiters, uninterrupted
from millstream.views.clock import ViewClock
from millstream.views.definitions import (
    HIDDEN,
    Storage,
    define,
    drop_topics,
    is_hidden,
    remove_leftovers,
    replan,
    undefine,
)
from millstream.views.failures import half_dropped, unopened, view_failed
from millstream.views.follower import follow
from millstream.views.on_spark import SparkViews
from millstream.views.plan.planner import plan_query
from millstream.views.planning import OutdatedRowsError, ViewPlanner
from millstream.views.rows import PENDING, STATE
from millstream.views.running import Stalled
from millstream.views.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from millstream.catalog import Catalog, Definition
    from millstream.dispatch import Dispatcher
    from millstream.errors import ViewFailedError
    from millstream.log import Log
    from millstream.spark.session import Spark
    from millstream.sql import Input, Query
    from millstream.views.planning import PlannedView
    from millstream.views.running import RunningView
    from millstream.views.saver import Saver


class Views:
    """The views of one database, by name.

    CREATE VIEW is ``plan`` and ``create``; a view that the catalog has is opened by ``open``.
    ``create``, ``drop`` and ``replace`` are called with ``catalog.ddl`` held.

    Args:
        log: where everything is.
        dispatcher: commits to it.
        catalog: what exists.
        saver: writes their rows to files.
        spark: started when it is needed.

    Attributes:
        storage: log, dispatcher and catalog.
        shared: hidden views, shared by identical queries.
        failed: the views that could not be opened, and why.
        spark_views: connects the views with Spark.
        planner: plans views.
        clock: what NOW() is in them.
        moved: threads that wait for a view to be dropped or replaced.
        is_closed: whether the database is being closed.
    """

    def __init__(
        self, log: Log, dispatcher: Dispatcher, catalog: Catalog, saver: Saver, spark: Spark
    ) -> None:
        self.storage = Storage(log, dispatcher, catalog)
        self._saver = saver
        self.spark_views = SparkViews(self.storage, spark)
        self.shared = SharedViews(self, self.storage)
        self.failed: dict[str, ViewFailedError] = {}
        self._running: dict[str, RunningView] = {}
        self.moved = Waiters()
        self.is_closed = False
        self.storage.view_rows = self._rows_of
        self.clock = ViewClock(
            self.storage, self._shown_by_clock, self._intervals, self._clock_crashed
        )
        self.planner = ViewPlanner(
            catalog,
            planned_of=lambda name: self[name].planned,
            query_of=lambda plan: self.spark_views.query(plan, "plan", self.storage.checkpoints),
            check_room=lambda more: spark.check_room(
                more - 1 + sum(each.feed.slots for each in self if each.feed is not None)
            ),
        )
        remove_leftovers(self.storage, self._saver)

    # ---- what there is

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def __getitem__(self, name: str) -> RunningView:
        """The view of that name.

        Raises:
            ViewFailedError: it could not be opened.
            ObjectNotFoundError: it was dropped just now.
        """
        error, running = self.failed.get(name), self._running.get(name)
        if running is not None:
            return running
        if error is not None:
            raise error.again()
        raise ObjectNotFoundError(f"the view {name} was dropped")

    def __iter__(self) -> Iterator[RunningView]:
        return iter(list(self._running.values()))

    def get(self, name: str) -> RunningView | None:
        """The view of that name; None when there is none that runs."""
        return self._running.get(name)

    def check(self, definition: Definition) -> None:
        """Raise if a relation cannot be read: a view that failed, a broken definition.

        A view that is about to be tried again, after a commit, is waited for a moment.
        """
        definition.check_usable()
        name = definition.name
        error = self.failed.get(name)
        if error is None and name in self._running:
            error = self._running[name].error_at(self.storage.dispatcher.lsn)
        if error is not None:
            raise error.again()

    def opened(self, definition: Definition) -> RunningView:
        """The view of a definition.

        Raises:
            BrokenDefinitionError: the definition cannot be read.
            ViewFailedError: it could not be opened.
            WrongObjectError: it is not of a view.
        """
        definition.check_usable()
        name = definition.name
        if definition.query:
            return self[name]
        raise WrongObjectError(
            f"{name} is a {definition.kind}, not a view",
            hint="what db.flush() returns is on the disk and handed to subscribers",
        )

    def is_current(self, definition: Definition) -> bool:
        """Whether the object of a definition still exists; columns may have been added to it."""
        if is_hidden(definition):  # another one of its name may have been made since
            running = self._running.get(definition.name)
            return running is not None and running.planned.definition is definition
        return self.storage.catalog.has(definition)

    def readers_of(self, name: str) -> list[str]:
        """The views that read a log, or write their late rows to it."""
        lower, catalog = name.lower(), self.storage.catalog
        failed = [each for each in self.failed if name in dict(catalog[each].widths)]
        return failed + [
            each.view.name
            for each in self
            if name in each.planned.depends_on
            or (each.planned.statement.late_to or "").lower() == lower
        ]

    def _rows_of(self, name: str) -> tuple[pa.Table, pa.ChunkedArray | None, int] | None:
        """The current rows of a view, their weights, and the LSN at which they hold."""
        running = self._running.get(name)
        return None if running is None else running.view.current()

    def late_log(self, name: str) -> str | None:
        """The log of a view's late rows; None without one."""
        running = self._running.get(name)
        return None if running is None else running.planned.statement.late_to

    # ---- CREATE VIEW, and opening

    def plan(
        self, statement: CreateView, name: str | None = None, tenant: str | None = None
    ) -> PlannedView:
        """What a statement asks for, checked; nothing is written.

        Raises:
            SqlError: it cannot be answered exactly; it says why, and what to write instead.
            JavaDiedError: Spark's Java has died meanwhile.
        """
        spark = self.spark_views.spark
        deaths = spark.deaths
        try:
            return self.planner.plan(statement, name, tenant)
        except Exception as error:
            spark.check()  # raises when Spark is being stopped just now
            if isinstance(error, SparkStartError) or not spark.has_died(deaths, error):
                raise
            raise JavaDiedError(
                "Spark's Java has ended while the query was planned",
                hint="run the statement again: another Java is started",
            ) from error

    @uninterrupted
    def create(self, planned: PlannedView) -> RunningView:
        """Create a view that was planned, and start it.

        Raises:
            ObjectChangedError: what it reads is not what it was planned over.
        """
        if CLOCK in planned.inputs:
            self.clock.open()
            self.clock.tick()  # the view begins with a time
        storage = self.storage
        storage.dispatcher.call(lambda: define(storage, planned))
        try:
            running = self._connected(planned, self._loaded(planned))
        except BaseException:
            self._saver.remove(planned.definition)
            storage.dispatcher.call(lambda: undefine(storage, planned))
            raise

        def show() -> None:
            self._running[running.view.name] = running
            if not is_hidden(planned.definition):
                storage.catalog.adopt(planned.definition)

        storage.dispatcher.call(show)
        self._start(running)
        return running

    def _start(self, running: RunningView) -> None:
        """Start a view that readers see since just now."""
        if CLOCK in running.planned.inputs:
            self.clock.start()
        running.start()

    def open(self, definition: Definition) -> None:
        """Prepare a view that the catalog has; one that cannot be opened is among the failed."""
        running, error = self._prepared(definition)
        if running is not None:
            if running.view.cause:
                running.view.progress.saved_until = self.storage.log.lsn
            self._running[running.view.name] = running
        elif error is not None:
            self.failed[definition.name] = error

    def _prepared(
        self, definition: Definition, planned: PlannedView | None = None
    ) -> tuple[RunningView | None, ViewFailedError | None]:
        """A view that is stored, as it was planned, ready to start; or why there is none."""
        self._saver.hold(definition)  # even if it cannot be opened
        try:
            planned = planned or replan(self.storage, self.planner, definition)
            if CLOCK in planned.inputs:
                self.clock.open()
            view = self._loaded(planned)
            if planned.is_outdated:  # its log has all that is shown
                state = STATE + definition.name
                self.storage.dispatcher.call(lambda: drop_topics(self.storage.log, [state]))
            return self._connected(planned, view), None
        except LogCorruptError as error:
            is_old = planned is not None and planned.is_outdated
            return None, unopened(definition, OutdatedRowsError(definition) if is_old else error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the database
            if isinstance(error.__cause__, OutdatedRowsError):  # of a view that it reads
                error = OutdatedRowsError(definition)
            return None, unopened(definition, error)

    @property
    def outdated(self) -> list[str]:
        """The views that could not be opened: an earlier version has stored them otherwise."""
        return [n for n, e in self.failed.items() if isinstance(e.__cause__, OutdatedRowsError)]

    def start(self) -> None:
        """Start the views that were opened."""
        for each in self:
            each.start()
        if self._shown_by_clock():
            self.clock.start()

    def _shown_by_clock(self) -> list[int]:
        """For each view that reads the clock, the LSN up to which its rows count."""
        plans = ((each, each.planned.plan) for each in self)
        found = [each for each, plan in plans if plan is not None and not plan.is_constant]
        return [each.view.cause for each in found if CLOCK in each.planned.inputs]

    def _intervals(self) -> list[float]:
        """For each view with EMIT EVERY, the seconds from one tick to the next."""
        found = (each.planned.statement.emit.every for each in self)
        return [every.total_seconds() for every in found if every is not None]

    def _clock_crashed(self, error: Exception) -> None:
        """Without the time, rows would stay: the subscriptions of such views end with the error."""
        for each in self:
            if CLOCK in each.planned.inputs:
                each.view.progress.failed(view_failed(each.view.name, error), hopeless=True)

    def _loaded(self, planned: PlannedView) -> View:
        """The view, with the rows that were saved of it and those of its log after them."""
        definition = planned.definition
        view = View(
            definition.name,
            definition.schema,
            planned.rows,
            dispatcher=self.storage.dispatcher,
            log=self.storage.log,
            order=() if planned.plan is None else planned.plan.order,
            event_time=self._event_time(definition),
            waits=planned.plan is not None and planned.plan.emit is not None,
        )
        view.load(self._saver.read(definition))
        if not is_hidden(definition):
            self._saver.add(definition, view)
        return view

    def _event_time(self, definition: Definition) -> EventTime | None:
        """The event time of a view's rows, from the last watermark of its log on."""
        if definition.watermark is None:
            return None
        return EventTime.of(definition, self.storage.log.watermark(definition.name))

    def _connected(self, planned: PlannedView, view: View) -> RunningView:
        """The view with what will keep it up to date: a follower of one log, or Spark."""
        if planned.select is not None:
            return follow(self.storage, planned, planned.select, view)
        if planned.plan is not None:
            return self.spark_views.connect(planned, planned.plan, view)
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
            _remove_stored(self.storage, self._saver, definition, (STATE + name, PENDING + name))
            return
        running = self[name]
        self._end(running, forget)
        self._running.pop(name, None)
        self.storage.dispatcher.fan_out.forget(name)
        self.moved.wake()
        planned = running.planned
        _remove_stored(self.storage, self._saver, planned.definition, planned.rows.topics)
        running.holds.release()

    def _end(self, running: RunningView, forget: Callable[[], None]) -> None:
        """Stop a view for good, and have its definition removed."""
        running.stop(gracefully=False)
        running.runner.join()
        running.view.end()  # a connection may still be about to send results
        try:
            forget()
        except Error as error:
            running.runner = Stalled(running.view, half_dropped(running.view.name, error))
            running.runner.start()
            self.moved.wake()
            raise

    def replace(
        self,
        old: Definition,
        store: Callable[[], Definition],
        show: Callable[[Definition], None],
        planned: PlannedView | None = None,
    ) -> None:
        """Stop a view, and open another one in its place; readers see the one or the other.

        Args:
            old: the view that is replaced.
            store: removes it, its log and its other topics, and makes those of the new one, with
                its rows and its checkpoint; returns its definition.
            show: has readers see a definition; called by the dispatcher's thread.
            planned: how the new one was planned; None: it is planned as when it is opened.
        """
        if planned is not None and CLOCK in planned.inputs:
            self.clock.open()
            self.clock.tick()
        stored: list[Definition] = []
        before = self._running.get(old.name)
        if before is None:
            stored.append(store())
        else:
            self._end(before, lambda: stored.append(store()))
        definition = stored[0]
        running, error = self._prepared(definition, planned)

        def swap() -> None:
            gone = old.name if old.name != definition.name else None
            if running is not None:
                self._running[definition.name] = running
                self.failed.pop(definition.name, None)
            elif error is not None:
                self.failed[definition.name] = error
                self._running.pop(definition.name, None)
            if gone is not None:
                self.failed.pop(gone, None)
                self._running.pop(gone, None)
            show(definition)

        self.storage.dispatcher.call(swap)
        self.moved.wake()
        if running is not None:
            self._start(running)
        _remove_stored(self.storage, self._saver, old, ())
        if before is not None:
            before.holds.release()

    def close(self) -> None:
        """Stop all views, at a checkpoint each, and Spark."""
        self.is_closed = True
        self.clock.stop()
        views = list(self)
        for each in views:
            each.stop(gracefully=not is_hidden(each.planned.definition))
            each.view.progress.stop()
        self.moved.wake()
        for each in views:
            each.runner.join()
        self._saver.close()
        self.spark_views.close()


def _remove_stored(
    storage: Storage, saver: Saver, definition: Definition, topics: Iterable[str]
) -> None:
    """Remove the saved rows, the topics and the checkpoint of a view that was dropped."""
    saver.remove(definition)
    storage.dispatcher.call(lambda: drop_topics(storage.log, topics))
    shutil.rmtree(storage.checkpoint_of(definition), ignore_errors=True)


class SharedViews:
    """Creates a hidden view for the first of some identical queries, drops it after the last.

    Args:
        views: where they run.
        storage: where their rows are.
    """

    def __init__(self, views: Views, storage: Storage) -> None:
        self._views = views
        self._storage = storage
        self._ddl = storage.catalog.ddl
        self._planning = threading.Lock()  # taken before the DDL lock, never while that is held

    def acquire(
        self, query: Query, inputs: Callable[[str], Input], tenant: str | None
    ) -> RunningView:
        """The hidden view of a query, with one more user.

        Args:
            query: the query.
            inputs: what the query may read; raises when a tenant may not.
            tenant: whose rows the view reads; each tenant has a view of its own. None: all rows.
        """
        statement = CreateView(
            name="", kind="view", query=query, emit=query.emit or Emit(), sql=query.sql
        )
        while True:  # until what the query reads has not changed since it was planned
            plan = plan_query(statement, inputs)
            text = f"{plan.fingerprint} {statement.emit} {plan.inputs} {tenant!r}"
            name = HIDDEN + hashlib.sha256(text.encode()).hexdigest()[:16]
            running = self._joined(name)
            if running is None:
                with self._planning:  # identical queries that come at once are planned once
                    running = self._joined(name) or self._created(statement, name, tenant)
            if running is not None:
                return running

    def _joined(self, name: str) -> RunningView | None:
        """A hidden view that runs, with one more user; None when there is none."""
        with self._ddl.held("a subscription"):
            running = self._views.get(name)
            if running is None or running.view.progress.error is not None:
                return None
            running.users += 1
            return running

    def _created(self, statement: CreateView, name: str, tenant: str | None) -> RunningView | None:
        """A new hidden view, with one user; None when what it reads has changed meanwhile."""
        planned = replace(self._views.plan(statement, name, tenant), tenant=tenant)
        with self._ddl.held("a subscription"):
            failed = self._views.get(name)
            if failed is not None:
                self.drop(failed)
            try:
                running = self._views.create(planned)
            except ObjectChangedError:
                return None
            running.users += 1
            return running

    def release(self, running: RunningView) -> None:
        """One user less. May be called by any thread, so it is dropped in another one."""

        def end() -> None:
            with self._ddl.held("the end of a subscription", forever=True):
                running.users -= 1
                if not running.users:
                    self.drop(running)

        threading.Thread(target=end, name="millstream-release", daemon=True).start()

    def end(self, name: str, error: Error) -> None:
        """Drop a hidden view whose input is dropped; its subscriptions end with the error."""
        running = self._views.get(name)
        if running is not None:
            self.drop(running, error)

    @uninterrupted
    def drop(self, running: RunningView, error: Error | None = None) -> None:
        """Drop a hidden view, unless that was done; subscriptions to it end with an error."""
        name, log, dispatcher = running.view.name, self._storage.log, self._storage.dispatcher
        error = error or SubscriptionEndedError("the view of the query was dropped")
        with (
            self._ddl.held("the end of a hidden view", forever=True),
            contextlib.suppress(ClosedError),  # the database was closed just now
        ):
            if self._views.get(name) is running:
                self._views.drop(name, lambda: dispatcher.call(lambda: log.drop_topic(name)))
                # Last: who begins to read it until then is among them, or finds that it is gone.
                dispatcher.call(lambda: dispatcher.fan_out.drop_routes(name, error))
