"""Views on Spark: what the feed of each reads, its query, its checkpoint, its late rows."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.dispatch import select
from millstream.model.batch import ChangeBatch
from millstream.sql import plan_all
from millstream.sql.inputs import CLOCK, CLOCK_INPUT
from millstream.views.failures import unrepeatable
from millstream.views.lower.plans import CLOCK_TIME
from millstream.views.partitions.keys import Partitioner
from millstream.views.partitions.query import (
    PartitionedQuery,
    offset_of_partitions,
    partition_folders,
)
from millstream.views.partitions.results import MergedResults, PartitionResults
from millstream.views.partitions.wires import PartitionWires
from millstream.views.run.checkpoint import offset_within
from millstream.views.run.columns import feed_schema
from millstream.views.run.feed import ViewFeed
from millstream.views.run.inputs import FeedInputs
from millstream.views.run.live import Encodings, LiveFeed
from millstream.views.run.query import SparkQuery
from millstream.views.run.results import Results
from millstream.views.run.runner import Runner
from millstream.views.run.warm_up import WarmUp, can_warm_up
from millstream.views.running import LogHolds, RunningView, Stalled
from millstream.views.snapshot_rows import SnapshotRows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.catalog import Definition
    from millstream.spark.session import Spark
    from millstream.sql import SelectPlan
    from millstream.views.definitions import Storage
    from millstream.views.plan.plan import ViewPlan
    from millstream.views.planning import PlannedView
    from millstream.views.run.checkpoint import Offset
    from millstream.views.run.inputs import Keep
    from millstream.views.view import View


class SparkViews:
    """Connects the views of one database with Spark.

    Args:
        storage: what they read and write.
        spark: started when it is needed.

    Attributes:
        spark: the Spark session of the database.
        server: the bridge that the tasks of its views connect to.
    """

    def __init__(self, storage: Storage, spark: Spark) -> None:
        self.spark = spark
        self._storage = storage
        self.server = partial(spark.server, storage.dispatcher.together)
        self._encodings = Encodings()
        self._warm_ups: list[WarmUp] = []
        self._warming = threading.Lock()
        self._is_closed = False

    def query(self, plan: ViewPlan, feed: str, checkpoint: Path) -> SparkQuery:
        """The Spark query of a plan, whose feed has a name."""
        schemas = [self._storage.schema_of(each) for each in plan.inputs]
        columns = feed_schema(schemas)
        logs = tuple(
            pa.schema(list(schema.arrow)[:width])
            for schema, width in zip(schemas, plan.widths, strict=True)
        )
        times = tuple(map(self._time_of, plan.inputs))
        return SparkQuery(self.spark, plan, columns, checkpoint, self.server, feed, logs, times)

    def connect(self, planned: PlannedView, plan: ViewPlan, view: View) -> RunningView:
        """A view with its feed and its query, ready to start.

        It continues at its checkpoint. Without one it reads its inputs again; a view whose inputs
        were trimmed since cannot, and is one that has failed.
        """
        storage, definition, progress = self._storage, planned.definition, view.progress
        place = self._place_of(definition)
        if place is None and view.cause and self._is_trimmed(definition, plan, view.cause):
            stalled = Stalled(view, unrepeatable(definition, "gone"))
            return RunningView(planned, view, stalled, None, LogHolds([]))
        first = definition.begins if place is None else place.lsn + 1
        holds = LogHolds.of(storage.log, plan.inputs, first)
        inputs = self.inputs(planned, plan)
        name, checkpoint = f"{definition.name}-{definition.born}", storage.checkpoint_of(definition)
        analysed, planned.query = planned.query, None
        query = replace(
            analysed or self.query(plan, name, checkpoint),
            plan=plan,
            feed=name,
            checkpoint=checkpoint,
            timed=inputs.timed,
            before_rebuild=lambda: self._hold_all(definition, plan, view, holds),
        )
        live = self._live(planned, view, query, inputs, place)
        runner, feed = self._runner(planned, view, query, live, holds)
        if place is None:
            progress.reached = -1  # even over no rows it has a result, which is to come
        else:
            progress.caught_up(place.lsn)  # its results were on the disk before Spark noted it
        return RunningView(planned, view, runner, feed, holds, state_size=runner.state_size)

    def _live(
        self,
        planned: PlannedView,
        view: View,
        query: SparkQuery,
        inputs: FeedInputs,
        place: Offset | None,
    ) -> LiveFeed:
        storage, late_to, plan = self._storage, planned.statement.late_to, query.plan
        is_one = planned.definition.options.partitions == 1
        return LiveFeed(
            inputs,
            storage.log,
            storage.dispatcher,
            _with_clock(storage.select_all) if CLOCK in plan.inputs else storage.select_all,
            on_late=_ignore if late_to is None else LateLog(storage, late_to).append,
            encodings=self._encodings,
            snapshot=SnapshotRows(storage, view, inputs, plan.retracting)
            if plan.retracting
            else None,
            late=0 if place is None else place.late,
            shown_lsn=lambda: view.cause,
            cuts=view.progress.cuts,
            on_reading=view.progress.started,
            on_quiet=lambda: self._warm_up(query, inputs) if is_one else None,
        )

    def _runner(
        self,
        planned: PlannedView,
        view: View,
        query: SparkQuery,
        live: LiveFeed,
        holds: LogHolds,
    ) -> tuple[Runner, ViewFeed]:
        """What runs the query of a view, or one for each of its partitions; and what it reads."""
        name, progress = planned.definition.name, view.progress
        slots = planned.definition.options.partitions
        make_feed = partial(ViewFeed, live, on_committed=holds.advance, on_idle=progress.idle)
        if slots == 1:
            feed = make_feed()
            return Runner(name, query, feed, [Results(feed, view)], progress), feed
        shared, partitioner = MergedResults(view), Partitioner(slots)
        waits = live.inputs.waits is not None
        joined = partial(PartitionWires, partitioner=partitioner, results=shared, waits=waits)
        feed = make_feed(slots=slots, joined=joined)
        results = [PartitionResults(feed, shared, each) for each in range(slots)]
        queries = PartitionedQuery(query, partitioner, shared.abandon)
        return Runner(name, queries, feed, results, progress), feed

    def close(self) -> None:
        """Stop Spark; all views have ended."""
        with self._warming:
            self._is_closed = True
        for each in self._warm_ups:
            each.stop()
        self.spark.stop()

    def _warm_up(self, query: SparkQuery, inputs: FeedInputs) -> None:
        """Beside the first query, run one like it over made-up rows."""
        if not can_warm_up(inputs) or not self.spark.is_cold():
            return
        with self._warming:
            if not self._is_closed:
                warm_up = WarmUp(query, inputs)
                warm_up.start()
                self._warm_ups.append(warm_up)

    def inputs(self, planned: PlannedView, plan: ViewPlan) -> FeedInputs:
        """What the feed of a view reads."""
        tenant = planned.tenant
        return FeedInputs(
            plan.inputs,
            tuple(self._storage.schema_of(each) for each in plan.inputs),
            plan.window,
            tuple(map(self._watermarked, plan.inputs)),
            plan.lateness,
            planned.definition.begins,
            None if tenant is None else self._rows_of(tenant),
            None if plan.emit is None else "clock" if plan.emit.every else "watermark",
        )

    def _rows_of(self, tenant: str) -> Keep:
        """What filters the batches of a feed: the rows of one tenant, at unchanged LSNs."""
        select_all = self._storage.select_all

        def keep(batch: ChangeBatch) -> ChangeBatch:
            if batch.topic == CLOCK:  # the time is everyone's
                return batch
            plan = select_all(batch.topic, tenant)
            kept = None if plan is None else select(batch, plan)
            # Its watermark counts, and so do its LSNs, even if no row is left of it.
            return batch.keep_places(()) if kept is None else kept

        return keep

    def _time_of(self, name: str) -> int:
        """The place of the column that a log's watermark is of, see ``LogLeaf``."""
        if name == CLOCK:
            return CLOCK_TIME
        found = self._watermarked(name)
        return -1 if found is None else found

    def _watermarked(self, name: str) -> int | None:
        """The place of the column that a log's watermark is of."""
        definition = self._storage.definition_of(name)
        mark = definition.watermark
        return None if mark is None else definition.schema.names.index(mark.column)

    def _place_of(self, definition: Definition) -> Offset | None:
        """The offset of a view's checkpoint; a checkpoint that is ahead of the log is removed."""
        checkpoint, lsn = self._storage.checkpoint_of(definition), self._storage.log.lsn
        count = definition.options.partitions
        if count == 1:
            return offset_within(checkpoint, lsn)
        for each in partition_folders(checkpoint, count):
            offset_within(each, lsn)
        return offset_of_partitions(checkpoint, count)

    def _hold_all(
        self, definition: Definition, plan: ViewPlan, view: View, holds: LogHolds
    ) -> None:
        """Keep all that a view has read, so that it can be rebuilt.

        Raises:
            ViewFailedError: retention has removed some of it.
        """
        all_of_it = LogHolds.of(self._storage.log, plan.inputs, definition.begins)
        if view.cause and self._is_trimmed(definition, plan, view.cause):
            all_of_it.release()
            raise unrepeatable(definition, "of another plan")
        holds.renew(all_of_it)

    def _is_trimmed(self, definition: Definition, plan: ViewPlan, lsn: int) -> bool:
        """Whether rows that a view has read up to an LSN are kept no more."""
        firsts, log = dict(definition.firsts), self._storage.log
        inputs = [plan.inputs[n] for n in range(len(plan.inputs)) if n not in plan.retracting]
        for name in (plan.inputs[n] for n in plan.retracting):
            if not self._storage.definition_of(name).has_base:
                inputs.append(name)
            elif log.topic(name).low_lsn > lsn + 1:  # else its rows at that LSN can be told
                return True
        if CLOCK in inputs:  # of it the last tick is enough
            oldest = next((batch.first_lsn for batch in log.read(CLOCK)), lsn + 1)
            if oldest > lsn:
                return True
        return any(
            log.topic(each).low_lsn > max(definition.begins, firsts.get(each, 0))
            for each in inputs
            if each != CLOCK
        )


class LateLog:
    """The log of LATE DATA TO: each late row once, however often Spark reads it again.

    Args:
        storage: where it is.
        name: the log.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        batches = storage.log.read(storage.catalog[name].name)
        self._lsn = max((batch.cause for batch in batches), default=0)

    def append(self, batch: ChangeBatch) -> None:
        """Commit rows that came too late, unless they are there."""
        if batch.lsn <= self._lsn:
            return
        late = batch.keep_mask(pc.greater(batch.lsns_arrow(), self._lsn))
        schema = self._storage.schema_of(self._name)
        rows = ChangeBatch(schema, None, schema.conform(late.arrow), None, cause=batch.lsn)
        self._storage.dispatcher.commit([(self._name, rows)])
        self._lsn = batch.lsn


def _with_clock(
    select_all: Callable[[str], SelectPlan | None],
) -> Callable[[str], SelectPlan | None]:
    """Plans of all rows of a log, the clock's among them."""
    clock = plan_all(CLOCK, CLOCK_INPUT.schema, None)
    return lambda topic: clock if topic == CLOCK else select_all(topic)


def _ignore(_: object) -> None:
    """Do nothing: there is no late log."""
