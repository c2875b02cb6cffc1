"""The order of inner joins: by which of them can only make rows fewer.

Catalyst joins what FROM names in its order, as it knows nothing of what the relations hold. Each
result on the way is state of the next join: of the size of the largest relation, as often as it is
joined. Here the primary keys of tables say which joins find at most one row. Where one relation
reaches all others by such joins, its rows are joined last, with what they refer to:

    lineitem, supplier, nation, region ->  lineitem JOIN (supplier JOIN (nation JOIN region))

Semi and anti joins of that relation come after joins that leave rows of it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.views.lower.clock_filter import is_clock
from millstream.views.lower.plans import conjuncts, each_of, id_of, inner, is_safe, kind_of
from millstream.views.lower.subqueries import with_subqueries

if TYPE_CHECKING:
    from millstream.views.lower.plans import LogLeaf, Scala

_LEFT_OUT: Final = 0.2
"""A guess: the share of a relation's rows that a condition leaves."""

_SMALLER: Final = 0.25
"""A guess: how many rows what is referred to has for each that refers to it."""


@dataclass(slots=True, eq=False)
class _Relation:
    """One of the relations that are joined.

    Attributes:
        plan: its rows.
        columns: the numbers of its columns.
        is_filtered: whether a condition leaves rows of it out.
        size: a guess, of the largest.
        parent: the relation that refers to it.
        children: those that it refers to.
    """

    plan: Any
    columns: set[int]
    is_filtered: bool
    size: float = 0.0
    parent: _Relation | None = None
    children: list[_Relation] = field(default_factory=list)

    @property
    def leaves_out(self) -> bool:
        """Whether a join with it, and with what it refers to, leaves rows out."""
        return self.is_filtered or any(each.leaves_out for each in self.children)


class JoinOrder:
    """Orders the inner joins of a plan.

    Args:
        scala: to make objects of Spark's.
        logs: what each RDD stands for, by its id.
    """

    def __init__(self, scala: Scala, logs: dict[int, LogLeaf]) -> None:
        self._scala = scala
        self._logs = logs

    def of(self, node: Any) -> Any:  # noqa: ANN401
        """Return a plan that computes the same, with its inner joins in order."""
        if _is_inner(node) and (made := self._ordered(node)) is not None:
            return made
        children = [self.of(each) for each in each_of(node.children())]
        made = node.withNewChildren(self._scala.seq(children))
        return with_subqueries(self._scala, made, self.of)

    def _ordered(self, node: Any) -> Any | None:  # noqa: ANN401
        """Return joins in order; None where that of Catalyst is as good as any."""
        plans, conditions = self._flat(node)
        if not all(is_safe(self._scala, each) for each in conditions) or not node.deterministic():
            return None
        if sum(map(self._is_timed, plans)) > 1:  # which may expire by each other's event times
            return None
        relations = [
            _Relation(each, {id_of(one) for one in each_of(each.output())}, _is_filtered(each))
            for each in plans
        ]
        root = self._root(relations, conditions)
        if root is None:
            return None
        late = self._taken_out(root) if any(each.leaves_out for each in root.children) else []
        if len(relations) < 3 and not late:
            return None
        for each in relations:
            each.plan = self.of(each.plan)
        tests = [condition for _, _, condition in late if condition is not None]
        shown = {id_of(each) for each in each_of(node.output())} | _ids(tests)
        plan = _Chain(self._scala, relations, conditions, shown).joined(root)
        for kind, right, condition in reversed(late):
            plan = _join(self._scala, plan, self.of(right), kind, condition)
        return self._scala.catalyst.plans.logical.Project(node.output(), plan)

    def _flat(self, node: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
        """The relations that a tree of inner joins joins, and its conditions."""
        below = _below_columns(node)
        if not _is_inner(below):
            return [node], []
        found = [self._flat(each) for each in (below.left(), below.right())]
        condition = below.condition()
        own = conjuncts(condition.get() if condition.isDefined() else None)
        return [*found[0][0], *found[1][0]], [*found[0][1], *found[1][1], *own]

    def _is_timed(self, node: Any) -> bool:  # noqa: ANN401
        if kind_of(node) == "LogicalRDD":
            return self._logs[node.rdd().id()].time >= 0
        return any(map(self._is_timed, each_of(node.children())))

    def _taken_out(self, root: _Relation) -> list[tuple[Any, Any, Any]]:
        """Take the semi and anti joins out of a relation: each as its kind, right side, condition.

        The outermost comes first.
        """
        found: list[tuple[Any, Any, Any]] = []
        plan = _below_columns(root.plan)
        while kind_of(plan) == "Join" and str(plan.joinType().toString()) in _HALVES:
            condition = plan.condition().get() if plan.condition().isDefined() else None
            if is_clock(plan.right(), self._logs) or not all(
                is_safe(self._scala, each) for each in conjuncts(condition)
            ):
                break
            found.append((plan.joinType(), plan.right(), condition))
            plan = _below_columns(plan.left())
        if found:
            root.plan = plan
            root.columns = {id_of(each) for each in each_of(plan.output())}
        return found

    # ---- what refers to what

    def _root(self, relations: list[_Relation], conditions: list[Any]) -> _Relation | None:
        """The relation from which all others are found by a unique key, with its tree."""
        pairs = [_pair(each) for each in conditions]
        equal = [each for each in pairs if each is not None]
        keys = [self._keys(each.plan) for each in relations]

        def finds(one: _Relation, place: int) -> bool:
            other = relations[place]
            given = {b for a, b in equal if a in one.columns and b in other.columns}
            given |= {a for a, b in equal if b in one.columns and a in other.columns}
            return bool(given) and any(key <= given for key in keys[place])

        for root in relations:
            reached = [root]
            for each in relations:
                each.parent, each.children, each.size = None, [], 1.0
            for each in reached:
                for place, other in enumerate(relations):
                    if all(other is not known for known in reached) and finds(each, place):
                        other.parent, other.size = each, each.size * _SMALLER
                        each.children.append(other)
                        reached.append(other)
            if len(reached) == len(relations):
                return root
        return None

    def _keys(self, node: Any) -> list[frozenset[int]]:  # noqa: ANN401
        """The sets of columns that no two rows of a plan have in common."""
        kind = kind_of(node)
        if kind == "LogicalRDD":
            columns, key = each_of(node.output()), self._logs[node.rdd().id()].key
            return [frozenset(id_of(columns[place]) for place in key)] if key else []
        if kind in {"Filter", "Sort"}:
            return self._keys(node.child())
        if kind == "Join" and str(node.joinType().toString()) in _HALVES:
            return self._keys(node.left())
        if kind == "Project":
            found, columns = self._keys(node.child()), each_of(node.projectList())
        elif kind == "Aggregate":
            found = [frozenset(id_of(each) for each in each_of(node.groupingExpressions()))]
            columns = each_of(node.aggregateExpressions())
        else:
            return []
        names = {id_of(inner(each)): id_of(each) for each in columns}
        names.pop(-1, None)
        return [frozenset(names[one] for one in key) for key in found if key <= names.keys()]


_HALVES: Final = ("LeftSemi", "LeftAnti")


class _Chain:
    """Joins relations, and gives of each result the columns that are used after it.

    Args:
        scala: to make objects of Spark's.
        relations: what is joined.
        conditions: what must hold.
        shown: the columns of the result.
    """

    def __init__(
        self, scala: Scala, relations: list[_Relation], conditions: list[Any], shown: set[int]
    ) -> None:
        self._scala = scala
        self._relations = relations
        self._left = list(conditions)
        self._shown = shown

    def joined(self, root: _Relation) -> Any:  # noqa: ANN401
        """Return the join of all."""
        parts = [each for each in root.children if each.leaves_out]
        rows = (_LEFT_OUT if root.is_filtered else 1.0) * _LEFT_OUT ** len(parts)
        alone: list[_Relation] = []
        for each in self._relations:
            parent = each.parent
            if parent is None or any(each is part for part in parts):
                continue
            if parent is root or not (each.leaves_out or parent.size < rows):
                alone.append(each)
        plan = root.plan
        for each in [*parts, *_by_depth(alone)]:
            plan = self._join(plan, self._with_children(each, alone))
        return plan

    def _with_children(self, one: _Relation, alone: list[_Relation]) -> Any:  # noqa: ANN401
        plan = one.plan
        for each in one.children:
            if all(each is not other for other in alone):
                plan = self._join(plan, self._with_children(each, alone))
        return plan

    def _join(self, left: Any, right: Any) -> Any:  # noqa: ANN401
        columns = [*each_of(left.output()), *each_of(right.output())]
        given = {id_of(each) for each in columns}
        own = [each for each in self._left if _ids([each]) <= given]
        self._left = [each for each in self._left if not _ids([each]) <= given]
        made = _join(self._scala, left, right, self._inner, self._scala.all_of(own))
        used = self._shown | _ids(self._left)
        kept = [each for each in columns if id_of(each) in used]
        if len(kept) == len(columns):
            return made
        return self._scala.catalyst.plans.logical.Project(self._scala.seq(kept), made)

    @property
    def _inner(self) -> Any:  # noqa: ANN401
        return getattr(self._scala.catalyst.plans, "Inner$").__getattr__("MODULE$")


def _join(scala: Scala, left: Any, right: Any, kind: Any, condition: Any) -> Any:  # noqa: ANN401
    logical, given = scala.catalyst.plans.logical, scala.jvm.scala.Option.apply(condition)
    return logical.Join(left, right, kind, given, logical.JoinHint.NONE())


def _is_inner(node: Any) -> bool:  # noqa: ANN401
    return kind_of(node) == "Join" and str(node.joinType().toString()) in {"Inner", "Cross"}


def _below_columns(node: Any) -> Any:  # noqa: ANN401
    """What is below projections that only choose columns, if it is a join; else the node."""
    below = node
    while kind_of(below) == "Project" and all(
        kind_of(each) == "AttributeReference" for each in each_of(below.projectList())
    ):
        below = below.child()
    return below if kind_of(below) == "Join" else node


def _is_filtered(node: Any) -> bool:  # noqa: ANN401
    if kind_of(node) == "Filter" and any(
        kind_of(each) != "IsNotNull" for each in conjuncts(node.condition())
    ):
        return True
    if kind_of(node) == "Join" and str(node.joinType().toString()) in _HALVES:
        return True
    return any(map(_is_filtered, each_of(node.children())))


def _pair(condition: Any) -> tuple[int, int] | None:  # noqa: ANN401
    """The two columns that a condition says are equal."""
    if kind_of(condition) != "EqualTo":
        return None
    pair = (id_of(condition.left()), id_of(condition.right()))
    return None if -1 in pair else pair


def _ids(expressions: list[Any]) -> set[int]:
    return {id_of(one) for each in expressions for one in each_of(each.references().toSeq())}


def _by_depth(relations: list[_Relation]) -> list[_Relation]:
    """Relations, each after what refers to it."""

    def depth(one: _Relation) -> int:
        return 0 if one.parent is None else 1 + depth(one.parent)

    return sorted(relations, key=depth)
