"""The views of one database."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from millstream.catalog import Definition, Options
from millstream.catalog.tenants import SelectAll
from millstream.delivery.tail import LogTail
from millstream.dispatch import Commit, select
from millstream.dispatch.flush import make_durable, make_readable
from millstream.errors import ClosedError, Error, TopicNotFoundError, WrongObjectError
from millstream.model.batch import ChangeBatch
from millstream.model.clock import system_clock
from millstream.spark.bridge.server import BridgeServer
from millstream.spark.checkpoint import forget_beyond, offset_in
from millstream.spark.columns import feed_schema, used
from millstream.spark.feed import ViewFeed
from millstream.spark.gears import Runner
from millstream.spark.inputs import FeedInputs, Keep
from millstream.spark.live import Encodings
from millstream.spark.query import SparkQuery
from millstream.spark.results import Results
from millstream.sql import CreateView, Emit, parse, plan_view
from millstream.views.follower import Follower
from millstream.views.planning import Planner
from millstream.views.result_shapes import PENDING, STATE, Lines
from millstream.views.running import Holds, Running, Stalled, half_dropped, unopened, unrepeatable
from millstream.views.saver import Saver
from millstream.views.ticker import Ticker
from millstream.views.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from millstream.catalog import Catalog
    from millstream.dispatch import Dispatcher
    from millstream.errors import ViewFailedError
    from millstream.log import Log
    from millstream.model.schema import Column, Schema
    from millstream.spark.checkpoint import Offset
    from millstream.spark.session import Spark
    from millstream.sql import Input, Query, ViewPlan
    from millstream.views.planning import Planned

HIDDEN: Final = "__query_"
"""Views that a subscription needs and nobody has created begin like this."""


class Views:
    """The views of one database.

    Args:
        log: where everything is.
        dispatcher: who commits.
        catalog: what exists.
        spark: started when it is needed.
    """

    def __init__(
        self,
        log: Log,
        dispatcher: Dispatcher,
        catalog: Catalog,
        *,
        spark: Spark,
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._catalog = catalog
        self._spark = spark
        self._folder = log.path / "views"
        self._flush = partial(make_durable, dispatcher, log)
        self._write = partial(make_readable, dispatcher, log)
        self._select_all = SelectAll(catalog.get)
        self._running: dict[str, Running] = {}
        self.failed: dict[str, ViewFailedError] = {}
        self._server: BridgeServer | None = None
        self._lock = threading.Lock()
        self._sharing = threading.Lock()
        self._encodings = Encodings()
        self.saver = Saver(log, dispatcher.barrier)
        self._planner = Planner(
            catalog,
            planned_of=lambda name: self[name].planned,
            query_of=lambda plan: self._spark_query(plan, "plan", self._folder),
            check_room=self._check_room,
        )
        self._drop_left_over()

    def _drop_left_over(self) -> None:
        """What a crash has left of views that nobody has created, or that were dropped."""
        for topic in self._log.topics:
            owner = topic.removeprefix(STATE).removeprefix(PENDING)
            if topic.startswith(HIDDEN) or (owner != topic and owner not in self._catalog):
                self._log.drop_topic(topic)
        written = self._late_logs()
        for each in list(self._catalog):
            if written is not None and each.is_late_log and each.name.lower() not in written:
                self._dispatcher.call(partial(self._catalog.drop, each.name))
        self.saver.clear(self._catalog)
        known = {self.folder_of(each).name for each in self._catalog}
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def _late_logs(self) -> set[str] | None:
        """The logs that views write late rows to; None when that of some view is not known."""
        try:
            made = [parse(each.query)[0] for each in self._catalog if each.query]
        except Error:
            return None
        return {(each.late_to or "").lower() for each in made if isinstance(each, CreateView)}

    # ---- what there is

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def __getitem__(self, name: str) -> Running:
        """The view of that name.

        Raises:
            ViewFailedError: it could not be opened.
        """
        if name in self.failed:
            raise self.failed[name].again()
        return self._running[name]

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running.values()))

    def readers_of(self, name: str) -> list[str]:
        """The views that read a log, or write to it what comes too late for them."""
        lower = name.lower()
        failed = [each for each in self.failed if name in dict(self._catalog[each].widths)]
        return failed + [
            each.view.name
            for each in self
            if name in each.planned.inputs
            or (each.planned.statement.late_to or "").lower() == lower
        ]

    def late_log(self, name: str) -> str | None:
        """The log of what came too late for a view."""
        return self._running[name].planned.statement.late_to if name in self._running else None

    # ---- planning

    def input(self, name: str) -> Input:
        """What the planner is told of a log."""
        return self._planner.input(name)

    def plan(self, statement: CreateView, name: str | None = None) -> Planned:
        """What a statement asks for.

        Raises:
            SqlError: it cannot be answered exactly; it says why, and what to write instead.
        """
        try:
            return self._planner.plan(statement, name)
        except Exception:
            self._spark.check()  # else it says whatever Spark says that is just being stopped
            raise

    def _check_room(self) -> None:
        self._spark.check_room(sum(each.feed is not None for each in self))

    # ---- running

    def create(self, planned: Planned) -> Definition:
        """Make a view; called by the dispatcher's thread."""
        definition = replace(
            planned.definition,
            begins=self._first_lsn(planned),
            widths=tuple((n, len(self._schema_of(n).columns)) for n in planned.inputs),
            firsts=tuple((n, self._log.topic(n).low_lsn) for n in planned.inputs),
        )
        if not definition.name.startswith(HIDDEN):
            self._catalog.check_new(definition)
        topics = planned.keeper.topics
        late: Definition | None = None
        try:
            for topic, schema in topics.items():
                self._log.create_topic(topic, schema)
            if definition.name.startswith(HIDDEN):
                definition = replace(definition, born=self._log.lsn + 1)
                self._log.create_topic(definition.name, definition.schema)
            else:
                late = self._create_late(planned)
                definition = self._catalog.create(definition)
        except Error:
            if late is not None:
                self._catalog.drop(late.name)
            self._drop_topics(topics)
            raise
        planned.definition = definition
        return definition

    def _drop_topics(self, topics: Iterable[str]) -> None:
        for topic in topics:
            with contextlib.suppress(TopicNotFoundError):
                self._log.drop_topic(topic)

    def _first_lsn(self, planned: Planned) -> int:
        """The first LSN that a new view reads."""
        if planned.definition.options.start == "now":
            return self._log.lsn + 1
        return min(self._log.topic(each).low_lsn for each in planned.inputs)

    def _create_late(self, planned: Planned) -> Definition | None:
        """The log of the rows that come too late for a view. Without that view it is dropped."""
        name, plan = planned.statement.late_to, planned.plan
        if name is None or plan is None:
            return None
        schema = self._schema_of(plan.inputs[0])
        late = Definition("stream", name, schema, Options(), created_at=system_clock())
        return self._catalog.create(late)

    def load(self, definition: Definition) -> None:
        """Bring a view to life that the catalog has; one that cannot be is among the failed."""
        try:
            self._load(definition)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the database
            what = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            failed = unopened(definition, what)
            failed.__cause__ = error
            self.failed[definition.name] = failed

    def _load(self, definition: Definition) -> None:
        if definition.broken:
            raise WrongObjectError(definition.broken)
        statement = parse(definition.query)[0]
        if not isinstance(statement, CreateView):
            raise WrongObjectError(f"{definition.name} was not made by CREATE VIEW")
        hidden: tuple[Column, ...] = ()
        state = STATE + definition.name
        if state in self._log.topics:  # what is kept and not shown follows what is
            hidden = self._log.topic(state).schema.columns[len(definition.schema.columns) :]
        self.run(self._planner.again(statement, definition, hidden))

    def run(self, planned: Planned) -> Running:
        """Keep a view up to date from now on."""
        definition = planned.definition
        view = View(
            definition.name,
            definition.schema,
            planned.keeper,
            dispatcher=self._dispatcher,
            settle=self._flush,
            clock=system_clock,
        )
        view.load(self._log, self.saver.read(definition))
        if not definition.name.startswith(HIDDEN):
            self.saver.keep(definition, view)
        if planned.nothing is not None:
            view.take(planned.nothing.to_batches(), 0, None, durably=False)
        if planned.select is not None:
            running = self._follow(planned, view)
        else:
            running = self._run_on_spark(planned, view)
        self._running[definition.name] = running
        return running

    def start(self, running: Running) -> None:
        """Let it run."""
        running.runner.start()
        every = running.planned.statement.emit.every
        if every is not None:
            running.ticker = Ticker(running.view, every.total_seconds())

    def _follow(self, planned: Planned, view: View) -> Running:
        select, lines = planned.select, planned.keeper
        if select is None or not isinstance(lines, Lines):
            raise AssertionError("it has a plan of its own")
        start = planned.definition.begins

        def open_tail(lsn: int) -> LogTail:
            first = max(lsn + 1, start, self._log.topic(select.target).low_lsn)
            return self._tail((select.target,), first - 1)

        holds = self._holds((select.target,), max(view.cause + 1, start))
        return Running(
            planned, view, Follower(view, lines, select, open_tail, holds.advance), None, holds
        )

    def _holds(self, topics: tuple[str, ...], lsn: int) -> Holds:
        return Holds(
            [self._log.hold(each, lsn=max(lsn, self._log.topic(each).low_lsn)) for each in topics]
        )

    def _tail(self, topics: tuple[str, ...], lsn: int) -> LogTail:
        return LogTail(self._log, self._dispatcher, topics, self._select_all, lsn)

    def _keep(self, tenant: str | None) -> Keep | None:
        """What filters the batches of a feed: the rows of one tenant, at unchanged LSNs."""
        if tenant is None:
            return None

        def keep(batch: ChangeBatch) -> ChangeBatch:
            plan = self._select_all(batch.topic, tenant)
            kept = None if plan is None else select(batch, plan)
            # Its watermark counts, and so do its LSNs, even if no row is left of it.
            return batch.keep_places(()) if kept is None else kept

        return keep

    def _run_on_spark(self, planned: Planned, view: View) -> Running:
        plan, definition = planned.plan, planned.definition
        if plan is None:
            raise AssertionError("it is Spark's")
        schemas = tuple(self._schema_of(each) for each in plan.inputs)
        window = plan.window
        if window is not None and window.kind == "session" and planned.statement.emit.closes:
            # What is older than the watermark could join a session that has closed.
            window = replace(window, size=1)
        columns = () if window is None else (window.columns or (window.column,))
        inputs = FeedInputs(
            plan.inputs,
            schemas,
            window,
            tuple(
                self._event_time(name, columns[i] if i < len(columns) else "")
                for i, name in enumerate(plan.inputs)
            ),
            plan.lateness,
            definition.begins,
            plan.lookups,
            self._keep(planned.tenant),
        )
        running: Running
        place = self._place_of(definition)
        if place is None and view.cause and self._is_trimmed(definition, plan.inputs):
            return Running(planned, view, Stalled(view, unrepeatable(definition)), None, Holds([]))
        first = definition.begins if place is None or plan.lookups else place.lsn + 1
        holds = self._holds(plan.inputs, first)

        def on_late(batch: ChangeBatch) -> None:
            self._late(running, batch)

        feed = ViewFeed(
            inputs,
            self._log,
            self._dispatcher,
            self._select_all,
            make_durable=self._flush,
            make_readable=self._write,
            on_late=on_late,
            # What a table's change alters is read from the whole log again.
            on_committed=(lambda _: None) if plan.lookups else holds.advance,
            on_idle=view.caught_up,
            encodings=self._encodings,
        )
        results = Results(feed, view)
        checkpoint = self.folder_of(definition)
        query = self._spark_query(plan, f"{definition.name}-{definition.born}", checkpoint)
        runner = Runner(definition.name, query, feed, results, view)
        running = Running(planned, view, runner, feed, holds)
        if place is not None:
            feed.live.late = place.late
            view.caught_up(place.lsn)  # its results were on the disk before Spark noted it
        if planned.statement.late_to is not None:
            for batch in self._log.read(self._catalog[planned.statement.late_to].name):
                running.late_lsn = max(running.late_lsn, batch.cause)
        return running

    def _place_of(self, definition: Definition) -> Offset | None:
        """Where a view's checkpoint stands; one that is ahead of the log is of no use."""
        folder = self.folder_of(definition)
        forget_beyond(folder, self._log.lsn)
        place = offset_in(folder)
        if place is not None and place.lsn > self._log.lsn:
            shutil.rmtree(folder)
            return None
        return place

    def _is_trimmed(self, definition: Definition, inputs: tuple[str, ...]) -> bool:
        """Whether rows that a view has read are kept no more."""
        firsts = dict(definition.firsts)
        return any(
            self._log.topic(each).low_lsn > max(definition.begins, firsts.get(each, 0))
            for each in inputs
        )

    def _event_time(self, name: str, column: str) -> int | None:
        """The place of a window's column, if it is the one that the log's watermark is of."""
        mark = self._catalog[name].watermark
        if mark is None or mark.column != column:
            return None
        return self._schema_of(name).names.index(column)

    def _schema_of(self, name: str) -> Schema:
        return self._catalog[name].schema

    def _late(self, running: Running, batch: ChangeBatch) -> None:
        """Rows that came too late: to their own log, once, however often they are read again."""
        name = running.planned.statement.late_to
        if name is None or batch.lsn <= running.late_lsn:
            return
        kept = batch.keep_mask(pc.greater(batch.lsns_arrow(), running.late_lsn))
        schema = self._catalog[name].schema
        late = ChangeBatch(schema, None, schema.conform(kept.arrow), None, cause=batch.lsn)
        self._dispatcher.commit(Commit([(name, late)]))
        running.late_lsn = batch.lsn

    def _spark_query(self, plan: ViewPlan, feed: str, checkpoint: Path) -> SparkQuery:
        schemas = [self._schema_of(each) for each in plan.inputs]
        columns = used(feed_schema(schemas), plan.spark_sql)
        return SparkQuery(self._spark, plan, columns, checkpoint, self._bridge, feed)

    def _bridge(self) -> BridgeServer:
        with self._lock:
            if self._server is None:
                self._server = BridgeServer(self._spark.address)
            return self._server

    def folder_of(self, definition: Definition) -> Path:
        """Where a view's checkpoint is."""
        return self._folder / definition.file_name

    # ---- views that subscriptions share

    def share(
        self,
        query: Query,
        make: Callable[[Planned], None],
        inputs: Callable[[str], Input],
        tenant: str | None,
    ) -> Running:
        """The hidden view of a query, with one more user.

        Args:
            query: the query.
            make: creates the view when there is none yet.
            inputs: what the query may read; raises when a tenant may not.
            tenant: whose rows the view reads; each tenant has a view of its own. None: all rows.
        """
        with self._sharing:
            statement = CreateView(
                name="", kind="view", query=query, emit=query.emit or Emit(), sql=query.sql
            )
            plan = plan_view(statement, inputs)
            text = f"{plan.fingerprint} {statement.emit} {plan.inputs} {tenant!r}"
            name = HIDDEN + hashlib.sha256(text.encode()).hexdigest()[:16]
            running = self._running.get(name)
            if running is None or running.view.error is not None:
                if running is not None:
                    self._remove(running)
                make(replace(self.plan(statement, name), tenant=tenant))
                running = self._running[name]
            running.users += 1
            return running

    def release(self, running: Running) -> None:
        """It is used once less. May be called by any thread, so the end takes place in another."""

        def end() -> None:
            with self._sharing:
                running.users -= 1
                if running.users or self._running.get(running.view.name) is not running:
                    return
                self._remove(running)

        threading.Thread(target=end, name="millstream-release", daemon=True).start()

    def end_shared(self, name: str, error: Error) -> None:
        """A query can be answered no more: tell who has subscribed to it."""
        with self._sharing:
            running = self._running.get(name)
            if running is not None:
                self._dispatcher.call(lambda: self._dispatcher.drop_routes(name, error))
                self._remove(running)

    def _remove(self, running: Running) -> None:
        name = running.view.name
        with contextlib.suppress(ClosedError):  # the database was closed just now
            self.drop(name, lambda: self._dispatcher.call(lambda: self._log.drop_topic(name)))

    # ---- ending

    def drop(self, name: str, forget: Callable[[], None]) -> None:
        """Stop a view; its topics and its checkpoint go.

        Args:
            name: the view.
            forget: makes that it does not exist any more. What else there is of it goes after that:
                after a crash in between it would be needed, or is found and dropped.
        """
        if name in self.failed:
            self._drop_failed(name, forget)
            return
        running = self._running[name]
        running.stop(gracefully=False)
        running.runner.join()
        running.view.end()  # a connection may still be about to tell of results
        try:
            forget()
        except Error as error:
            running.runner = Stalled(running.view, half_dropped(name, error))
            running.runner.start()
            raise
        del self._running[name]
        self.saver.forget(running.planned.definition)
        self._dispatcher.call(lambda: self._drop_topics(running.planned.keeper.topics))
        running.holds.release()
        shutil.rmtree(self.folder_of(running.planned.definition), ignore_errors=True)

    def _drop_failed(self, name: str, forget: Callable[[], None]) -> None:
        definition = self._catalog[name]
        forget()
        del self.failed[name]
        self.saver.forget(definition)
        self._dispatcher.call(lambda: self._drop_topics((STATE + name, PENDING + name)))
        shutil.rmtree(self.folder_of(definition), ignore_errors=True)

    def close(self) -> None:
        """Stop all views, at a checkpoint each, and Spark."""
        all_of_them = list(self._running.values())
        for each in all_of_them:
            each.stop(gracefully=not each.view.name.startswith(HIDDEN))
        for each in all_of_them:
            each.runner.join()
        self.saver.close()
        if self._server is not None:
            self._server.close()
        self._spark.stop()
