"""The key by which a view can be split into partitions: what all of its operators have in common.

A plan is split exactly if rows that meet anywhere in it, in a group, a join or a partition of OVER,
have the same values in some columns of the logs that they come from. These are found from the
leaves up: each column of a node that is a log's own column, unchanged, stands for it; an equal join
makes two of them one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SqlUnsupportedError
from millstream.views.lower.plans import (
    each_of,
    id_of,
    inner,
    kind_of,
    parts_of,
    subqueries_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Column = frozenset[tuple[int, int]]
"""The same value in several logs: pairs of a log and the place of its column."""

_PASSES: Final = {"Filter", "Generate", "Sort", "WindowGroupLimit"}
_NAMES: Final = {
    "AsOfJoin": "ASOF JOIN",
    "Expand": "ROLLUP, CUBE or several DISTINCT",
    "GlobalLimit": "LIMIT",
    "LocalRelation": "VALUES",
    "OneRowRelation": "a SELECT without FROM",
}
"""Nodes that have no key, by what the user wrote."""


@dataclass(slots=True)
class _Node:
    """What is known of a node's rows.

    Attributes:
        logs: the logs they come from.
        columns: which of its columns are those of logs, by their numbers.
    """

    logs: frozenset[int]
    columns: dict[int, Column] = field(default_factory=dict)


@dataclass(slots=True)
class _Operator:
    """An operator with state: the logs below it, the columns by which rows meet there, its name."""

    logs: frozenset[int]
    keys: set[Column]
    name: str


class PartitionKey:
    """Finds the key of a plan.

    Args:
        catalyst: Spark's classes of plans.
        leaf: gives, for a leaf of the plan, the log that it is and the places of its columns.
    """

    def __init__(
        self,
        catalyst: Any,  # noqa: ANN401
        leaf: Callable[[Any], tuple[int, list[int | None]]],
    ) -> None:
        self._catalyst = catalyst
        self._leaf = leaf
        self._operators: list[_Operator] = []

    def of(self, plan: Any) -> list[dict[int, int]]:  # noqa: ANN401
        """The columns of the key: for each, its place in each of the logs.

        Raises:
            SqlUnsupportedError: there is none; it says which operator has no such key.
        """
        root = self._node(plan)
        if not self._operators:
            raise _refused(
                "a view without groups, joins or OVER has no state to be split",
                "leave partitions out",
            )
        whole = [each for each in self._operators if each.logs == root.logs]
        candidates = {key for each in whole for key in each.keys if _logs_of(key) == root.logs}
        for each in self._operators:
            left = {key for key in candidates if _within(key, each.logs) in each.keys}
            if not left:
                raise _refused(
                    f"rows that meet in {each.name} may be in different partitions",
                    "group, join and partition by one common column of the logs, as it is; "
                    "or make each step a view of its own",
                )
            candidates = left
        return [dict(key) for key in sorted(candidates, key=sorted)]

    # ---- nodes

    def _node(self, node: Any) -> _Node:  # noqa: ANN401
        kind = kind_of(node).removesuffix("$")
        if subqueries_of(each_of(node.expressions())):
            raise _refused("a subquery as a value is one for all partitions", "write a join")
        if kind in _PASSES:
            return self._node(each_of(node.children())[0])
        found = {
            "Aggregate": self._aggregate,
            "Join": self._join,
            "LogicalRDD": self._log,
            "Project": self._project,
            "Union": self._union,
            "Window": self._window,
        }.get(kind)
        if found is None:
            raise _refused(
                f"{_NAMES.get(kind, kind)} concerns the rows of all partitions",
                "make it a view of its own, without partitions, over a partitioned one",
            )
        return found(node)

    def _project(self, node: Any) -> _Node:  # noqa: ANN401
        return _renamed(self._node(node.child()), each_of(node.projectList()))

    def _log(self, node: Any) -> _Node:  # noqa: ANN401
        log, places = self._leaf(node)
        columns = {
            id_of(each): frozenset({(log, place)})
            for each, place in zip(each_of(node.output()), places, strict=True)
            if place is not None
        }
        return _Node(frozenset({log}), columns)

    def _aggregate(self, node: Any) -> _Node:  # noqa: ANN401
        child, keys = self._node(node.child()), each_of(node.groupingExpressions())
        by = f"GROUP BY {text_of(keys)}" if keys else "an aggregate without GROUP BY"
        self._add(child, keys, by)
        return _renamed(child, each_of(node.aggregateExpressions()), {id_of(each) for each in keys})

    def _window(self, node: Any) -> _Node:  # noqa: ANN401
        child, keys = self._node(node.child()), each_of(node.partitionSpec())
        by = f"OVER (PARTITION BY {text_of(keys)})" if keys else "OVER without PARTITION BY"
        self._add(child, keys, by)
        return child

    def _add(self, child: _Node, keys: list[Any], name: str) -> None:
        found = {child.columns[id_of(each)] for each in keys if id_of(each) in child.columns}
        self._operators.append(_Operator(child.logs, found, name))

    def _join(self, node: Any) -> _Node:  # noqa: ANN401
        left, right = self._node(node.left()), self._node(node.right())
        kind, logs = str(node.joinType().toString()), left.logs | right.logs
        equal = self._catalyst.planning.ExtractEquiJoinKeys.unapply(node)
        merged, pairs = dict[int, Column](), list[Any]()
        if equal.isDefined():
            _, ours, theirs, *_ = parts_of(equal.get())
            pairs = list(zip(each_of(ours), each_of(theirs), strict=True))
        for one, other in pairs:
            if id_of(one) in left.columns and id_of(other) in right.columns:
                both = left.columns[id_of(one)] | right.columns[id_of(other)]
                if len(_logs_of(both)) == len(both):  # of a log with itself, by one column
                    merged |= {id_of(one): both, id_of(other): both}
        by = text_of([one for one, _ in pairs])
        name = f"the join by {by}" if pairs else "a join without equal columns"
        self._operators.append(_Operator(logs, set(merged.values()), name))
        kept = dict[int, Column]()
        if kind not in {"RightOuter", "FullOuter"}:  # NULL for what has no match, of any key
            kept |= left.columns
        if kind in {"Inner", "Cross", "RightOuter"}:
            kept |= right.columns
        return _Node(logs, {each: merged.get(each, column) for each, column in kept.items()})

    def _union(self, node: Any) -> _Node:  # noqa: ANN401
        children = [(each, self._node(each)) for each in each_of(node.children())]
        logs = frozenset(log for _, each in children for log in each.logs)
        columns = dict[int, Column]()
        for place, made in enumerate(each_of(node.output())):
            own = [n.columns.get(id_of(c.output().apply(place))) for c, n in children]
            both = frozenset(pair for each in own if each is not None for pair in each)
            if None not in own and len(_logs_of(both)) == len(both):
                columns[id_of(made)] = both
        return _Node(logs, columns)


def _renamed(child: _Node, columns: list[Any], only: set[int] | None = None) -> _Node:
    """A node that gives some columns of another one, and others."""
    found = dict[int, Column]()
    for each in columns:
        source = id_of(inner(each))
        if source in child.columns and (only is None or source in only):
            found[id_of(each)] = child.columns[source]
    return _Node(child.logs, found)


def _logs_of(column: Column) -> frozenset[int]:
    return frozenset(log for log, _ in column)


def _within(column: Column, logs: frozenset[int]) -> Column:
    return frozenset(each for each in column if each[0] in logs)


def _refused(what: str, hint: str) -> SqlUnsupportedError:
    return SqlUnsupportedError(what, hint=hint)
