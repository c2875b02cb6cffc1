"""The past: the rows of sources, tables and views as they were at an LSN.

A source has the rows of its log up to there, a table what its changes up to there come to. A view
has what its query gives over its inputs as they were: Spark answers it once more, in batch, so that
it is exact at any LSN, whatever the view's own steps were. Where the query does not say it all,
such as when rows are emitted, it is what the view had shown.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.dispatch import make_readable, select
from millstream.errors import (
    ExpressionError,
    LsnNotKeptError,
    ObjectNotFoundError,
    SqlUnsupportedError,
)
from millstream.model.batch import ChangeBatch
from millstream.model.lsn import FIRST_LSN
from millstream.spark.errors import SparkError, spark_message
from millstream.sql import CreateView
from millstream.sql.inputs import CLOCK
from millstream.views.definitions import HIDDEN, replan
from millstream.views.run.failures import view_failure
from millstream.views.run.inputs import FeedInputs, FeedLogs
from millstream.views.run.past_relations import PastInputs
from millstream.views.snapshot_rows import rows_at
from millstream.views.sorting import ordered

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.catalog import Definition
    from millstream.sql import Query
    from millstream.views.plan.plan import ViewPlan
    from millstream.views.planning import PlannedView
    from millstream.views.run.query import SparkQuery
    from millstream.views.views import Views

_NO_VALUE: Final = "some row of that time has no value: use try_divide, try_cast or a WHERE"
_numbers: Final = itertools.count(1)

Read: TypeAlias = Callable[["Definition"], Iterator[ChangeBatch]]
"""Gives the rows of a table or a view."""


class Past:
    """Gives the rows of everything as they were.

    Args:
        views: the views, and what they are stored in.
    """

    def __init__(self, views: Views) -> None:
        self._views = views
        self._storage = views.storage
        self._running: dict[int, SparkQuery] = {}  # by the thread that waits for its answer

    def rows(self, definition: Definition, lsn: int) -> Iterator[ChangeBatch]:
        """The rows that a relation had at an LSN.

        Raises:
            ObjectNotFoundError: it did not exist.
            LsnNotKeptError: retention has removed what is needed.
            ViewFailedError: the query of a view has no value for some row.
        """
        definition.check_usable()
        with self._kept():
            yield from self._rows(definition, lsn)

    def shown(self, definition: Definition, lsn: int) -> Iterator[ChangeBatch]:
        """The rows that readers of a relation had been given by an LSN.

        Raises:
            LsnNotKeptError: retention has removed what is needed.
        """
        with self._kept():
            yield from self._shown(definition, lsn)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """All that was pushed can be read, and retention waits until it was."""
        log = self._storage.log
        make_readable(self._storage.dispatcher, log)
        hold = log.hold(lsn=FIRST_LSN)
        try:
            yield
        finally:
            hold.release()

    def explained(self, definition: Definition) -> str:
        """How the rows of a relation are found."""
        if not definition.query:
            return "from its log, in process"
        planned = self._views[definition.name].planned
        if not self._is_computed(planned):
            return "as it was shown, from its log, in process"
        read = ", ".join(planned.inputs)
        where = "in process" if planned.plan is None else "by a Spark batch"
        return f"its query over what {read} had, {where}"

    def _rows(self, definition: Definition, lsn: int) -> Iterator[ChangeBatch]:
        if definition.query:
            planned = self._views[definition.name].planned
            if self._is_computed(planned):
                return self._computed(planned, lsn)
        self._check_exists(definition, lsn)
        return self._shown(definition, lsn)

    def _check_exists(self, definition: Definition, lsn: int) -> None:
        # Nothing was committed since the newest LSN, but perhaps a definition.
        if lsn < min(definition.born, self._storage.dispatcher.lsn):
            raise ObjectNotFoundError(
                f"{definition.name} did not exist at LSN {lsn:,}",
                hint=f"it was created at LSN {definition.born:,}",
            )

    def _shown(self, definition: Definition, lsn: int) -> Iterator[ChangeBatch]:
        """The rows that the changes of a log up to an LSN come to."""
        self._check_kept(definition.name, lsn)
        if self._retracts(definition):
            return rows_at(self._storage, definition.name, lsn, _nothing)
        return self._logged(definition.name, FIRST_LSN, lsn)

    def _retracts(self, definition: Definition) -> bool:
        if definition.query:
            return self._views[definition.name].planned.retracts
        return definition.kind == "table"

    def _logged(self, name: str, first: int, last: int) -> Iterator[ChangeBatch]:
        inputs = FeedInputs((name,), (self._storage.schema_of(name),))
        return (batch for _, batch in FeedLogs(inputs, self._storage.log).read(first, last))

    def _check_kept(self, name: str, lsn: int) -> None:
        """Raise if no row is left of what a log had at an LSN."""
        topic = self._storage.log.topic(name)
        if topic.low_lsn > lsn and self._storage.log.lost(topic, FIRST_LSN) is not None:
            raise _not_kept(name, lsn, topic.low_lsn)

    # ---- views

    def _is_computed(self, planned: PlannedView) -> bool:
        """Whether the rows of a view at an LSN are those of its query over its inputs at it.

        Not if rows are late by the log of another view, of which only the rows are computed.
        """
        plan, catalog = planned.plan, self._storage.catalog
        if planned.statement.emit.mode != "changes" or planned.definition.options.start == "now":
            return False
        if plan is None:
            return True
        timed = (catalog[each] for each in plan.inputs if each != CLOCK)
        late = any(each.query and each.watermark is not None for each in timed)
        return not late and not _goes_by_log(plan)

    def _computed(self, planned: PlannedView, lsn: int) -> Iterator[ChangeBatch]:
        """What the query of a view gives over its inputs as they were."""
        definition = planned.definition
        for each in planned.inputs:
            self._check_input(definition, self._storage.catalog[each], lsn)
        if planned.select is not None:
            width = len(definition.schema.columns)
            for batch in self._rows(self._storage.catalog[planned.select.target], lsn):
                kept = select(batch, planned.select)
                if kept is not None:  # columns may have been added to what it reads
                    data = kept.arrow.select(list(range(width)))
                    yield kept.with_columns(definition.schema, None, data)
            return
        # Its own shape holds the rows of now.
        fresh = replan(self._storage, self._views.planner, definition)
        rows = self._answer(fresh, lsn)
        for part in rows.to_batches():
            data = definition.schema.conform(part)
            yield ChangeBatch(definition.schema, None, data, None, topic=definition.name)

    def _check_input(self, view: Definition, read: Definition, lsn: int) -> None:
        """Raise if an input of a view was not there, or retention has removed rows of it."""
        if not read.query:
            self._check_exists(read, lsn)
        elif self._is_computed(self._views[read.name].planned):
            return  # by what that one reads
        topic = self._storage.log.topic(read.name)
        first = max(view.begins, dict(view.firsts).get(read.name, 0))
        if not read.has_base and topic.low_lsn > first:  # else its rows are known all the same
            hint = f"a subscription to {view.name} with start={lsn} begins with what it had shown"
            raise _not_kept(read.name, lsn, topic.low_lsn, hint)
        self._check_kept(read.name, lsn)

    # ---- queries on Spark

    def plan(self, query: Query, tenant: str | None) -> PlannedView:
        """A query of any kind that a view may have, as Spark answers it in batch.

        Args:
            query: the query.
            tenant: whose rows it reads; None: all rows.

        Raises:
            SqlError: a view cannot have it, or not without its log.
        """
        statement = CreateView(name="", kind="view", query=query, sql=query.sql)
        planned = replace(self._views.plan(statement, HIDDEN + "past", tenant), tenant=tenant)
        plan = planned.plan
        if plan is not None and plan.is_constant:
            bare = replace(plan, inputs=(), grows=(), unique=(), widths=())
            return replace(planned, plan=bare, query=None)
        if plan is None or _goes_by_log(plan):
            raise SqlUnsupportedError(
                "NOW() and FOR SYSTEM_TIME AS OF are not supported in a query with AS OF",
                sql=query.sql,
                line=query.line,
                column=query.column,
                hint="Write the time; or create a view, and query that.",
            )
        return planned

    def answer(self, planned: PlannedView, lsn: int, read: Read | None = None) -> pa.Table:
        """The rows that a query gives as of an LSN.

        Args:
            planned: the query.
            lsn: as of which LSN.
            read: gives the rows of tables and views, if not those that they had at the LSN.
        """
        for name in planned.inputs if read is None else ():
            definition = self._storage.catalog[name]
            if not definition.query:
                self._check_exists(definition, lsn)
                self._check_kept(name, lsn)
        with self._kept():
            return self._answer(planned, lsn, all_rows=True, read=read)

    def interrupt(self, thread: int) -> None:
        """End the Spark batch whose answer a thread waits for, if there is one, with an error."""
        query = self._running.get(thread)
        if query is not None:
            query.cancel()

    def _answer(
        self, planned: PlannedView, lsn: int, *, all_rows: bool = False, read: Read | None = None
    ) -> pa.Table:
        """The rows of a query on Spark.

        Args:
            planned: the query.
            lsn: as of which LSN.
            all_rows: also those that come too late for a view.
            read: see ``answer``.
        """
        plan, spark = planned.plan, self._views.spark_views
        if plan is None:
            raise AssertionError("a query on Spark has a plan")
        query = spark.query(plan, f"past-{next(_numbers)}", self._storage.checkpoints)
        inputs = spark.inputs(planned, plan)
        if all_rows:
            inputs = replace(inputs, window=None)
        elif any(each is not None for each in inputs.event_times):
            inputs.timed.update(query.lowered().timed)
        held = self._held(plan, inputs, read or partial(self._rows, lsn=lsn))
        logs = PastInputs(inputs, plan, self._storage.log, lsn, held)
        self._running[threading.get_ident()] = query
        try:
            found = query.answer(logs.relations())
        except SparkError as error:
            message, name = spark_message(str(error)), planned.definition.name
            if all_rows:
                raise ExpressionError(message, hint=_NO_VALUE) from error
            raise view_failure(name, error, message, _NO_VALUE) from error
        finally:
            del self._running[threading.get_ident()]
        return ordered(found, plan.order).drop_columns(list(plan.added))

    def _held(self, plan: ViewPlan, inputs: FeedInputs, read: Read) -> dict[int, list[ChangeBatch]]:
        """By its place, the rows of each input that Spark's tasks do not read from its log."""
        held: dict[int, list[ChangeBatch]] = {}
        for place, name in enumerate(plan.inputs):
            definition = self._storage.catalog[name]
            if definition.kind == "source" or definition.is_late_log:
                continue
            if definition.query and place in plan.dated:
                self._check_order(definition)
            rows = read(definition)
            held[place] = list(rows if inputs.keep is None else map(inputs.keep, rows))
        return held

    def _check_order(self, definition: Definition) -> None:
        """Refuse what goes by the order of the rows of a view: what is computed anew has none.

        Raises:
            SqlUnsupportedError: it is computed anew.
        """
        planned = self._views[definition.name].planned
        if planned.select is None and self._is_computed(planned):
            raise SqlUnsupportedError(
                f"FIRST, LAST and the like over {definition.name}, a view, have no past",
                hint="MIN_BY(x, y) and MAX_BY(x, y) do not go by the order of a log.",
            )


def _goes_by_log(plan: ViewPlan) -> bool:
    """Whether the answer of a query is not that of a batch over the rows of an LSN."""
    return CLOCK in plan.inputs or bool(plan.temporal)


def _not_kept(name: str, lsn: int, oldest: int, hint: str = "") -> LsnNotKeptError:
    return LsnNotKeptError(
        f"the rows that {name} had at LSN {lsn:,} are not kept",
        oldest=oldest,
        hint=hint or f"a longer retention of {name} keeps them",
    )


def _nothing() -> None:
    """Do nothing: the rows are wanted."""
