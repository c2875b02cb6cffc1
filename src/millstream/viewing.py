"""All views of a database: from a statement to a running query, and back to nothing.

Takes statements that were read, and definitions that the catalog has. Gives running views. The one
place where the planner, Spark, the rows of a view and the log come together.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millstream.catalog import Definition, Options, options_of
from millstream.dispatch import Commit
from millstream.errors import (
    ClosedError,
    SqlError,
    SqlUnsupportedError,
    ViewFailedError,
    WrongObjectError,
)
from millstream.model.batch import ChangeBatch
from millstream.model.clock import system_clock
from millstream.model.schema import Column, Schema
from millstream.model.types import type_from_arrow
from millstream.pipeline.checkpoint import offset_in
from millstream.pipeline.columns import feed_schema
from millstream.pipeline.feed import Feed
from millstream.pipeline.gears import Runner
from millstream.pipeline.query import Query as SparkQuery
from millstream.pipeline.reads import Reads
from millstream.pipeline.results import Results
from millstream.pipeline.wire import BridgeServer
from millstream.sql import CreateView, Emit, Input, Select, parse, plan_select, plan_view
from millstream.subscriptions.tail import Tail
from millstream.views.follower import Follower
from millstream.views.keepers import PENDING, STATE, Groups, Lines
from millstream.views.ticker import Ticker
from millstream.views.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from millstream.catalog import Catalog
    from millstream.dispatch import Dispatcher
    from millstream.log import Log
    from millstream.log.holds import Hold
    from millstream.pipeline.session import Spark
    from millstream.sql import Query, SelectPlan, ViewPlan

HIDDEN: Final = "__query_"
"""Views that a subscription needs and nobody has created begin like this."""

_MICROSECOND: Final = timedelta(microseconds=1)
_INTERNAL: Final = ("_hash", "_shown", "_lsn", "_weight", "_rows")


@dataclass(slots=True)
class Planned:
    """A view that can be made.

    Attributes:
        statement: what was asked for.
        definition: what the catalog is told.
        plan: what Spark does; None when it is not needed.
        select: what this process does; None when Spark does it.
        keeper: its rows.
        nothing: what it shows before any row has come; only a global aggregate shows something.
    """

    statement: CreateView
    definition: Definition
    plan: ViewPlan | None
    select: SelectPlan | None
    keeper: Groups | Lines
    nothing: pa.Table | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The logs that it reads."""
        if self.plan is not None:
            return self.plan.inputs
        return () if self.select is None else (self.select.target,)


class Stalled:
    """What stands in for the query of a view that can never go on."""

    def __init__(self, view: View, error: ViewFailedError) -> None:
        self.state = "failed"
        self.shifts = 0
        self.restarts = 0
        self.error = error
        self._view = view

    def start(self) -> None:
        """Tell."""
        self._view.failed(self.error, hopeless=True)

    def stop(self, *, gracefully: bool = True) -> None:
        """Nothing runs."""

    def join(self) -> None:
        """Nothing runs."""


def _unrepeatable(definition: Definition) -> ViewFailedError:
    return ViewFailedError(
        f"the checkpoint of {definition.name} is gone, and rows that it has read are, too",
        view=definition.name,
        hint=f"CREATE OR REPLACE MATERIALIZED VIEW {definition.name} begins with what is kept",
    )


@dataclass(slots=True)
class Holds:
    """Keep what a view may have to read again."""

    holds: list[Hold]

    def advance(self, lsn: int) -> None:
        """Everything up to an LSN will not be read again."""
        for each in self.holds:
            each.advance(lsn + 1)

    def release(self) -> None:
        """Nothing is needed any more."""
        for each in self.holds:
            each.release()


@dataclass(slots=True)
class Running:
    """A view and what keeps it up to date."""

    planned: Planned
    view: View
    runner: Runner | Follower | Stalled
    feed: Feed | None
    holds: Holds
    users: int = 0
    late_lsn: int = 0
    ticker: Ticker | None = None

    @property
    def late_rows(self) -> int:
        """How many rows came too late for it."""
        return 0 if self.feed is None else self.feed.live.late

    def lag(self, lsn: int) -> int:
        """About how many rows it is behind."""
        if self.feed is not None and self.runner.state == "live":
            return self.feed.live.lag()
        return max(0, lsn - self.view.reached)

    def stop(self, *, gracefully: bool) -> None:
        """Begin its end."""
        if self.ticker is not None:
            self.ticker.stop()
        self.runner.stop(gracefully=gracefully)

    def probe(self, lsn: int) -> None:
        """Have the view told when everything up to an LSN has passed, of its logs or not."""
        if self.feed is not None:
            self.feed.live.probe(lsn)
        elif isinstance(self.runner, Follower):
            self.runner.probe(lsn)


class Views:
    """The views of one database.

    Args:
        log: where everything is.
        dispatcher: who commits.
        catalog: what exists.
        spark: started when it is needed.
        flush: puts all that was pushed on the disk, and says up to which LSN.
        whole: the plan of a whole log.
    """

    def __init__(
        self,
        log: Log,
        dispatcher: Dispatcher,
        catalog: Catalog,
        *,
        spark: Spark,
        flush: Callable[[], int],
        whole: Callable[[str], SelectPlan | None],
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._catalog = catalog
        self._spark = spark
        self._folder = log.path / "views"
        self._flush = flush
        self._whole = whole
        self._running: dict[str, Running] = {}
        self._server: BridgeServer | None = None
        self._lock = threading.Lock()
        self._sharing = threading.Lock()
        self._drop_left_over()

    def _drop_left_over(self) -> None:
        """What a crash has left of views that nobody has created, or that were dropped."""
        for topic in self._log.topics:
            owner = topic.removeprefix(STATE).removeprefix(PENDING)
            if topic.startswith(HIDDEN) or (owner != topic and owner not in self._catalog):
                self._log.drop_topic(topic)

    # ---- what there is

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def __getitem__(self, name: str) -> Running:
        return self._running[name]

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running.values()))

    def readers_of(self, name: str) -> list[str]:
        """The views that read a log, or write to it what comes too late for them."""
        lower = name.lower()
        return [
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
        definition = self._catalog[name]
        retracts = definition.kind == "table"
        if definition.is_derived:
            retracts = self._retracts(definition.name)
        mark = definition.watermark
        return Input(
            definition.name,
            definition.kind,
            definition.schema,
            retracts,
            None if mark is None else mark.column,
        )

    def _retracts(self, name: str) -> bool:
        planned = self._running[name].planned
        if planned.plan is None:
            return planned.select is not None and self.input(planned.select.target).retracts
        if planned.plan.shape == "rows":
            return planned.plan.retracts
        final = planned.statement.emit.mode == "final"
        return not final

    def plan(self, statement: CreateView, name: str | None = None) -> Planned:
        """What a statement asks for, checked as far as it can be without running it.

        Raises:
            SqlError: it cannot be answered exactly; it says why, and what to write instead.
        """
        name = name or statement.name
        query = statement.query
        if isinstance(query, Select) and statement.emit.mode == "changes":
            planned = self._plan_in_process(statement, query, name)
            if planned is not None:
                return planned
        plan = plan_view(statement, self.input)
        self._spark.check_room(sum(each.feed is not None for each in self))
        columns, nothing = self._result_of_nothing(plan, statement)
        schema, hidden = self._split(plan, statement, columns)
        options = options_of(statement.options, schema, statement.sql, "view")
        definition = Definition(
            statement.kind, name, schema, options, created_at=system_clock(), query=statement.text
        )
        if statement.late_to is not None and len(plan.inputs) > 1:
            raise SqlUnsupportedError(
                "LATE DATA TO is for a view over one log",
                sql=statement.sql,
                line=statement.line,
                column=statement.column,
                hint="leave it out: late rows are counted, see SHOW VIEWS",
            )
        keeper = self._keeper(plan, statement, definition, hidden)
        return Planned(statement, definition, plan, None, keeper, nothing)

    def _plan_in_process(self, statement: CreateView, query: Select, name: str) -> Planned | None:
        if query.limit is not None:
            return None  # the planner says why not
        source = self._catalog[query.target]
        try:
            plan = plan_select(query, source.schema)
        except SqlError:
            return None  # perhaps Spark can
        plan = replace(plan, target=source.name)
        # Columns that are worked out may have the name of a key, and be none.
        key = source.schema.key if plan.projection is None else ()
        schema = Schema(plan.schema.columns, key)
        options = options_of(statement.options, schema, statement.sql, "view")
        definition = Definition(
            statement.kind, name, schema, options, created_at=system_clock(), query=statement.text
        )
        keeper = Lines(name, schema, kept=statement.kind == "view")
        return Planned(statement, definition, None, replace(plan, schema=schema), keeper)

    def _result_of_nothing(
        self, plan: ViewPlan, statement: CreateView
    ) -> tuple[pa.Schema, pa.Table | None]:
        """The result's columns, and what a global aggregate is of no rows."""
        query = self._spark_query(plan, "plan", self._folder)
        try:
            return query.result_of_nothing(rows=plan.shape == "groups" and not plan.keys)
        except SqlError as error:
            raise type(error)(
                error.message,
                sql=statement.sql,
                line=statement.line,
                column=statement.column,
                hint=error.hint,
            ) from error

    def _split(
        self, plan: ViewPlan, statement: CreateView, columns: pa.Schema
    ) -> tuple[Schema, list[Column]]:
        """The user's columns, and those that are kept besides."""
        if plan.shape == "sets":
            members = columns.field("_rows").type.value_type
            fields = [*members, *(each for each in columns if each.name.startswith("_k"))]
        else:
            fields = list(columns)
        shown = [each for each in fields if each.name in plan.columns][: len(plan.columns)]
        made = [Column(each.name, type_from_arrow(each.type)) for each in shown]
        wanted = set(plan.keys)
        if statement.emit.mode in {"close", "final"}:
            wanted.add("_end")
        known = {each.name for each in made}
        hidden = [
            Column(each.name, type_from_arrow(each.type))
            for each in fields
            if each.name not in known
            and each.name not in _INTERNAL
            and (each.name in wanted or each.name.startswith("_k"))
        ]
        keys = () if plan.shape == "rows" else (*plan.keys, *plan.match)
        return Schema(tuple(made), keys if set(keys) <= known else ()), hidden

    def _keeper(
        self, plan: ViewPlan, statement: CreateView, definition: Definition, hidden: list[Column]
    ) -> Groups | Lines:
        if plan.shape == "rows":
            return Lines(definition.name, definition.schema, kept=statement.kind == "view")
        emit = statement.emit
        return Groups(
            definition.name,
            definition.schema,
            hidden,
            plan.keys,
            emit.mode,
            match=plan.match if plan.shape == "sets" else None,
            lateness=plan.lateness,
            every=None if emit.every is None else emit.every // _MICROSECOND,
        )

    # ---- running

    def create(self, planned: Planned) -> Definition:
        """Make a view; called by the dispatcher's thread."""
        definition = planned.definition
        definition = replace(definition, begins=self._first_lsn(planned))
        for topic, schema in planned.keeper.topics.items():
            self._log.create_topic(topic, schema)
        if definition.name.startswith(HIDDEN):
            definition = replace(definition, born=self._log.lsn + 1)
            self._log.create_topic(definition.name, definition.schema)
        else:
            self._create_late(planned)
            definition = self._catalog.create(definition)
        planned.definition = definition
        return definition

    def _first_lsn(self, planned: Planned) -> int:
        """The first LSN that a new view reads."""
        if planned.definition.options.start == "now":
            return self._log.lsn + 1
        return min(self._log.topic(each).low_lsn for each in planned.inputs)

    def _create_late(self, planned: Planned) -> None:
        """The log of the rows that come too late for a view."""
        name, plan = planned.statement.late_to, planned.plan
        if name is None or plan is None:
            return
        schema = self._schema_of(plan.inputs[0])
        late = Definition("stream", name, schema, Options(), created_at=system_clock())
        self._catalog.create(late)

    def load(self, definition: Definition) -> None:
        """Bring a view to life that the catalog has."""
        statement = parse(definition.query)[0]
        if not isinstance(statement, CreateView):
            raise WrongObjectError(f"{definition.name} was not made by CREATE VIEW")
        planned = self._replan(statement, definition)
        self.run(planned)

    def _replan(self, statement: CreateView, definition: Definition) -> Planned:
        """As it was planned before; its columns are known, so Spark is not asked."""
        query = statement.query
        if isinstance(query, Select) and statement.emit.mode == "changes":
            planned = self._plan_in_process(statement, query, definition.name)
            if planned is not None:
                planned.definition = definition
                return planned
        plan = plan_view(statement, self.input)
        hidden: list[Column] = []
        state = STATE + definition.name
        if state in self._log.topics:
            stored = self._log.topic(state).schema
            hidden = list(stored.columns[len(definition.schema.columns) :])
        keeper = self._keeper(plan, statement, definition, hidden)
        return Planned(statement, definition, plan, None, keeper)

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
        view.load(self._log)
        view.lsn = self._log.lsn
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
        select = planned.select
        if select is None:
            raise AssertionError("it has a plan of its own")
        start = planned.definition.begins

        def open_tail(lsn: int) -> Tail:
            first = max(lsn + 1, start, self._log.topic(select.target).low_lsn)
            return self._tail((select.target,), first - 1)

        holds = self._holds((select.target,), max(view.cause + 1, start))
        return Running(planned, view, Follower(view, select, open_tail, holds.advance), None, holds)

    def _holds(self, topics: tuple[str, ...], lsn: int) -> Holds:
        return Holds(
            [self._log.hold(each, lsn=max(lsn, self._log.topic(each).low_lsn)) for each in topics]
        )

    def _tail(self, topics: tuple[str, ...], lsn: int) -> Tail:
        return Tail(self._log, self._dispatcher, topics, self._whole, lsn)

    def _run_on_spark(self, planned: Planned, view: View) -> Running:
        plan, definition = planned.plan, planned.definition
        if plan is None:
            raise AssertionError("it is Spark's")
        schemas = tuple(self._schema_of(each) for each in plan.inputs)
        window = plan.window
        columns = () if window is None else (window.columns or (window.column,))
        reads = Reads(
            plan.inputs,
            schemas,
            window,
            tuple(
                self._place(columns[i], schema) if i < len(columns) else None
                for i, schema in enumerate(schemas)
            ),
            plan.lateness,
            definition.begins,
            plan.lookups,
        )
        running: Running
        place = offset_in(self.folder_of(definition))
        if place is None and view.cause and self._is_trimmed(definition, plan.inputs):
            return Running(planned, view, Stalled(view, _unrepeatable(definition)), None, Holds([]))
        first = definition.begins if place is None or plan.lookups else place.lsn + 1
        holds = self._holds(plan.inputs, first)

        def on_late(batch: ChangeBatch) -> None:
            self._late(running, batch)

        feed = Feed(
            reads,
            self._log,
            open_tail=lambda lsn: self._tail(plan.inputs, lsn),
            make_durable=self._flush,
            on_late=on_late,
            # What a table's change alters is read from the whole log again.
            on_committed=(lambda _: None) if plan.lookups else holds.advance,
            on_idle=view.caught_up,
        )
        results = Results(feed, view)
        checkpoint = self.folder_of(definition)
        query = self._spark_query(plan, f"{definition.name}-{definition.born}", checkpoint)
        runner = Runner(definition.name, query, feed, results, view)
        running = Running(planned, view, runner, feed, holds)
        if place is not None:
            feed.live.late = place.late
        if planned.statement.late_to is not None:
            for batch in self._log.read(self._catalog[planned.statement.late_to].name):
                running.late_lsn = max(running.late_lsn, batch.cause)
        return running

    def _is_trimmed(self, definition: Definition, inputs: tuple[str, ...]) -> bool:
        """Whether rows that a view has read are kept no more."""
        first = definition.begins if len(inputs) == 1 else definition.born
        return any(self._log.topic(each).low_lsn > first for each in inputs)

    def _place(self, column: str, schema: Schema) -> int | None:
        return schema.names.index(column) if column in schema.names else None

    def _schema_of(self, name: str) -> Schema:
        return self._catalog[name].schema

    def _late(self, running: Running, batch: ChangeBatch) -> None:
        """Rows that came too late: to their own log, once, however often they are read again."""
        name = running.planned.statement.late_to
        if name is None or batch.lsn <= running.late_lsn:
            return
        rows = [
            row
            for row, lsn in zip(batch.held_rows, batch.lsns, strict=True)
            if lsn > running.late_lsn
        ]
        late = ChangeBatch(self._catalog[name].schema, rows, None, None, cause=batch.lsn)
        self._dispatcher.commit(Commit([(name, late)]))
        running.late_lsn = batch.lsn

    def _spark_query(self, plan: ViewPlan, feed: str, checkpoint: Path) -> SparkQuery:
        schemas = [self._schema_of(each) for each in plan.inputs]
        return SparkQuery(self._spark, plan, feed_schema(schemas), checkpoint, self._bridge(), feed)

    def _bridge(self) -> BridgeServer:
        with self._lock:
            if self._server is None:
                self._server = BridgeServer()
            return self._server

    def folder_of(self, definition: Definition) -> Path:
        """Where a view's checkpoint is."""
        safe = hashlib.sha256(definition.name.encode()).hexdigest()[:12]
        return self._folder / f"{safe}-{definition.born}"

    # ---- views that subscriptions share

    def share(self, query: Query, make: Callable[[Planned], None]) -> Running:
        """The view of a query, used once more; ``make`` makes it when there is none."""
        with self._sharing:
            statement = CreateView(
                name="", kind="view", query=query, emit=query.emit or Emit(), sql=query.sql
            )
            plan = plan_view(statement, self.input)
            text = f"{plan.fingerprint} {statement.emit} {plan.inputs}"
            name = HIDDEN + hashlib.sha256(text.encode()).hexdigest()[:16]
            running = self._running.get(name)
            if running is None or running.view.error is not None:
                if running is not None:
                    self._remove(running)
                make(self.plan(statement, name))
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

    def _remove(self, running: Running) -> None:
        name = running.view.name
        with contextlib.suppress(ClosedError):  # the database was closed just now
            self.drop(name)
            self._dispatcher.call(lambda: self._log.drop_topic(name))

    # ---- ending

    def drop(self, name: str) -> None:
        """Stop a view; its topics and its checkpoint go."""
        running = self._running.pop(name)
        running.stop(gracefully=False)
        running.runner.join()
        for topic in running.planned.keeper.topics:
            self._log.drop_topic(topic)
        running.holds.release()
        shutil.rmtree(self.folder_of(running.planned.definition), ignore_errors=True)

    def close(self) -> None:
        """Stop all views, at a checkpoint each, and Spark."""
        all_of_them = list(self._running.values())
        for each in all_of_them:
            each.stop(gracefully=not each.view.name.startswith(HIDDEN))
        for each in all_of_them:
            each.runner.join()
        if self._server is not None:
            self._server.close()
        self._spark.stop()
