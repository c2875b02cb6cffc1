"""Spark's plans, as they are read through the gateway: their parts, and what is asked of them.

Plans, expressions and types are objects of Java or Scala.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.errors import SqlUnsupportedError
from millstream.spark.internals import class_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Scala:
    """Makes objects of Spark's own, which its plans and expressions are built of.

    Attributes:
        jvm: all classes.
        dataflow: the classes of operators, and of what they are made of.
        catalyst: those of Spark's plans and expressions.
        nothing: an Option without a value.
    """

    def __init__(self, jvm: Any) -> None:  # noqa: ANN401
        self.dataflow = jvm.millstream.dataflow
        self.catalyst = jvm.org.apache.spark.sql.catalyst
        self.nothing = jvm.scala.Option.empty()
        self.jvm = jvm

    def alias(self, expression: Any, column: Any = None) -> Any:  # noqa: ANN401
        """An expression under a name: a new column, or the one that is given."""
        expressions, none = self.catalyst.expressions, self.seq([])
        new = expressions.NamedExpression.newExprId() if column is None else column.exprId()
        return expressions.Alias(expression, "value", new, none, self.nothing, none)

    def array(self, items: Sequence[Any]) -> Any:  # noqa: ANN401
        """A list of Java's."""
        made = self.jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made

    def literal(self, value: int | str | bool) -> Any:  # noqa: ANN401
        """An expression that is a value: INT, STRING or BOOLEAN."""
        literals = getattr(self.catalyst.expressions, "Literal$").__getattr__("MODULE$")
        return literals.apply(value)

    def all_of(self, conditions: Sequence[Any]) -> Any:  # noqa: ANN401
        """The condition that all of some hold: true without any."""
        expressions, made = self.catalyst.expressions, self.literal(value=True)
        for place, each in enumerate(conditions):
            made = expressions.And(made, each) if place else each
        return made

    def seq(self, items: Sequence[Any]) -> Any:  # noqa: ANN401
        """A Seq of Scala's."""
        return self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(self.array(items)).toSeq()


_GROWING: Final = {
    "Expand",
    "Filter",
    "Generate",
    "Join",
    "LocalRelation",
    "OneRowRelation",
    "Project",
    "Union",
}
"""Nodes whose result only grows if what they read only grows."""

_UNORDERED: Final = {
    "AnyValue": "ANY_VALUE",
    "CollectList": "COLLECT_LIST",
    "CollectSet": "COLLECT_SET",
    "First": "FIRST",
    "HistogramNumeric": "HISTOGRAM_NUMERIC",
    "Last": "LAST",
    "ListAgg": "LISTAGG",
    "Mode": "MODE",
}
"""Aggregates whose result depends on the order of their input, which rows do not have."""


def check_plan(jvm: Any, plan: Any) -> None:  # noqa: ANN401 - of Java
    """Raise if the answer of a query depends on the order of its input.

    Args:
        jvm: the classes of Java.
        plan: the analyzed plan of the query.

    Raises:
        SqlUnsupportedError: it does.
    """
    for name in str(jvm.millstream.dataflow.Plans.expressions(plan)).split():
        if name in _UNORDERED:
            raise SqlUnsupportedError(
                f"{_UNORDERED[name]} depends on the order of rows, and they have none here",
                hint="use MIN, MAX, MIN_BY or MAX_BY; or WITHIN GROUP (ORDER BY ...) for lists",
            )


def keys_of(plan: Any) -> tuple[int, ...] | None:  # noqa: ANN401
    """The places of the columns that are the keys of the groups which a plan gives, if it does.

    None when there is a subquery above the groups that may give no row: what leaves its join is not
    first what goes, and then what comes.
    """
    node, shown = plan, [id_of(each) for each in each_of(plan.output())]
    while kind_of(node) in {"Sort", "Filter", "Project"} and _has_values(node):
        if kind_of(node) == "Project":
            below = {id_of(each): id_of(inner(each)) for each in each_of(node.projectList())}
            shown = [below.get(each, -1) for each in shown]
        node = node.child()
    if kind_of(node) != "Aggregate" or not _has_values(node):
        return None
    columns, places = each_of(node.aggregateExpressions()), list[int]()
    for key in each_of(node.groupingExpressions()):
        found = [id_of(each) for each in columns if source_of(inner(each)).semanticEquals(key)]
        place = next((shown.index(each) for each in found if each in shown), None)
        if place is None:
            return None
        places.append(place)
    return tuple(sorted(set(places)))


def _has_values(node: Any) -> bool:  # noqa: ANN401
    """Whether all scalar subqueries in a node's expressions always give a row."""
    found = subqueries_of(each_of(node.expressions()))
    return all(is_one_row(query.plan()) for query in found)


def is_one_row(plan: Any) -> bool:  # noqa: ANN401
    """Whether a plan gives one row, always: that of an aggregate without keys."""
    if kind_of(plan) == "Project":
        return is_one_row(plan.child())
    return kind_of(plan) == "Aggregate" and not each_of(plan.groupingExpressions())


def subqueries_of(expressions: list[Any]) -> list[Any]:
    """The scalar subqueries within expressions."""
    return [query for each in expressions for query in find_all(each, "ScalarSubquery")]


def inner(expression: Any) -> Any:  # noqa: ANN401
    """Return what an expression with a name is of."""
    return expression.child() if kind_of(expression) == "Alias" else expression


def source_of(expression: Any) -> Any:  # noqa: ANN401
    """What an expression is computed from, if no two values of it give the same: as of windows."""
    kind = kind_of(expression)
    if kind == "MicrosToTimestamp":
        return source_of(expression.child())
    if kind in {"Add", "Subtract"} and expression.right().foldable():
        return source_of(expression.left())
    return expression


def id_of(expression: Any) -> int:  # noqa: ANN401
    """The number of a column; -1 of an expression that is none."""
    kind = kind_of(expression)
    return int(expression.exprId().id()) if kind in {"Alias", "AttributeReference"} else -1


def fingerprint_of(plan: str) -> str:
    """A hash of a plan's text, in which the numbers of columns are those of their order."""
    numbers: dict[str, int] = {}
    text = re.sub(r"#\d+", lambda found: f"#{numbers.setdefault(found[0], len(numbers))}", plan)
    return hashlib.sha256(text.encode()).hexdigest()


def each_of(items: Any) -> list[Any]:  # noqa: ANN401
    """The items of a Seq of Scala."""
    return [items.apply(place) for place in range(items.size())]


def parts_of(items: Any) -> list[Any]:  # noqa: ANN401
    """The parts of a tuple of Scala."""
    return [items.productElement(place) for place in range(items.productArity())]


def kind_of(node: Any) -> str:  # noqa: ANN401
    """The name of the class of a node, or of an expression."""
    return class_name(node)


def text_of(expressions: list[Any]) -> str:
    """Expressions for people, without the numbers of their columns."""
    return ", ".join(re.sub(r"#\d+L?", "", str(each.toString())) for each in expressions)


def is_constant(node: Any) -> bool:  # noqa: ANN401
    """Whether all rows of a node are equal."""
    if kind_of(node) in {"LocalLimit", "Filter"}:
        return is_constant(node.child())
    if kind_of(node) == "Union":
        return all(map(is_constant, each_of(node.children())))
    if kind_of(node) != "Project":
        return False
    return all(inner(each).foldable() for each in each_of(node.projectList()))


def is_temporal(node: Any) -> bool:  # noqa: ANN401
    """Whether a node AsOfJoin is one FOR SYSTEM_TIME AS OF."""
    condition = node.condition()
    found = find_all(condition.get(), "FormatString") if condition.isDefined() else []
    return any("system time" in str(each.toString()) for each in found)


def only_grows(node: Any, grows: Callable[[int], bool]) -> bool:  # noqa: ANN401
    """Whether no row of a plan's result ever changes or goes.

    Args:
        node: the plan.
        grows: whether that is so of what an RDD stands for, by its id.
    """
    kind = kind_of(node).removesuffix("$")
    if kind == "LogicalRDD":
        return grows(node.rdd().id())
    if kind == "AsOfJoin" and is_temporal(node):  # a table's change leaves what was joined
        return only_grows(node.left(), grows)
    if kind == "Join" and str(node.joinType().toString()) not in {"Inner", "Cross", "LeftSemi"}:
        return False
    if kind not in _GROWING or not node.subqueries().isEmpty():
        return False
    return all(only_grows(child, grows) for child in each_of(node.children()))


CLOCK_TIME: Final = -2
"""In place of an event-time column: the log is that of the clock."""


class LogLeaf(NamedTuple):
    """What a leaf of a plan stands for.

    Attributes:
        number: which of the view's logs.
        grows: whether no row of it ever changes or goes.
        time: the place of its event-time column; -1 without a watermark, see also CLOCK_TIME.
        key: the places of the columns that no two rows have in common; empty when there are none.
    """

    number: int
    grows: bool
    time: int
    key: tuple[int, ...] = ()


def conjuncts(condition: Any) -> list[Any]:  # noqa: ANN401
    """The conditions that must all hold, of which None has none."""
    if condition is None:
        return []
    if kind_of(condition) == "And":
        return conjuncts(condition.left()) + conjuncts(condition.right())
    return [condition]


def find_all(expression: Any, kind: str) -> list[Any]:  # noqa: ANN401
    """The expressions of a class within one."""
    if kind_of(expression) == kind:
        return [expression]
    return [found for child in each_of(expression.children()) for found in find_all(child, kind)]


def attributes_of(expression: Any) -> list[Any]:  # noqa: ANN401
    """The attributes that an expression has, each as often as it is there."""
    if kind_of(expression) == "AttributeReference":
        return [expression]
    return [found for each in each_of(expression.children()) for found in attributes_of(each)]


_BY_SIZE: Final = {"CumeDist", "NTile", "PercentRank"}
"""Functions over a partition whose value depends on how many rows it has."""


def reach_of(functions: list[Any]) -> tuple[int, int, bool]:
    """How many rows before and after a row the frames of window functions reach, and its peers.

    -1 for all rows of the partition on that side.

    Args:
        functions: named WindowExpressions.
    """
    before = after = 0
    peers = False
    for each in functions:
        window = each.child()
        frame = window.windowSpec().frameSpecification()
        first, last = _bound_of(frame.lower()), _bound_of(frame.upper())
        if kind_of(window.windowFunction()) in _BY_SIZE:
            first = last = None
        if kind_of(frame.frameType()) == "RangeFrame$":
            peers = True
            first, last = (bound if bound == 0 else None for bound in (first, last))
        before = -1 if first is None or before < 0 else max(before, -first)
        after = -1 if last is None or after < 0 else max(after, last)
    return before, after, peers


def _bound_of(bound: Any) -> int | None:  # noqa: ANN401
    """A bound of a frame, in rows after the current one; None without a bound."""
    kind = kind_of(bound).removesuffix("$")
    if kind.startswith("Unbounded"):
        return None
    return 0 if kind == "CurrentRow" else int(bound.eval(None))


_SAFE: Final = {
    *("And", "AttributeReference", "EqualNullSafe", "EqualTo", "GreaterThan"),
    *("GreaterThanOrEqual", "In", "InSet", "IsNotNull", "IsNull", "LessThan", "LessThanOrEqual"),
    *("Literal", "Not", "Or"),
}
"""Expressions that fail for no row: they may be computed for others than in Catalyst's order."""


def is_safe(scala: Scala, expression: Any) -> bool:  # noqa: ANN401
    """Whether an expression has a value for any row."""
    kind = kind_of(expression)
    if kind == "Cast":
        types = (expression.child().dataType(), expression.dataType())
        if not scala.catalyst.expressions.Cast.canUpCast(*types):
            return False
    elif kind not in _SAFE:
        return False
    return all(is_safe(scala, each) for each in each_of(expression.children()))
