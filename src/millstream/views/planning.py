"""Planning: what a CREATE VIEW statement asks for, checked before anything is written."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.catalog import Definition, options_of
from millstream.errors import (
    Error,
    SqlColumnError,
    SqlError,
    SqlOptionError,
    SqlTypeError,
    SqlUnsupportedError,
)
from millstream.model.clock import system_clock
from millstream.model.schema import Column, Schema
from millstream.model.types import type_from_arrow
from millstream.spark.errors import SparkError
from millstream.sql import Input, Select, plan_select
from millstream.sql.expressions import Projection
from millstream.sql.inputs import CLOCK
from millstream.views.partitions.query import keys_of
from millstream.views.plan.order import hidden_of
from millstream.views.plan.planner import plan_query
from millstream.views.plan.query_text import clock_place
from millstream.views.rows import ViewRows
from millstream.views.spark_refusals import check_casts, located

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.catalog import Catalog
    from millstream.model.types import SqlType
    from millstream.sql import CreateView, SelectPlan, WatermarkSpec
    from millstream.views.plan.plan import ViewPlan
    from millstream.views.run.query import SparkQuery


class OutdatedRowsError(Error):
    """An earlier version has stored the rows of a view otherwise; see ``engine.ddl.rebuild``.

    Args:
        definition: the view.
    """

    code = "OUTDATED_ROWS"

    def __init__(self, definition: Definition) -> None:
        super().__init__(
            f"an earlier version has stored its {definition.kind}, which is computed anew",
            hint="it is there when the log has been read again",
        )


@dataclass(slots=True)
class PlannedView:
    """A view that can be created.

    Attributes:
        statement: what was asked for.
        definition: what the catalog will have.
        plan: what Spark does; None when it is not needed.
        select: what this process does; None when Spark does it.
        rows: what it holds.
        tenant: whose rows it reads; None: all rows. Only hidden views have one.
        operators: what each of its operators does.
        query: as it was analysed to plan it, unless it has several partitions; None once it runs.
        partitioned_by: the columns of its inputs by which it is split, if it has several
            partitions; known when it is created.
        read: what it was planned over, as it was then: when it is created, that must still be so.
        is_outdated: whether an earlier version has stored its rows with more hidden columns.
    """

    statement: CreateView
    definition: Definition
    plan: ViewPlan | None
    select: SelectPlan | None
    rows: ViewRows
    tenant: str | None = None
    operators: tuple[str, ...] = ()
    query: SparkQuery | None = None
    partitioned_by: tuple[str, ...] = ()
    read: tuple[Definition, ...] = ()
    is_outdated: bool = False

    @property
    def keeps_rows(self) -> bool:
        """Whether its current rows are kept, as a view's are."""
        return self.statement.kind == "view"

    @property
    def retracts(self) -> bool:
        """Whether rows of it may be retracted."""
        return self.rows.retracts if self.plan is None else self.plan.retracts

    @property
    def expands(self) -> bool:
        """Whether its rows are, at each LSN, those of its query over all that is in its inputs."""
        timed = self.plan is not None and self.plan.window is not None
        timed = timed or self.definition.watermark is not None
        early = self.definition.options.start == "now"
        return self.statement.emit.mode == "changes" and not timed and not early

    @property
    def depends_on(self) -> tuple[str, ...]:
        """What it reads, and the views of which it reads the inputs."""
        return self.inputs if self.plan is None else (*self.plan.inputs, *self.plan.through)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The logs that it reads."""
        if self.plan is not None:
            return self.plan.inputs
        return () if self.select is None else (self.select.target,)


class ViewPlanner:
    """Plans views.

    Args:
        catalog: what exists.
        planned_of: how a view that runs was planned.
        query_of: the Spark query of a plan, which gives its columns.
        check_room: raises unless Spark can run so many more queries.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        planned_of: Callable[[str], PlannedView],
        query_of: Callable[[ViewPlan], SparkQuery],
        check_room: Callable[[int], None],
    ) -> None:
        self._catalog = catalog
        self._planned_of = planned_of
        self._query_of = query_of
        self._check_room = check_room

    def inputs(self, find: Callable[[str], Definition]) -> Inputs:
        """What one plan reads, found by name."""
        return Inputs(find, self._input_of)

    def input(self, name: str) -> Input:
        """What planners need to know of a log."""
        return self._input_of(self._catalog[name])

    def _input_of(self, definition: Definition) -> Input:
        retracts, view = definition.kind == "table", None
        if definition.query:
            planned = self._planned_of(definition.name)
            retracts, view = planned.retracts, planned.statement if planned.expands else None
        mark = definition.watermark
        return Input(
            definition.name,
            definition.kind,
            definition.schema,
            retracts,
            None if mark is None else mark.column,
            view,
        )

    def plan(
        self, statement: CreateView, name: str | None = None, tenant: str | None = None
    ) -> PlannedView:
        """What a statement asks for, checked as far as it can be without running it.

        Args:
            statement: the statement.
            name: the view's, if it is not that of the statement.
            tenant: whose rows it reads; None: all rows.

        Raises:
            SqlError: it cannot be answered exactly; it says why, and what to write instead.
        """
        name = name or statement.name
        inputs = self.inputs(self._catalog.__getitem__)
        query = statement.query
        if isinstance(query, Select) and statement.emit.mode == "changes":
            planned = self._in_process(statement, query, name, inputs)
            if planned is not None:
                _check_unpartitioned(planned.definition, statement)
                planned.read = inputs.read
                return planned
        # Of a view a tenant may see rows, and nothing of what it reads.
        plan = plan_query(statement, inputs if tenant is None else inputs.log_of)
        partitions = options_of(
            {name: each for name, each in statement.options.items() if name == "partitions"},
            Schema.of(nothing="BOOLEAN"),
            statement.sql,
            "view",
        ).partitions
        self._check_room(partitions)
        spark_query = self._query_of(plan)
        columns = self._result_columns(spark_query, statement)
        by = _partitioned_by(spark_query, statement) if partitions > 1 else ()
        plan = _keyed(plan, columns, spark_query.keys)
        is_plain = not plan.keys and plan.emit is None
        if is_plain and spark_query.grows and statement.watermark is not None:
            plan = replace(plan, retracts=False)
        schema, hidden = self._split(plan, statement, columns)
        _check_order(plan, (*schema.columns, *hidden), statement)
        mark = _watermark(statement, schema, retracts=plan.retracts)
        definition = self._define(statement, name, schema, mark, retracts=plan.retracts)
        _check_retention(definition, statement)
        self._check_start(statement, definition, _named(plan.inputs, inputs))
        if statement.late_to is not None and len(plan.inputs) > 1:
            raise SqlUnsupportedError(
                "LATE DATA TO is for a view over one log",
                sql=statement.sql,
                line=statement.line,
                column=statement.column,
                hint="leave it out: late rows are counted, see SHOW VIEWS",
            )
        return PlannedView(
            statement,
            definition,
            plan,
            None,
            _rows(plan, definition, hidden),
            tenant,
            spark_query.operators,
            spark_query if partitions == 1 else None,
            by,
            inputs.read,
        )

    def _in_process(
        self,
        statement: CreateView,
        query: Select,
        name: str,
        inputs: Callable[[str], Input],
        known: Schema | None = None,
    ) -> PlannedView | None:
        """A view without Spark; None when it needs Spark.

        ``known`` are the columns of a view that exists: what may be NULL was settled then.
        """
        if query.limit is not None:
            return None  # the planner for Spark raises the error
        source = inputs(query.target)
        try:
            plan = plan_select(query, source.schema)
        except SqlError:
            return None  # perhaps Spark supports it
        plan = replace(plan, target=source.name)
        # A computed column may have the name of a key column without being one.
        key = source.schema.key if plan.projection is None else ()
        schema = Schema(plan.schema.columns, key) if known is None else known
        if plan.projection is not None and plan.projection.schema != schema:
            plan = replace(plan, projection=Projection(plan.projection.nodes, schema))
        mark = _watermark(statement, schema, retracts=source.retracts)
        definition = self._define(statement, name, schema, mark, retracts=source.retracts)
        _check_retention(definition, statement)
        self._check_start(statement, definition, [source])
        rows = ViewRows(name, schema, kept=statement.kind == "view", retracts=source.retracts)
        return PlannedView(statement, definition, None, replace(plan, schema=schema), rows)

    def _define(
        self,
        statement: CreateView,
        name: str,
        schema: Schema,
        mark: WatermarkSpec | None,
        *,
        retracts: bool,
    ) -> Definition:
        options = options_of(statement.options, schema, statement.sql, "view")
        return Definition(
            statement.kind,
            name,
            schema,
            options,
            mark,
            system_clock(),
            query=statement.text,
            saves_rows=retracts and statement.kind == "view",
        )

    def _check_start(
        self, statement: CreateView, definition: Definition, inputs: Sequence[Input]
    ) -> None:
        """Refuse start = 'now' over input that retracts: earlier rows would be retracted later."""
        found = [each for each in inputs if each.retracts]
        if found and definition.options.start == "now":
            option = statement.options["start"]
            raise SqlOptionError(
                f"start = 'now' is for sources, and {found[0].name} is a {found[0].kind}",
                sql=statement.sql,
                line=option.line,
                column=option.column,
                hint="leave it out: rows that were there before may be changed or deleted later",
            )

    def _result_columns(self, query: SparkQuery, statement: CreateView) -> pa.Schema:
        """The result's columns."""
        try:
            found = query.result_columns()
        except SqlError as error:
            casts = []
            with contextlib.suppress(SparkError, SqlError):
                casts = query.implicit_casts()
            check_casts(casts, statement, self.input)  # Spark has computed those of constants
            raise located(error, statement, query) from error
        if query.reads_clock():
            line, column = clock_place(statement)
            raise SqlUnsupportedError(
                "the time of day is not supported in a view",
                sql=statement.sql,
                line=line,
                column=column,
                hint="A view is a function of its log: push the time as a column.",
            )
        check_casts(query.implicit_casts(), statement, self.input)
        return found

    def _split(
        self, plan: ViewPlan, statement: CreateView, columns: pa.Schema
    ) -> tuple[Schema, list[Column]]:
        """The user's columns, and the hidden ones."""
        shown = [each for each in columns if each.name not in plan.added]
        _check_unique([each.name for each in shown], statement)
        made = [Column(each.name, type_from_arrow(each.type)) for each in shown]
        wanted = hidden_of(plan.order)
        hidden = [
            Column(each.name, type_from_arrow(each.type)) for each in columns if each.name in wanted
        ]
        return Schema(tuple(made), plan.keys), hidden

    def replan(
        self,
        statement: CreateView,
        definition: Definition,
        hidden: Sequence[Column],
        *,
        on_spark: bool,
    ) -> PlannedView:
        """The plan of a view that exists; its columns are known, so Spark is not needed.

        Args:
            statement: the statement that created it.
            definition: what the catalog has.
            hidden: the columns that it stores and does not show.
            on_spark: whether Spark has kept it so far; then it goes on from Spark's checkpoint,
                even if this version could do without.

        Raises:
            OutdatedRowsError: an earlier version has stored its rows without columns that are
                needed now.
        """
        widths = dict(definition.widths)

        def as_it_was(name: str) -> Input:
            """A log with the columns that it had then: others may have been added since."""
            now = self.input(name)
            columns = now.schema.columns[: widths.get(now.name)]  # a view has those it began with
            return replace(now, schema=Schema(columns, now.schema.key))

        query = statement.query
        if isinstance(query, Select) and statement.emit.mode == "changes" and not on_spark:
            name, schema = definition.name, definition.schema
            planned = self._in_process(statement, query, name, as_it_was, schema)
            if planned is not None:
                planned.definition = definition
                return planned
        plan = plan_query(statement, as_it_was)
        plan = replace(plan, keys=definition.schema.key)
        wanted, stored = set(hidden_of(plan.order)), {each.name for each in hidden}
        if wanted - stored:
            raise OutdatedRowsError(definition)
        hidden = [each for each in hidden if each.name in wanted]
        if definition.watermark is not None:  # else it would have been refused
            plan = replace(plan, retracts=False)
        elif statement.kind == "view":  # as its rows were stored so far
            plan = replace(plan, retracts=definition.saves_rows)
        rows, is_outdated = _rows(plan, definition, hidden), stored != wanted
        return PlannedView(statement, definition, plan, None, rows, is_outdated=is_outdated)


class Inputs:
    """What one plan reads: each log is looked up once, so that it does not change under the plan.

    Args:
        find: the definition of a name; raises if there is none.
        input_of: what planners need to know of a definition.
    """

    def __init__(
        self, find: Callable[[str], Definition], input_of: Callable[[Definition], Input]
    ) -> None:
        self._find = find
        self._input_of = input_of
        self._found: dict[str, tuple[Definition, Input]] = {}

    def __call__(self, name: str) -> Input:
        """What planners need to know of a log."""
        found = self._found.get(name.lower())
        if found is None:
            definition = self._find(name)
            found = self._found[name.lower()] = definition, self._input_of(definition)
        return found[1]

    def log_of(self, name: str) -> Input:
        """What planners need to know of a log, and not what leads to it."""
        return replace(self(name), view=None)

    @property
    def read(self) -> tuple[Definition, ...]:
        """The definitions that were looked up."""
        return tuple(definition for definition, _ in self._found.values())


def _rows(plan: ViewPlan, definition: Definition, hidden: Sequence[Column]) -> ViewRows:
    """The rows of a view on Spark."""
    kept, name = definition.kind == "view", definition.name
    return ViewRows(name, definition.schema, kept=kept, retracts=plan.retracts, hidden=hidden)


def _keyed(plan: ViewPlan, columns: pa.Schema, keys: tuple[int, ...] | None) -> ViewPlan:
    """The plan with the columns that distinguish its rows, if all of these are shown.

    Args:
        plan: the plan.
        columns: the columns of the result.
        keys: the places of those that distinguish its groups; None when its rows are none.
    """
    found = [columns.field(place) for place in keys or ()]
    shown = tuple(each.name for each in found)
    if any(pa.types.is_nested(each.type) for each in found) or set(shown) & set(plan.added):
        return plan
    return replace(plan, keys=shown)


def _check_retention(definition: Definition, statement: CreateView) -> None:
    """Refuse retention of append-only views: their log is all."""
    given = [name for name in ("retention", "retention_bytes") if name in statement.options]
    if given and not definition.has_base and statement.kind == "view":
        option = statement.options[given[0]]
        raise SqlOptionError(
            f"{given[0]} is for a view whose rows change: the rows of this one are in its log",
            sql=statement.sql,
            line=option.line,
            column=option.column,
            hint="leave it out, or give it to the source",
        )


def _check_unpartitioned(definition: Definition, statement: CreateView) -> None:
    """Refuse partitions of a view that needs no Spark."""
    if definition.options.partitions > 1:
        raise _not_partitioned(
            "a view that only filters one log needs no Spark",
            "leave partitions out",
            statement,
        )


def _partitioned_by(query: SparkQuery, statement: CreateView) -> tuple[str, ...]:
    """The columns that a view's rows are distributed by.

    Raises:
        SqlUnsupportedError: there are none that all of its operators have in common.
    """
    try:
        keys = keys_of(query)
    except SqlUnsupportedError as error:
        raise _not_partitioned(error.message, error.hint, statement) from error
    several = sum(map(bool, keys)) > 1
    return tuple(
        f"{query.plan.inputs[log]}.{name}" if several else name
        for log, columns in enumerate(keys)
        for name, _, _ in columns
    )


def _not_partitioned(what: str, hint: str, statement: CreateView) -> SqlUnsupportedError:
    option = statement.options["partitions"]
    return SqlUnsupportedError(
        f"the view cannot be partitioned: {what}",
        sql=statement.sql,
        line=option.line,
        column=option.column,
        hint=hint,
    )


def _watermark(statement: CreateView, schema: Schema, *, retracts: bool) -> WatermarkSpec | None:
    """The event time that a view declares, if its rows can have one.

    Raises:
        SqlColumnError: its column is not there.
        SqlTypeError: its column is no TIMESTAMP.
        SqlUnsupportedError: rows of the view may change or disappear, and what would be late then?
    """
    mark = statement.watermark
    if mark is None:
        return None
    place = _place([each.lower() for each in schema.names], mark.column)
    error: type[SqlError] = SqlUnsupportedError
    if place < 0:
        error, problem = SqlColumnError, f"the view has no column {mark.column}"
        hint = f"its columns: {', '.join(schema.names)}"
    elif (column := schema.columns[place]).type.kind != "TIMESTAMP":
        error, known = SqlTypeError, column.type.sql
        problem = f"a watermark follows a TIMESTAMP, and {column.name} is {known}"
        hint = "name a column of type TIMESTAMP, or leave the watermark out"
    elif retracts:
        problem = "WATERMARK is for a view whose rows never change or disappear"
        hint = "read sources, without outer joins; give groups EMIT FINAL"
    else:
        return replace(mark, column=column.name)
    raise error(problem, sql=statement.sql, line=mark.line, column=mark.place, hint=hint)


def _named(names: Sequence[str], inputs: Callable[[str], Input]) -> list[Input]:
    """The logs that a query names: not that of the clock."""
    return [inputs(each) for each in names if each != CLOCK]


def _check_unique(names: Sequence[str], statement: CreateView) -> None:
    """Refuse two columns of one name, as SELECT * of a join may have them."""
    known: set[str] = set()
    for name in names:
        if name.lower() in known:
            raise SqlColumnError(
                f"two columns are named {name!r}",
                sql=statement.sql,
                line=statement.query.line or statement.line,
                column=statement.query.column or statement.column,
                hint="name the columns, and give each another alias",
            )
        known.add(name.lower())


def _check_order(plan: ViewPlan, columns: Sequence[Column], statement: CreateView) -> None:
    """Refuse an order by what is no column, or by one whose values have no order."""
    names = [each.name.lower() for each in columns]
    for key in plan.order:
        place = key.column if isinstance(key.column, int) else _place(names, key.column)
        if place not in range(len(names)) or _has_map(columns[place].type):
            raise SqlUnsupportedError(
                f"the rows of a view cannot be ordered by {key.column}",
                sql=statement.sql,
                line=statement.query.line or statement.line,
                column=statement.query.column or statement.column,
                hint="Order by columns that are selected, and have no MAP in them.",
            )


def _has_map(of: SqlType) -> bool:
    """Whether values of a type have no order."""
    return of.kind == "MAP" or any(map(_has_map, of.children))


def _place(names: Sequence[str], name: str) -> int:
    return names.index(name.lower()) if name.lower() in names else -1
