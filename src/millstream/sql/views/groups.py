"""Groups: GROUP BY, aggregates, HAVING and DISTINCT, as a ground of groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.function_names import COUNTS
from millstream.sql.statements.cursor import nearest
from millstream.sql.views.aggregates import plain, read_aggregate
from millstream.sql.views.flow import WATERMARK, WEIGHT, Flow, Ground, Groups
from millstream.sql.views.functions import AGGREGATES, has_aggregate, is_aggregate
from millstream.sql.views.sessions import SESSION, Sessions
from millstream.sql.views.trees import (
    alias,
    both,
    call,
    closed,
    column,
    is_null,
    moved,
    nested,
    not_null,
    number,
    select,
)
from millstream.sql.views.weighted import weighted
from millstream.sql.views.windows import (
    BOUNDS,
    as_window,
    cumulated_ends,
    cumulated_start,
    hopping_ends,
    hopping_start,
    is_bound,
    is_window,
    spark_window,
    window_of,
)

if TYPE_CHECKING:
    from millstream.errors import SqlError
    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Columns
    from millstream.sql.views.plan import Window

_START, _END = column("start", "_w"), column("end", "_w")
_CLOSES = column("_c")


@dataclass(slots=True)
class Grouping:
    """Turns the resolved parts of a SELECT with groups into a flow of groups.

    Attributes:
        below: the rows that are grouped.
        errors: raises errors.
        lateness: for how long late rows count, in microseconds.
        keys: the keys, over the ground of the rows, without the window.
        window: the window, and the tree that said so.
        made: the aggregates, in Spark's form, each once.
        sessions: the aggregates of sessions, if the window is a SESSION.
    """

    below: Flow
    errors: ErrorReporter
    lateness: int
    keys: list[exp.Expr] = field(default_factory=list)
    window: tuple[Window, exp.Expr] | None = None
    made: list[exp.Expr] = field(default_factory=list)
    sessions: Sessions | None = None

    def add_key(self, tree: exp.Expr) -> None:
        """Take one resolved part of GROUP BY."""
        if is_bound(tree):
            tree = as_window(tree)
        if is_window(tree):
            if self.window is not None:
                hint = "Write one view for each window."
                self.errors.refuse(tree, "there are two windows in GROUP BY", hint)
            self.window = (window_of(tree, self.below.ground, self.errors), tree)
        elif has_aggregate(tree) or is_bound(tree):
            hint = "Leave it out of GROUP BY; aggregates are computed for each group."
            self.errors.refuse(tree, "a key cannot be an aggregate", hint)
        elif tree not in self.keys:
            self._check_key(tree)
            self.keys.append(tree)

    def _check_key(self, tree: exp.Expr) -> None:
        origin = self.below.ground.origins.get(tree.name) if isinstance(tree, exp.Column) else None
        if origin is not None and origin.type is not None and origin.type.children:
            what = f"groups by {origin.type.sql} are not supported"
            hint = "Group by its parts, such as s.field or a[0], or by to_json(...)."
            self.errors.refuse(tree, what, hint)

    def flow(self, columns: Columns, having: exp.Expr | None) -> Flow:
        """Return the groups, with resolved columns and condition over the rows."""
        self._check_session()
        shown = tuple((name, self.over_groups(tree)) for name, tree in columns)
        where = None if having is None else self.over_groups(having)
        names = tuple(f"_g{place}" for place in range(len(self.keys)))
        items: list[exp.Expr] = [
            alias(tree, name) for name, tree in zip(names, self.keys, strict=True)
        ]
        by = list(self.keys)
        source, condition = self._windowed(items, by)
        items += [alias(tree, f"_a{place}") for place, tree in enumerate(self.made)]
        counted = self.below.ground.retracts and bool(by)
        if counted:
            items.append(alias(call("sum", WEIGHT), "_n"))
        elif not items:
            items.append(alias(call("count", number(1)), "_n"))
        groups = self._groups(names, counted=counted, fixed=not self.made and where is None)
        ground = Ground(nested(select(items, source, condition, by)), {}, is_feed=False)
        return Flow(ground, shown, where, groups=groups)

    def _groups(self, names: tuple[str, ...], *, counted: bool, fixed: bool) -> Groups:
        start, end = self._bounds()
        hashed: list[exp.Expr] = [column(name) for name in names]
        if end is not None and self.sessions is None:
            hashed.append(end)
        return Groups(
            keys=names,
            start=start,
            end=end,
            window=self.window[0] if self.window else None,
            weight="_n" if counted else None,
            hash=call("xxhash64", *(hashed or [number(0)])),
            sessions=None if self.sessions is None else column("_r"),
            fixed=fixed and not counted and self.sessions is None,
            timed=self._is_timed,
            frees=self._frees,
        )

    @property
    def _is_timed(self) -> bool:
        if self.window is None:
            return False
        return self.below.ground.origins[self.window[1].expressions[0].name].is_time

    @property
    def _frees(self) -> bool:
        """Whether a window that has closed gets no more rows: a correction would be one."""
        return self._is_timed and self.sessions is None and not self.below.ground.retracts

    def _check_session(self) -> None:
        if self.window is None or self.window[0].kind != "session":
            return
        if self.below.ground.retracts:
            hint = "Read a source, or use TUMBLE or HOP."
            self.errors.refuse(
                self.window[1], "SESSION over rows that change is not supported", hint
            )
        self.sessions = Sessions(self.below.ground, self.errors)

    def _windowed(
        self, items: list[exp.Expr], group: list[exp.Expr]
    ) -> tuple[exp.Expr, exp.Expr | None]:
        """Add the window to what is selected and grouped; returns the source and its condition."""
        source, condition = self.below.ground.source, self.below.where
        if self.window is None:
            return source, condition
        window, tree = self.window
        time = tree.expressions[0]
        if self.sessions is not None:
            items.append(alias(self.sessions.call(time, window.size), "_r"))
            return source, both([condition, not_null(time)])
        if window.kind == "tumble":
            if self._frees:
                source, condition, time = _closing(time, source, condition), None, _CLOSES
            made = spark_window(time, window)
            items.append(alias(made, "_w"))
            group.append(made)
            return source, condition
        ends = hopping_ends if window.kind == "hop" else cumulated_ends
        made = alias(ends(time, window), "_e")
        source = nested(select([exp.Star(), made], source, condition))
        end = column("_e")
        condition = self._not_late(end)
        if self._frees:
            source, end = _closing(end, source), _CLOSES
        items.append(alias(end, "_e") if self._frees else end)
        group.append(end)
        return source, condition

    def _not_late(self, end: exp.Expr) -> exp.Expr:
        """Return whether a window of a row may still change when the row comes."""
        limit: exp.Expr = call("unix_micros", WATERMARK)
        if self.lateness:
            limit = exp.Sub(this=limit, expression=number(self.lateness))
        return exp.or_(is_null(WATERMARK), exp.GT(this=end, expression=limit))

    def _bounds(self) -> tuple[exp.Expr | None, exp.Expr | None]:
        """Return the start and the end of the window, over the groups."""
        if self.window is None:
            return None, None
        if self.sessions is not None:
            return column("_start", SESSION), column("_end", SESSION)
        starts = {"cumulate": cumulated_start, "hop": hopping_start}.get(self.window[0].kind)
        if starts is not None:
            end = call("timestamp_micros", column("_e"))
            return starts("_e", self.window[0]), end
        return _START, _END

    # --- Expressions over groups ------------------------------------------------------------------

    def over_groups(self, tree: exp.Expr) -> exp.Expr:
        """Return a resolved expression as one over the groups.

        Raises:
            SqlColumnError: it needs a column that is neither a key nor in an aggregate.
        """
        for place, key in enumerate(self.keys):
            if tree == key:
                return moved(column(f"_g{place}"), tree)
        if is_bound(tree):
            return self._bound(tree)
        if is_window(tree):
            self.errors.refuse(
                tree, "a window has no value of its own", "Write its _START or _END."
            )
        if is_aggregate(tree):
            return self._aggregate(tree)
        if isinstance(tree, exp.Column):
            raise self._no_key(tree)
        made = tree.copy()
        for name, value in tree.args.items():
            if isinstance(value, exp.Expr):
                made.set(name, self._part(value))
            elif isinstance(value, list):
                parts = [self._part(each) if isinstance(each, exp.Expr) else each for each in value]
                made.set(name, parts)
        return made

    def _no_key(self, tree: exp.Column) -> SqlError:
        origin = self.below.ground.origins.get(tree.name)
        name = next(iter(origin.of.values()), "a column") if origin else "a column"
        hint = f"Add it to GROUP BY, or aggregate it: MAX({name}), FIRST({name})."
        hint = _misspelt_aggregate(tree) or hint
        what = f"{name} is not the same for all rows of a group"
        return self.errors.column_error(tree, what, hint)

    def _part(self, tree: exp.Expr) -> exp.Expr:
        made = self.over_groups(tree)
        return closed(made) if type(made) is not type(tree) else made

    def _bound(self, tree: exp.Expr) -> exp.Expr:
        name = str(tree.this).upper()
        start, end = self._bounds()
        if self.window is None or start is None or end is None:
            hint = "Add TUMBLE(ts, INTERVAL '1 minute') to GROUP BY."
            self.errors.refuse(tree, f"{name} needs a window in GROUP BY", hint)
        window, said = self.window
        side, args = BOUNDS[name], tree.expressions
        if name.split("_")[0].lower() not in {"window", window.kind}:
            hint = f"Write {window.kind.upper()}_{side}, or WINDOW_{side}."
            self.errors.refuse(tree, f"the window in GROUP BY is a {window.kind.upper()}", hint)
        if args != said.expressions[: len(args)]:
            hint = f"Write the same as in GROUP BY, or WINDOW_{side}."
            self.errors.refuse(tree, f"{name} is of another window than GROUP BY", hint)
        return moved(start if side == "START" else end, tree)

    def _aggregate(self, tree: exp.Expr) -> exp.Expr:
        aggregate = read_aggregate(tree, self.errors)
        if self.sessions is not None:
            return moved(self.sessions.take(aggregate), tree)
        form = weighted if self.below.ground.retracts else plain
        made = form(aggregate, self.below.ground, self.errors)
        if made not in self.made:
            self.made.append(made)
        return moved(column(f"_a{self.made.index(made)}"), tree)


def _misspelt_aggregate(tree: exp.Column) -> str:
    """Return a hint with the aggregate that the function around a column may be meant to be."""
    call = tree.find_ancestor(exp.Anonymous)
    name = "" if call is None else call.name.upper()
    near = nearest(name, map(str.upper, AGGREGATES), cutoff=0.75) if name not in COUNTS else ""
    return f"Did you mean {near} instead of {name}?" if near else ""


def _closing(time: exp.Expr, source: exp.Expr, condition: exp.Expr | None = None) -> exp.Expr:
    """Return a source with a time once more, as ``_c``, such that Spark frees groups by it."""
    items = [exp.Star(), alias(call("ms_closes", time), _CLOSES.name)]
    return nested(select(items, source, condition))
