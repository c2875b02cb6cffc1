"""Sessions in a plan: two functions over the rows in order, see ``views.plan.sessions``.

They say what a session is in SQL. As they stand, their operators would keep all rows for good; one
operator of sessions expires those that no later session has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from millstream.views.lower.plans import each_of, find_all, id_of, inner, kind_of
from millstream.views.plan.sessions import BEGINS, SESSION


class SessionRows(NamedTuple):
    """Rows that get their session; all objects are of Java.

    Attributes:
        rows: the plan of them.
        keys: what sessions are of.
        order: that of their times.
        time: the column that has the time.
        gap: how many microseconds may lie between two rows of a session.
        session: the column that the session is to be.
        begins: a column of the plan that nothing reads.
    """

    rows: Any
    keys: Any
    order: Any
    time: Any
    gap: int
    session: Any
    begins: Any


def read_session(node: Any) -> SessionRows | None:  # noqa: ANN401
    """The sessions that a node gives rows; None when it is something else.

    Args:
        node: a Window of Spark's plan.
    """
    found = each_of(node.windowExpressions())
    marked, order = node.child(), each_of(node.orderSpec())
    is_session = len(found) == len(order) == 1 and str(found[0].name()) == SESSION
    if not is_session or kind_of(marked) != "Project" or kind_of(marked.child()) != "Window":
        return None
    time = order[0].child()
    [begins] = [each for each in each_of(marked.projectList()) if str(each.name()) == BEGINS]
    [apart] = find_all(inner(begins), "GreaterThan")
    return SessionRows(
        marked.child().child(),
        node.partitionSpec(),
        node.orderSpec(),
        time,
        int(apart.right().eval(None)),
        found[0].toAttribute(),
        begins.toAttribute(),
    )


def newest_of(functions: list[Any], time: Any) -> Any | None:  # noqa: ANN401
    """The result of the aggregate that is the newest time; None when there is none.

    Args:
        functions: aggregates.
        time: the column of the time.
    """
    for each in functions:
        body = each.aggregateFunction()
        if kind_of(body) == "Max" and id_of(body.child()) == id_of(time):
            return each.resultAttribute()
    return None
