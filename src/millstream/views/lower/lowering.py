"""Lowering: from Spark's optimized plan of a query to a dataflow, see ``java/.../dataflow``.

Each Join and Aggregate of the plan becomes one operator, in the order of the tree from its leaves
up; the filters, projections and unions between two of them become the pipe from the one to a port
of the other. Expressions are Spark's own, used as they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SqlUnsupportedError
from millstream.views.lower.aggregates import aggregate_of, filtered_first
from millstream.views.lower.asof import below_asof, read_asof, read_temporal, with_column
from millstream.views.lower.clock_filter import is_clock, read_bounds
from millstream.views.lower.event_time import ClosedWindows, Closing, Expiries
from millstream.views.lower.join_order import JoinOrder
from millstream.views.lower.merging import merged
from millstream.views.lower.plans import (
    LogLeaf,
    Scala,
    each_of,
    fingerprint_of,
    id_of,
    inner,
    is_constant,
    is_temporal,
    keys_of,
    kind_of,
    only_grows,
    parts_of,
    reach_of,
    subqueries_of,
    text_of,
)
from millstream.views.lower.ranges import ranges_of
from millstream.views.lower.sessions import SessionRows, read_session
from millstream.views.lower.subqueries import (
    outside_subqueries,
    subqueries_below,
    without_subqueries,
)

if TYPE_CHECKING:
    from millstream.views.plan.plan import Waiting

_SINK: Final = 0
_LAYOUT: Final = 8
"""Of the state, see ``State.java`` and what the operators keep in it."""

_NULLS_MATCH, _NULLS_DROP, _NULLS_APART, _NULLS_APART_RIGHT = 0, 1, 2, 3

_DROPS_LEFT: Final = ("Inner", "Cross", "LeftSemi", "RightOuter")
_KEEPS_RIGHT: Final = ("RightOuter", "FullOuter")
_JOINS: Final = ("Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi", "LeftAnti")

_RANKS: Final = ("RowNumber", "Rank", "DenseRank")
"""See ``Over.java``."""

_PYTHON: Final = ("ArrowEvalPython", "BatchEvalPython")

_NODES: Final = {
    **dict.fromkeys(_PYTHON, "a Python function"),
    "Deduplicate": "DISTINCT here",
    "Offset": "OFFSET without LIMIT",
    "Sample": "TABLESAMPLE",
    "Tail": "LIMIT",
    "UnionLoop": "WITH RECURSIVE",
}
"""Nodes that no operator does, by what the user wrote."""

_ONCE: Final = ("AsOfJoin", "GlobalLimit", "Join", "Window")
"""Nodes that become an operator, besides aggregates."""

_WITH_SUBQUERIES: Final = ("Aggregate", "Filter", "Join", "Project")
"""Nodes that see to the scalar subqueries of their expressions themselves."""

Pipes = Callable[[list[Any]], Any]
"""Gives the pipe to a consumer, for the steps on the way to it."""


@dataclass(slots=True)
class _Shared:
    """What leaves an operator, for further readers.

    Attributes:
        operator: its place among the operators.
        pipe: to its first reader, beside which others stand.
        steps: what turns its rows into those of the node that it does.
        columns: of an aggregate, the columns of its rows.
        functions: of an aggregate, the place in its rows of each of its functions.
    """

    operator: int
    pipe: Any
    steps: list[Any]
    columns: list[Any] = field(default_factory=list)
    functions: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Dataflow:
    """A dataflow; all objects are of Java.

    Attributes:
        entry: from the feed into the dataflow.
        operators: in order.
        names: what each of them does, for people.
        keys: the places of the result's columns that distinguish its rows, which are groups; None
            when they are not.
        is_global: whether there is an aggregate without keys, which has a row over no rows, too.
        grows: whether no row of the result ever changes or goes.
        fingerprint: equal for plans whose operators have the same state.
        used: for each log, the positions of the columns that the dataflow reads.
        timed: the logs whose watermark lets state go: a late row would not find what it meets.
    """

    entry: Any
    operators: Any
    names: list[str] = field(default_factory=list)
    keys: tuple[int, ...] | None = None
    is_global: bool = False
    grows: bool = False
    fingerprint: str = ""
    used: dict[int, set[int]] = field(default_factory=dict)
    timed: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Leaving:
    """How rows leave the dataflow.

    Attributes:
        emit: what they wait for; None: for nothing.
        has_ends: whether their last column has the ends of windows, which nobody else sees.
    """

    emit: Waiting | None = None
    has_ends: bool = False


def lower(  # noqa: PLR0917
    jvm: Any,  # noqa: ANN401
    plan: Any,  # noqa: ANN401
    logs: dict[int, LogLeaf],
    closing: Closing | None = None,
    slack: int = 0,
    leaving: Leaving = Leaving(),
) -> Dataflow:
    """The dataflow of a plan.

    Args:
        jvm: the classes of Java.
        plan: the optimized plan; its leaves are RDDs.
        logs: what each RDD stands for, by its id.
        closing: what is known of its windows, if they close.
        slack: without these, how far behind the watermark the event time of a row can be that
            comes in time.
        leaving: how its rows leave.

    Raises:
        SqlUnsupportedError: there is a node that no operator does, or no window that closes.
    """
    scala = Scala(jvm)
    plan = merged(scala, JoinOrder(scala, logs).of(plan))
    windows = closing and ClosedWindows(scala, plan, closing, logs)
    expiries = Expiries(scala, logs, windows, slack)
    lowering = _Lowering(scala, logs, expiries)
    lowering.dataflow.keys = keys_of(plan)
    lowering.all_of(plan, leaving)
    lowering.name_shared()
    lowering.dataflow.timed = expiries.timed
    lowering.dataflow.grows = only_grows(plan, lambda rdd: logs[rdd].grows)
    known = f"{sorted(logs.values())}{closing or ''}{slack or ''}{leaving.emit or ''}"
    lowering.dataflow.fingerprint = fingerprint_of(f"{_LAYOUT} {known}\n{plan.toString()}")
    for used in str(jvm.millstream.dataflow.Plans.used(plan)).splitlines():
        rdd, *places = map(int, used.split())
        lowering.dataflow.used.setdefault(logs[rdd].number, set()).update(places)
    return lowering.dataflow


class _Lowering:
    """Walks a plan, by a method for each kind of node.

    A node is lowered with the steps that follow it, nearest first.
    """

    def __init__(self, scala: Scala, logs: dict[int, LogLeaf], expiries: Expiries) -> None:
        self._scala = scala
        self._java, self._catalyst = scala.dataflow, scala.catalyst
        self._alias, self._list, self._seq = scala.alias, scala.array, scala.seq
        self._logs = logs
        self._expiries = expiries
        self._long = scala.jvm.org.apache.spark.sql.types.DataTypes.LongType
        self._ports = _SINK
        self._plans = scala.jvm.java.util.HashMap()  # their numbers, see ``_number``
        self._shared: dict[tuple[int, ...], _Shared] = {}  # by the number of their plan
        self._readers: dict[int, int] = {}  # how many each operator has that is shared
        self._ending: dict[int, SessionRows] = {}  # those that end, by the column of the session
        count = 1 + max(each.number for each in logs.values())
        self.dataflow = Dataflow(self._java.Entry(count), scala.jvm.java.util.ArrayList())
        self._lowerings: dict[str, Callable[[Any, list[Any], Pipes], None]] = {
            "Aggregate": self._aggregate,
            "AsOfJoin": self._asof,
            "Expand": self._expand,
            "Filter": self._filter,
            "Generate": self._generate,
            "GlobalLimit": self._top,
            "Join": self._join,
            "LocalLimit": self._child,  # a hint for the limit above
            "LocalRelation": self._constants,
            "LogicalRDD": self._log,
            "OneRowRelation": self._one_row,
            "Project": self._project,
            "Sort": self._child,  # which no limit reads
            "Union": self._union,
            "Window": self._over,
            "WindowGroupLimit": self._child,  # a hint for the window above
        }

    def node(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        """Lower a node: have its rows go through the steps, and the pipe to its consumer."""
        kind = kind_of(node).removesuffix("$")
        if kind not in self._lowerings:
            hint = "leave it out, and do it with db.query() over the view"
            if kind in _PYTHON:
                hint = "leave it out, and call it on the rows that you read of the view"
            raise SqlUnsupportedError(
                f"{_NODES.get(kind, kind)} is not supported in a view yet", hint=hint
            )
        if kind not in _WITH_SUBQUERIES and subqueries_of(each_of(node.expressions())):
            if node.children().size() != 1:
                raise SqlUnsupportedError(
                    "a subquery as a value is not supported here",
                    hint="give it a name in a subquery after FROM, and use that name",
                )
            node = subqueries_below(self._scala, node)
            kind = kind_of(node)
        if kind in _ONCE and node.deterministic():
            self._once(node, steps, pipes)
        else:
            self._lowerings[kind](node, steps, pipes)

    def all_of(self, plan: Any, leaving: Leaving) -> None:  # noqa: ANN401
        """Lower a plan: have its rows go to the sink, perhaps by an operator of EMIT."""
        columns, emit = plan.output(), leaving.emit
        sent = self._seq(each_of(columns)[: -1 if leaving.has_ends else None])
        if emit is None:
            self.node(plan, [], lambda steps: self.pipe(_SINK, steps, [], sent, columns))
            return
        port, end, every = self._port(), columns.size() - 1, emit.every or 0
        self.node(plan, [], lambda steps: self.pipe(port, steps, [], columns, columns))
        key = self._seq([columns.apply(place) for place in self.dataflow.keys or ()])
        sink = self.pipe(_SINK, [], [], sent, columns)
        made = self._java.Emit(port, end, emit.lateness, every, key, columns, sink)
        self._add("emit at ticks" if every else "emit when the window closes", made)

    def pipe(  # noqa: PLR0917 - as the class in Java
        self,
        port: int,
        steps: list[Any],
        key: list[Any],
        row: Any,  # noqa: ANN401
        columns: Any,  # noqa: ANN401
        nulls: int = _NULLS_MATCH,
    ) -> Any:  # noqa: ANN401
        """The pipe to a port, by steps that give some columns."""
        return self._java.Pipe(port, self._list(steps), self._seq(key), row, columns, nulls)

    def _child(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        self.node(node.child(), steps, pipes)

    # ---- the same operator over the same input exists once

    def _once(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        """Lower a node, or add a reader to the operator of an equal one."""
        if kind_of(node) == "Window" and read_session(node) is not None:
            self._over(node, steps, pipes)  # of which the groups above are shared
            return
        number = (self._number(node),)
        if number in self._shared:
            shared = self._shared[number]
            self._read_too(shared, pipes([*shared.steps, *steps]))
            return
        made: list[_Shared] = []

        def first(own: list[Any]) -> Any:  # noqa: ANN401
            made.append(_Shared(len(self.dataflow.names), pipes([*own, *steps]), own))
            return made[0].pipe

        self._lowerings[kind_of(node)](node, [], first)
        if len(self.dataflow.names) > made[0].operator:  # else it reads one that is shared already
            self._shared[number] = made[0]

    def _read_too(self, shared: _Shared, pipe: Any) -> None:  # noqa: ANN401
        shared.pipe.add(pipe)
        self._readers[shared.operator] = self._readers.get(shared.operator, 1) + 1

    def name_shared(self) -> None:
        """Say in the names of operators how many read them."""
        for place, count in self._readers.items():
            self.dataflow.names[place] += f", read {count} times"

    def _number(self, plan: Any) -> int:  # noqa: ANN401
        """The number of a plan: equal plans have the same."""
        canonical = plan.canonicalized()
        if not self._plans.containsKey(canonical):
            self._plans.put(canonical, self._plans.size())
        return int(self._plans.get(canonical))

    # ---- leaves

    def _log(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        self.dataflow.entry.addLog(self._logs[node.rdd().id()].number, pipes(steps))

    def _constants(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        self.dataflow.entry.addConstants(node.data(), pipes(steps))

    def _one_row(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        del node
        rows = self._seq([self._catalyst.InternalRow.empty()])
        self.dataflow.entry.addConstants(rows, pipes(steps))

    # ---- steps

    def _filter(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        below = node.child()
        if (moved := below_asof(self._scala.jvm, node)) is not None:
            self.node(moved, steps, pipes)
            return
        if kind_of(below) == "Aggregate" and not subqueries_of([node.condition()]):
            made = filtered_first(self._scala, node.condition(), below)
            if made is not None:
                self.node(made, steps, pipes)
                return
        child, [condition] = without_subqueries(self._scala, below, [node.condition()])
        before = [self._step("Filter")(condition, child.output())]
        if child is not below:
            before.append(self._step("Project")(below.output(), child.output()))
        self.node(child, before + steps, pipes)

    def _project(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        child, columns = without_subqueries(self._scala, node.child(), each_of(node.projectList()))
        step = self._step("Project")(self._seq(columns), child.output())
        self.node(child, [step, *steps], pipes)

    def _expand(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        lists = self._list(each_of(node.projections()))
        step = self._step("Expand")(lists, node.child().output())
        self.node(node.child(), [step, *steps], pipes)

    def _generate(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        made = node.generatorOutput().size()
        step = self._step("Generate")(
            node.generator(),
            node.requiredChildOutput(),
            node.child().output(),
            node.output(),  # of OUTER whatever is generated may be NULL
            made,
            node.outer(),
        )
        self.node(node.child(), [step, *steps], pipes)

    def _union(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        for child in each_of(node.children()):
            self.node(child, steps, pipes)

    # ---- operators

    def _join(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        kind = str(node.joinType().toString())
        if subqueries_of(each_of(node.expressions())):
            self._join_with_subqueries(node, steps, pipes)
            return
        if kind == "LeftSemi" and is_clock(node.right(), self._logs):
            self._clock_filter(node, steps, pipes)
            return
        condition = node.condition()
        if kind not in _JOINS and not kind.startswith("ExistenceJoin"):
            raise SqlUnsupportedError(
                "a subquery that may give several rows is not supported as a value",
                hint="use an aggregate in it, such as MAX",
            )
        keys: tuple[list[Any], list[Any]] = ([], [])
        equal = self._catalyst.planning.ExtractEquiJoinKeys.unapply(node)
        if equal.isDefined():
            _, left, right, condition, *_ = parts_of(equal.get())
            keys = (each_of(left), each_of(right))
        sides = (node.left(), node.right())
        nulls = (
            _NULLS_DROP if kind in _DROPS_LEFT else _NULLS_APART,
            _NULLS_APART_RIGHT if kind in _KEEPS_RIGHT else _NULLS_DROP,
        )
        test = condition.get() if condition.isDefined() else None
        expiries = self._expiries.of_join(sides, keys, test)
        rows = [side.output() for side in sides]
        if test is not None and not _makes_pairs(kind) and expiries[1] is None:
            # Of the right side only what the condition reads is kept.
            used = test.references()
            rows[1] = self._seq([each for each in each_of(rows[1]) if used.contains(each)])
        ports = [self._port(), self._port()]
        for side, key, port, row, null in zip(sides, keys, ports, rows, nulls, strict=True):
            self._into(side, port, key, row, null)
        pair = self._seq([each for row in rows for each in each_of(row)])
        widths = [row.size() for row in rows]
        by = f" by {text_of(keys[0])}" if keys[0] else ""
        name = f"{kind} join{by}{'' if test is None else f' where {text_of([test])}'}"
        kept = (*ranges_of(self._scala, sides, rows, test), *expiries)
        join = self._java.Join(*ports, *widths, kind, test, pair, *kept, pipes(steps))
        self._add(name, join)

    def _clock_filter(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        now, found = read_bounds(self._scala, node)
        side, clock, ports = node.left(), node.right(), (self._port(), self._port())
        self._into(side, ports[0], [], side.output(), _NULLS_MATCH)
        self._into(clock, ports[1], [], self._seq([now]), _NULLS_MATCH)
        tests = [self._scala.all_of(each.conditions) for each in found]
        bounds = [(place, each) for place, one in enumerate(found) for each in one.bounds]
        values = self._seq([self._alias(each) for each in (*tests, *(b.time for _, b in bounds))])
        made = self._java.ClockFilter(*ports, values, len(found), side.output(), pipes(steps))
        for place, each in bounds:
            made.addBound(place, each.is_end, each.shift)
        self._add(f"while {text_of([node.condition().get()])}", made)

    def _temporal(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        keys = read_temporal(self._catalyst, node, lambda rdd: self._logs[rdd].grows)
        is_outer = str(node.joinType()) == "LeftOuter"
        sides, ports = (node.left(), node.right()), (self._port(), self._port())
        nulls = (_NULLS_APART if is_outer else _NULLS_DROP, _NULLS_DROP)
        for side, own, port, null in zip(sides, keys, ports, nulls, strict=True):
            normalized = [self._java.Plans.normalized(each) for each in own]
            self._into(side, port, normalized, side.output(), null)
        widths = [each.output().size() for each in sides]
        made = self._java.Temporal(*ports, *widths, is_outer, pipes(steps))
        kind = "left temporal join" if is_outer else "temporal join"
        self._add(f"{kind} by {text_of(keys[0])}", made)

    def _asof(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        if is_temporal(node):
            self._temporal(node, steps, pipes)
            return
        found, is_outer = read_asof(self._catalyst, node), str(node.joinType()) == "LeftOuter"
        nulls = (_NULLS_APART if is_outer else _NULLS_DROP, _NULLS_DROP)
        sides, columns = list[Any](), list[Any]()
        for side, time, keys, null in zip(
            (node.left(), node.right()), found.times, found.keys, nulls, strict=True
        ):
            row, place = with_column(each_of(side.output()), time, self._alias)
            port, names = self._port(), [each.toAttribute().withNullability(True) for each in row]
            normalized = [self._java.Plans.normalized(each) for each in keys]
            self._into(side, port, normalized, self._seq(row), null)
            sides.append(getattr(self._java, "AsOf$Side")(port, place, self._seq(names)))
            columns += names
        pair = self._seq(columns)
        if len(columns) > node.output().size():
            steps = [self._step("Project")(node.output(), pair), *steps]
        expiries = self._expiries.of_asof((node.left(), node.right()), found.times)
        asof = self._java.AsOf(
            *sides,
            found.direction,
            found.strict,
            is_outer,
            found.tolerance,
            pair,
            *expiries,
            pipes(steps),
        )
        by = f" by {text_of(found.keys[0])}" if found.keys[0] else ""
        self._add(f"{'left ' if is_outer else ''}as-of join{by}, {found.text}", asof)

    def _join_with_subqueries(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        """A join of which the condition has scalar subqueries: their values go with the left."""
        left, [condition] = without_subqueries(self._scala, node.left(), [node.condition().get()])
        made = self._catalyst.plans.logical.Join(
            left,
            node.right(),
            node.joinType(),
            self._scala.jvm.scala.Option.apply(condition),
            node.hint(),
        )
        step = self._step("Project")(node.output(), made.output())
        self.node(made, [step, *steps], pipes)

    def _aggregate(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        found = parts_of(self._catalyst.planning.PhysicalAggregation.unapply(node).get())
        grouping, functions = each_of(found[0]), each_of(found[1])
        results, child = found[2], found[3]
        if subqueries_of(each_of(node.expressions())):
            self.node(outside_subqueries(self._scala, found), steps, pipes)
            return
        columns = [each.toAttribute() for each in grouping]
        expiry = self._expiries.of_group(grouping)
        numbers = self._numbers_of(grouping, functions, child)
        # Of equal groups those of a window that closes may be let go, and others not.
        base = (numbers[0], *(map(id_of, columns) if expiry is not None else ()))
        shared = self._shared.get(base)
        if shared is not None and shared.functions.keys() >= set(numbers[1:]):
            own = list(shared.columns)
            own[: len(columns)] = columns
            for number, each in zip(numbers[1:], functions, strict=True):
                own[shared.functions[number]] = each.resultAttribute()
            step = self._step("Project")(results, self._seq(own))
            self._read_too(shared, pipes([step, *steps]))
            return
        port, inputs = self._port(), list[Any]()
        made, evaluate, buffers = list[Any](), list[Any](), list[Any]()
        grows = only_grows(child, lambda rdd: self._logs[rdd].grows)
        for function in functions:
            aggregate, results_of, own = aggregate_of(self._scala, function, inputs, grows=grows)
            made.append(aggregate)
            evaluate.append(results_of)
            buffers += own
        keys = [self._java.Plans.normalized(each) for each in grouping]
        self._into(child, port, keys, self._seq(inputs), _NULLS_MATCH)
        if not grouping:
            self.dataflow.entry.addGlobal(port)
            self.dataflow.is_global = True
        columns += [each.resultAttribute() for each in functions]
        pipe = pipes([self._step("Project")(results, self._seq(columns)), *steps])
        session = self._session_of(grouping)
        if session is not None:
            expiry = self._expiries.of_sessions(session, functions, columns)
        if node.deterministic():
            places = dict(zip(numbers[1:], range(len(grouping), len(columns)), strict=True))
            self._shared[base] = _Shared(len(self.dataflow.names), pipe, [], columns, places)
        by = f" by {text_of(grouping)}" if grouping else ""
        self._add(
            f"aggregate{by}: {text_of(functions)}",
            self._java.Group(
                port,
                len(grouping),
                self._list(made),
                self._seq(evaluate),
                self._seq(buffers),
                expiry,
                session is not None,
                pipe,
            ),
        )

    def _numbers_of(self, grouping: list[Any], functions: list[Any], child: Any) -> list[int]:  # noqa: ANN401
        """The numbers of an aggregate without functions, and with each of its functions alone."""
        logical, keys = self._catalyst.plans.logical, self._seq([inner(each) for each in grouping])
        shown = [self._seq(grouping), *(self._seq([self._alias(each)]) for each in functions)]
        return [
            self._number(logical.Aggregate(keys, each, child, self._scala.nothing))
            for each in shown
        ]

    def _session_of(self, grouping: list[Any]) -> SessionRows | None:
        """The sessions that groups are of, if these end."""
        found = (self._ending.get(id_of(inner(each))) for each in grouping)
        return next(filter(None, found), None)

    def _top(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        child, offset = node.child(), 0
        while kind_of(child) in {"LocalLimit", "Offset"}:
            offset += child.offsetExpr().eval(None) if kind_of(child) == "Offset" else 0
            child = child.child()
        below = child
        while kind_of(below) == "Project":
            below = below.child()
        if child is not below and kind_of(below) == "Sort":
            self._project_top(node, child, offset, steps, pipes)
            return
        order: list[Any] = []
        if kind_of(child) == "Sort":
            order, child = each_of(child.order()), child.child()
        elif not is_constant(child):  # as those of EXISTS are
            raise SqlUnsupportedError(
                "LIMIT without ORDER BY could give any rows",
                hint="say which rows come first: ORDER BY ... LIMIT n",
            )
        columns, port = child.output(), self._port()
        self._into(child, port, [], columns, _NULLS_MATCH)
        limit, width = node.limitExpr().eval(None), columns.size()
        top = self._java.Top(port, width, limit, offset, self._seq(order), columns, pipes(steps))
        after = f" after {offset}" if offset else ""
        self._add(f"first {limit}{after} by {text_of(order)}", top)

    def _project_top(
        self,
        node: Any,  # noqa: ANN401
        project: Any,  # noqa: ANN401
        offset: int,
        steps: list[Any],
        pipes: Pipes,
    ) -> None:
        """Lower a limit over a projection as a projection over the limit."""
        logical, rows = self._catalyst.plans.logical, project.child()
        if offset:
            rows = logical.Offset(self._scala.literal(offset), rows)
        limited = logical.GlobalLimit(node.limitExpr(), rows)
        self.node(logical.Project(project.projectList(), limited), steps, pipes)

    def _sessions(self, node: Any, found: SessionRows, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        given = each_of(found.rows.output())
        row, port = self._seq(given), self._port()
        keys = [self._java.Plans.normalized(each) for each in each_of(found.keys)]
        self._into(found.rows, port, keys, row, _NULLS_MATCH)
        nothing = self._catalyst.expressions.Literal.create(None, found.begins.dataType())
        known = {id_of(each) for each in [*given, found.session]}
        shown = [each if id_of(each) in known else nothing for each in each_of(node.output())]
        step = self._step("Project")(self._seq(shown), self._seq([*given, found.session]))
        expiry = self._expiries.of_session(found)
        if expiry is not None:
            self._ending[id_of(found.session)] = found
        place = [id_of(each) for each in given].index(id_of(found.time))
        made = self._java.Sessions(
            port, len(given), place, found.gap, found.order, row, expiry, pipes([step, *steps])
        )
        by = f" by {text_of(keys)}" if keys else ""
        self._add(f"sessions{by} over {text_of([found.time])}", made)

    def _over(self, node: Any, steps: list[Any], pipes: Pipes) -> None:  # noqa: ANN401
        if (session := read_session(node)) is not None:
            self._sessions(node, session, steps, pipes)
            return
        child, limit, ranks = node.child(), -1, 0
        if kind_of(child) == "WindowGroupLimit":  # of all that is above, the first rows are enough
            limit, ranks = child.limit(), _RANKS.index(kind_of(child.rankLikeFunction()))
            child = child.child()
        order, found = node.orderSpec(), each_of(node.windowExpressions())
        functions = self._seq([each for each in found if kind_of(each) == "Alias"])
        if functions.size() < len(found):  # a correlated subquery repeats columns of its rows there
            given = [*each_of(child.output()), *(each.toAttribute() for each in each_of(functions))]
            steps = [self._step("Project")(node.output(), self._seq(given)), *steps]
        keys = [self._java.Plans.normalized(each) for each in each_of(node.partitionSpec())]
        by = f" by {text_of(keys)}" if keys else ""
        if limit < 0 and self._java.RunningTotals.suit(functions):
            port, columns = self._port(), child.output()
            self._into(child, port, keys, columns, _NULLS_MATCH)
            totals = self._java.RunningTotals(functions, columns)
            running = self._java.Running(port, columns.size(), order, columns, totals, pipes(steps))
            self._add(f"running{by}: {text_of(each_of(functions))}", running)
            return
        given, made = each_of(child.output()), [each.toAttribute() for each in each_of(functions)]
        run = self._alias(self._catalyst.expressions.Literal.default(self._long))
        row = [*given, run.toAttribute()]
        port = self._port()
        self._into(child, port, keys, self._seq([*given, run]), _NULLS_MATCH)
        runs = self._seq([run.toAttribute()])
        reach = getattr(self._java, "Over$Reach")(*reach_of(each_of(functions)), limit, ranks)
        over = self._java.Over(
            port,
            len(row),
            reach,
            order,
            self._seq(row),
            self._seq([*given, *made]),
            self._seq([*row, *made]),
            self._java.Windows(functions, runs, order, self._seq(row)),
            pipes(steps),
        )
        first = f", the first {limit}" if limit >= 0 else ""
        self._add(f"over{by}{first}: {text_of(each_of(functions))}", over)

    def _into(self, node: Any, port: int, key: list[Any], row: Any, nulls: int) -> None:  # noqa: ANN401
        """Lower the child of an operator, which takes some row at a port."""
        columns = node.output()
        self.node(node, [], lambda steps: self.pipe(port, steps, key, row, columns, nulls))

    def _add(self, name: str, operator: Any) -> None:  # noqa: ANN401
        self.dataflow.names.append(name)
        self.dataflow.operators.add(operator)

    # ---- Java and Scala

    def _port(self) -> int:
        self._ports += 1
        return self._ports

    def _step(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._java, f"Step${name}")


def _makes_pairs(kind: str) -> bool:
    """Whether a kind of join gives columns of both sides."""
    return kind not in {"LeftSemi", "LeftAnti"} and not kind.startswith("ExistenceJoin")
