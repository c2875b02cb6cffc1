"""Event time in Spark's plans: what a watermark expires, and which windows it closes.

A window closes for good when no row that comes in time can change it any more. So the plan below
its aggregate is followed down to the logs: a log is *tied* to the window if whatever a row of it
leads to is in the window of the row's own event time, or in a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.errors import SqlUnsupportedError
from millstream.views.lower.plans import (
    conjuncts,
    each_of,
    id_of,
    inner,
    is_temporal,
    kind_of,
    only_grows,
    parts_of,
    source_of,
)
from millstream.views.lower.sessions import newest_of
from millstream.views.lower.time_windows import (
    OVER,
    TimeWindow,
    exploded_in,
    has_column,
    is_in_order,
    is_same,
    window_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.views.lower.plans import LogLeaf, Scala
    from millstream.views.lower.sessions import SessionRows

_UNARY: Final = {"Filter", "Sort"}
_LOWER: Final = {"LessThan", "LessThanOrEqual"}
_UPPER: Final = {"GreaterThan", "GreaterThanOrEqual"}

# ---- joins whose condition bounds their event times


def last_moment(
    time: Any,  # noqa: ANN401
    side: Any,  # noqa: ANN401
    other_keys: list[Any],
    keys: list[Any],
    condition: Any,  # noqa: ANN401
) -> tuple[Any, int] | None:
    """The latest event time of what a row of a join's side may meet.

    It is an expression over that side's columns, and microseconds to add; None when any may be.

    Args:
        time: the event time of the other side.
        side: the plan of the side.
        other_keys: what the keys of the join are on the other side.
        keys: what they are on this one.
        condition: what must hold besides; None when nothing.
    """
    for other, own in zip(other_keys, keys, strict=True):
        if is_same(other, time):
            return own, 0
        window = window_in(other)
        if window is not None and is_same(window.time, time):
            return own, window.size
    for each in conjuncts(condition):
        lower, upper = ordered(each)
        shift = None if lower is None else _shift_of(lower, time)
        if shift is not None and upper.references().subsetOf(side.outputSet()):
            return upper, -shift
    return None


def shifted(expression: Any) -> tuple[Any, int]:  # noqa: ANN401
    """What an expression adds microseconds to, and how many; itself and 0 when it adds none."""
    if kind_of(expression) == "TimestampAddInterval":
        shift = _shift_of(expression, expression.start())
        if shift is not None:
            return expression.start(), shift
    return expression, 0


def _shift_of(expression: Any, column: Any) -> int | None:  # noqa: ANN401
    """How many microseconds an expression adds to a column; None when it is something else."""
    if is_same(expression, column):
        return 0
    if kind_of(expression) != "TimestampAddInterval" or not is_same(expression.start(), column):
        return None
    interval = expression.interval()
    is_exact = interval.foldable() and kind_of(interval.dataType()) == "DayTimeIntervalType"
    return int(interval.eval(None)) if is_exact else None


def ordered(comparison: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """The lesser and the greater side of a comparison; None when it is none."""
    kind = kind_of(comparison)
    if kind in _LOWER:
        return comparison.left(), comparison.right()
    return (comparison.right(), comparison.left()) if kind in _UPPER else (None, None)


# ---- windows that close


class Closing(NamedTuple):
    """A view whose windows close.

    Attributes:
        end: the place of the column of the result that has the ends of windows.
        size: how long they are, in microseconds.
        lateness: for how long after their end they still take rows.
        final: whether they must not change after that.
        names: of the logs.
    """

    end: int
    size: int
    lateness: int
    final: bool
    names: Sequence[str]


class Ties:
    """Which logs are tied to a column of a plan.

    Args:
        catalyst: Spark's classes.
        logs: what each RDD stands for, by its id.

    Attributes:
        tied: those that are: whatever a row of them leads to is in the window of its own event time
            there, or in a later one.
        untied: those that may lead to anything.
        groups: by the keys of each aggregate on the way, the place of the one that is the column,
            and whether it is the start of the window.
    """

    def __init__(self, catalyst: Any, logs: dict[int, LogLeaf]) -> None:  # noqa: ANN401
        self._catalyst = catalyst
        self._logs = logs
        self.tied: set[int] = set()
        self.untied: set[int] = set()
        self.groups: dict[tuple[str, ...], tuple[int, bool] | None] = {}
        self._times: set[int] = set()  # the columns on the way, which are in no later window

    def _untie(self, node: Any) -> None:  # noqa: ANN401
        """Whatever the rows of some logs lead to may be in any window."""
        if kind_of(node) == "LogicalRDD":
            self.untied.add(self._logs[node.rdd().id()].number)
        for each in [*each_of(node.children()), *each_of(node.subqueries())]:
            self._untie(each)

    def follow(self, node: Any, window: str | None, time: Any) -> str | None:  # noqa: ANN401
        """Follow a column down to the logs; returns of which window it is the time.

        Args:
            node: what gives the column.
            window: the text of the window; None as long as the column is its start or its end.
            time: the column.
        """
        for each in each_of(node.subqueries()):
            self._untie(each)
        kind = kind_of(node)
        self._times.add(id_of(time))
        if kind == "LogicalRDD":
            log = self._logs[node.rdd().id()]
            is_time = log.time >= 0 and is_same(node.output().apply(log.time), time)
            (self.tied if window and is_time else self.untied).add(log.number)
        elif kind in _UNARY or (kind in OVER and is_in_order(node, window, time)):
            return self.follow(node.child(), window, time)
        elif kind in {"Project", "Aggregate", "Generate"}:
            return self._follow_through(node, window, time)
        elif kind == "Union":
            return self._follow_union(node, window, time)
        elif kind == "AsOfJoin" and has_column(node.left(), time):
            if not is_temporal(node):  # by which a table changes no row again
                self._untie(node.right())
            return self.follow(node.left(), window, time)
        elif kind == "Join":
            return self._follow_join(node, window, time)
        else:
            self._untie(node)
        return window

    def _follow_union(self, node: Any, window: str | None, time: Any) -> str | None:  # noqa: ANN401
        place = [id_of(each) for each in each_of(node.output())].index(id_of(time))
        children = each_of(node.children())
        found, times = set[str | None](), self._times
        for each in children:
            self._times = set(times)  # the same columns may be in another branch
            found.add(self.follow(each, window, each.output().apply(place)))
        self._times = times
        if len(found) == 1:
            return found.pop()
        self._untie(node)
        return window

    def _follow_through(self, node: Any, window: str | None, time: Any) -> str | None:  # noqa: ANN401
        """Follow a column through the expressions of a node."""
        child, given = node.child(), time
        exploded = exploded_in(node, time) if window is None else None
        if exploded is not None:
            return self.follow(child, *exploded)
        if kind_of(node) != "Generate":
            is_group = kind_of(node) == "Aggregate"
            items = each_of(node.aggregateExpressions() if is_group else node.projectList())
            given = inner(next(each for each in items if id_of(each) == id_of(time)))
        given = source_of(given) if window is None else given
        found = window_in(given) if window is None else None
        if kind_of(node) == "Aggregate" and not self._is_key(node, window, given, found):
            self._untie(child)
            return window
        if found is not None:
            return self.follow(child, found.text, found.time)
        if kind_of(given) != "AttributeReference" or not has_column(child, given):
            self._untie(child)
            return window
        return self.follow(child, window, given)

    def _is_key(self, node: Any, window: str | None, given: Any, found: TimeWindow | None) -> bool:  # noqa: ANN401
        """Whether an aggregate is grouped by a column, or by the time of its window."""
        keys = each_of(node.groupingExpressions())
        text = _texts_of(keys)
        for time, is_start in ((given, window is None), (found and found.time, False)):
            for place, key in enumerate(keys):
                if time is not None and key.semanticEquals(time):
                    known = self.groups.setdefault(text, (place, is_start))
                    if known != (place, is_start):
                        self.groups[text] = None
                    return True
        return False

    def _follow_join(self, node: Any, window: str | None, time: Any) -> str | None:  # noqa: ANN401
        """Follow a column into the side that has it, and what it is compared with in the other."""
        sides = (node.left(), node.right())
        own = 0 if has_column(sides[0], time) else 1
        window = self.follow(sides[own], window, time)
        found = self._met(node, own, window)
        if found is None:
            self._untie(sides[1 - own])
        else:
            self.follow(sides[1 - own], window, found)
        return window

    def _met(self, node: Any, own: int, window: str | None) -> Any:  # noqa: ANN401
        """The time of what a row meets in the other side, if it is in no later window."""
        condition, pairs = node.condition(), list[tuple[Any, Any]]()
        equal = self._catalyst.planning.ExtractEquiJoinKeys.unapply(node)
        if equal.isDefined():
            _, left, right, condition, *_ = parts_of(equal.get())
            pairs = list(zip(each_of(left), each_of(right), strict=True))
        for pair in pairs:
            mine, other = pair[own], pair[1 - own]
            if id_of(mine) in self._times and kind_of(other) == "AttributeReference":
                return other
            one, two = window_in(mine), window_in(other)
            both = one is not None and two is not None and one.text == two.text == window
            if one is not None and two is not None and both and id_of(one.time) in self._times:
                return two.time
        for each in conjuncts(condition.get() if condition.isDefined() else None):
            lower, upper = ordered(each)
            if lower is not None and id_of(upper) in self._times:
                met = _shifted(lower)
                if met is not None and not has_column(node.children().apply(own), met):
                    return met
        return None


def _texts_of(expressions: list[Any]) -> tuple[str, ...]:
    """Expressions as texts, with the numbers of their columns."""
    return tuple(str(each.toString()) for each in expressions)


def _shifted(expression: Any) -> Any:  # noqa: ANN401
    """The column that an expression is, or that it adds something to; else None."""
    column = expression
    if kind_of(expression) == "TimestampAddInterval":
        column = expression.start()
    if kind_of(column) != "AttributeReference":
        return None
    shift = _shift_of(expression, column)
    return column if shift is not None and shift >= 0 else None


class ClosedWindows:
    """The windows of a view that closes them.

    Args:
        scala: makes Spark's objects.
        plan: the optimized plan.
        closing: what is known of them.
        logs: what each RDD stands for, by its id.

    Attributes:
        text: of the window.
        logs: those whose rows come too late when their window has closed.
        groups: which keys of aggregates are never of a window that has closed, see ``Ties``.
        slack: how far behind the watermark the event time of a row can be that comes in time.

    Raises:
        SqlUnsupportedError: the windows are over no event time, or do not close for good.
    """

    def __init__(
        self,
        scala: Scala,
        plan: Any,  # noqa: ANN401
        closing: Closing,
        logs: dict[int, LogLeaf],
    ) -> None:
        ties = Ties(scala.catalyst, logs)
        self.text = ties.follow(plan, None, plan.output().apply(closing.end)) or ""
        self.logs = ties.tied - ties.untied
        self.groups = {} if ties.untied else ties.groups
        self.slack = closing.size + closing.lateness
        if not self.logs:
            raise SqlUnsupportedError(
                "a window that closes must be over the event time of a log",
                hint="write TUMBLE over a column that has a WATERMARK, as it stands",
            )
        if closing.final and ties.untied:
            raise SqlUnsupportedError(
                f"a row of {closing.names[min(ties.untied)]} could change a window after its end",
                hint="bound its event time where it is joined: TUMBLE(a.ts, ...) = "
                "TUMBLE(b.ts, ...), or b.ts <= a.ts; or write EMIT ON WINDOW CLOSE, "
                "by which such a change is emitted when it comes",
            )


class Expiries:
    """When an operator's state expires, by the watermark.

    Args:
        scala: makes Spark's objects.
        logs: what each RDD stands for, by its id.
        windows: of a view whose windows close; None of others.
        slack: of others, how far behind the watermark the event time of a row can be that comes in
            time.

    Attributes:
        timed: the logs whose watermark lets state go, or closes windows: their rows may be late.
    """

    def __init__(
        self,
        scala: Scala,
        logs: dict[int, LogLeaf],
        windows: ClosedWindows | None,
        slack: int = 0,
    ) -> None:
        self._scala = scala
        self._logs = logs
        self._windows = windows
        self._slack = slack if windows is None else windows.slack
        self.timed: set[int] = set() if windows is None else set(windows.logs)

    def of_join(
        self,
        sides: tuple[Any, Any],
        keys: tuple[list[Any], list[Any]],
        condition: Any,  # noqa: ANN401
    ) -> list[Any]:
        """When a row of each side of a join expires; None for one that never does."""
        made: list[Any] = [None, None]
        if not all(only_grows(side, lambda rdd: self._logs[rdd].grows) for side in sides):
            return made
        for own, other in ((0, 1), (1, 0)):
            for logs, time in self._times_of(sides[other]):
                last = last_moment(time, sides[own], keys[other], keys[own], condition)
                if last is not None:
                    self.timed |= logs
                    made[own] = self._expiry(last[0], sides[own].output(), last[1] + self._slack)
                    break
        return made

    def of_asof(self, sides: tuple[Any, Any], times: tuple[Any, Any]) -> list[Any]:
        """When the time of a row of each side of an ASOF join is past; None when it never is.

        Both times must be event times: then no row that is older than the watermark comes to either
        side.
        """
        if not all(only_grows(side, lambda rdd: self._logs[rdd].grows) for side in sides):
            return [None, None]
        timed: set[int] = set()
        for side, time in zip(sides, times, strict=True):
            found = next((logs for logs, each in self._times_of(side) if is_same(time, each)), None)
            if found is None:
                return [None, None]
            timed |= found
        self.timed |= timed
        return [
            self._expiry(time, side.output(), self._slack)
            for side, time in zip(sides, times, strict=True)
        ]

    def _times_of(self, side: Any) -> Iterator[tuple[set[int], Any]]:  # noqa: ANN401
        """The columns of a plan that are never behind the watermark, and the logs of each."""
        windows = self._windows
        for each in each_of(side.output()):
            if str(each.dataType().typeName()) != "timestamp":
                continue
            ties = Ties(self._scala.catalyst, self._logs)
            ties.follow(side, windows.text if windows else "ts", each)
            if ties.tied and not ties.untied and (not windows or ties.tied <= windows.logs):
                yield ties.tied, each

    def of_group(self, grouping: list[Any]) -> Any:  # noqa: ANN401
        """When a group expires, since its window has closed; None when it never does."""
        windows = self._windows
        if windows is None:
            return None
        found = windows.groups.get(_texts_of([inner(each) for each in grouping]))
        if found is None:
            return None
        place, is_start = found
        keys = [each.toAttribute() for each in grouping]
        shift = windows.slack - is_start  # at its end it has closed
        return self._expiry(keys[place], self._scala.seq(keys), shift)

    def of_session(self, sessions: SessionRows) -> Any:  # noqa: ANN401
        """When a row expires, since no later row is in its session; None when it never does."""
        rows = sessions.rows
        if not only_grows(rows, lambda rdd: self._logs[rdd].grows):
            return None
        for logs, time in self._times_of(rows):
            if is_same(sessions.time, time):
                self.timed |= logs
                return self._expiry(time, rows.output(), self._slack + sessions.gap)
        return None

    def of_sessions(self, sessions: SessionRows, functions: list[Any], columns: list[Any]) -> Any:  # noqa: ANN401
        """When a group that is a session expires, by its row; None when it never does."""
        newest = newest_of(functions, sessions.time)
        if newest is None:
            return None
        return self._expiry(newest, self._scala.seq(columns), self._slack + sessions.gap)

    def _expiry(self, moment: Any, columns: Any, shift: int) -> Any:  # noqa: ANN401
        times = self._scala.seq([self._scala.alias(moment)])
        return self._scala.dataflow.Expiry(times, columns, shift)
