"""Functions in FROM: windows, series and lists, as the subqueries and lateral views they stand for.

``FROM TUMBLE(t, ts, INTERVAL '1 minute')`` is ``t`` with the columns window_start and window_end.
Where these are grouped by, they become the bounds of a window in GROUP BY, so that it closes as
any other window does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from sqlglot import exp

from millstream.errors import SqlUnsupportedError
from millstream.sql.positions import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_WINDOWS: Final = {
    "TUMBLE": "FROM TUMBLE(trades, ts, INTERVAL '1 minute')",
    "HOP": "FROM HOP(trades, ts, INTERVAL '10 seconds', INTERVAL '1 minute')",
    "CUMULATE": "FROM CUMULATE(trades, ts, INTERVAL '1 minute', INTERVAL '1 hour')",
    "SESSION": "FROM SESSION(trades, ts, INTERVAL '5 minutes')",
}
_SIDES: Final = {"window_start": "START", "window_end": "END"}
_ROWS: Final = frozenset(
    {"UNNEST", "EXPLODE", "EXPLODE_OUTER", "POSEXPLODE", "POSEXPLODE_OUTER", "INLINE"}
    | {"GENERATE_SERIES", "RANGE"}
)
_OUTER: Final = "_OUTER"
_SERIES: Final = "Write GENERATE_SERIES(1, 10), or RANGE(0, 10, 2) with a step of digits."
_JOINED: Final = "Write FROM t, UNNEST(t.list) AS x, or LEFT JOIN UNNEST(t.list) AS x ON TRUE."


@dataclass(frozen=True, slots=True)
class _Call:
    """A function that stands where a relation may.

    Attributes:
        name: which one, in capital letters.
        args: what it is called with.
        alias: the names that the query gives it and its columns.
        tree: the node in FROM.
        ordinality: the name of the column of WITH ORDINALITY; empty without it.
    """

    name: str
    args: tuple[exp.Expr, ...]
    alias: exp.TableAlias | None
    tree: exp.Expr
    ordinality: str = ""

    @property
    def known_as(self) -> str:
        """The name that the query has for it; empty without an alias."""
        return self.alias.name if self.alias is not None else ""

    @property
    def columns(self) -> list[str]:
        """The names that the query gives its columns."""
        return [each.name for each in self.alias.columns] if self.alias is not None else []


def rewrite_table_functions(tree: exp.Expr, sql: str) -> None:
    """Replace the functions after FROM in all SELECTs of a query.

    Args:
        tree: the query, changed in place.
        sql: the text that it is of.

    Raises:
        SqlUnsupportedError: a function has other arguments, or stands where it cannot.
    """
    for query in reversed(list(tree.find_all(exp.Select))):
        source = query.args.get("from_")
        if source is not None:
            _rewrite_windows(query, source, sql)
            _rewrite_rows(query, source, sql)


def _call_of(relation: exp.Expr) -> _Call | None:
    """The function that a relation is; None if it is none."""
    alias, inner = relation.args.get("alias"), relation
    offset = relation.args.get("offset") or relation.args.get("ordinality")
    if isinstance(relation, exp.Lateral):
        if relation.args.get("view"):
            return None
        inner = relation.this
        offset = offset or inner.args.get("offset")
    place = "ordinality" if offset else ""
    if isinstance(offset, exp.Identifier):  # the last of the names in the alias
        place = offset.name
    if isinstance(inner, exp.Unnest):
        return _Call("UNNEST", tuple(inner.expressions), alias, relation, place)
    function = inner.this if isinstance(inner, exp.Table) else inner
    if not isinstance(function, exp.Anonymous):
        return None
    return _Call(function.name.upper(), tuple(function.expressions), alias, relation, place)


def _relations(query: exp.Select, source: exp.Expr) -> list[exp.Expr]:
    return [source.this, *(each.this for each in query.args.get("joins") or ())]


# ---- windows


def _rewrite_windows(query: exp.Select, source: exp.Expr, sql: str) -> None:
    calls = [call for each in _relations(query, source) if (call := _call_of(each)) is not None]
    calls = [each for each in calls if each.name in _WINDOWS]
    for call in calls:
        relation, bounds = _window_of(call, sql)
        if len(calls) == 1 and _can_inline(query, call):
            _inline(query, call, relation, bounds)
        elif call.name == "SESSION":
            hint = "Write GROUP BY window_start, window_end after it, without a join."
            _refuse(call.tree, "SESSION in FROM needs a GROUP BY of its window", hint, sql)
        else:
            items = [exp.Star(), *(exp.alias_(each, name) for name, each in bounds.items())]
            inner = exp.Select(expressions=items, from_=exp.From(this=relation))
            _leave_out_timeless(inner, bounds)
            alias = call.alias or exp.TableAlias(this=exp.to_identifier(relation.alias_or_name))
            call.tree.replace(exp.Subquery(this=inner, alias=alias))


def _window_of(call: _Call, sql: str) -> tuple[exp.Expr, dict[str, exp.Expr]]:
    """What a window is over, and its bounds by the names of their columns."""
    hint = f"Write {_WINDOWS[call.name]}."
    if len(call.args) < 3:
        _refuse(call.tree, f"{call.name} in FROM has too few arguments", hint, sql)
    given, time, *lengths = call.args
    if isinstance(time, exp.Anonymous) and time.name.upper() == "DESCRIPTOR":
        time = time.expressions[0] if len(time.expressions) == 1 else time
    if not isinstance(time, exp.Column):
        _refuse(call.tree, f"the second argument of {call.name} is a column of times", hint, sql)
    if isinstance(given, exp.Column) and not given.args.get("db"):
        relation: exp.Expr = exp.Table(this=given.this.copy(), db=given.args.get("table"))
    elif isinstance(given, exp.Subquery):
        relation = given.copy()
    else:
        _refuse(call.tree, f"the first argument of {call.name} is a relation", hint, sql)
    time = exp.Column(this=time.this.copy())
    bounds: dict[str, exp.Expr] = {
        name: exp.Anonymous(
            this=f"{call.name}_{side}",
            expressions=[time.copy(), *(each.copy() for each in lengths)],
        )
        for name, side in _SIDES.items()
    }
    return relation, bounds


def _can_inline(query: exp.Select, call: _Call) -> bool:
    """Whether a SELECT can have the window itself, instead of a subquery that has its bounds."""
    stars = [each for each in _own(query) if isinstance(each, exp.Star) and not _counts(each)]
    if call.columns or any(each.args.get("except_") for each in stars):
        return False
    inner = [each for each in query.find_all(exp.Column) if each.parent_select is not query]
    if any(_is_bound(each, call) for each in inner):
        return False
    joins = query.args.get("joins") or []
    if any(name.name.lower() in _SIDES for each in joins for name in each.args.get("using") or ()):
        return False
    alone = not joins and not query.args.get("laterals")
    if call.name == "TUMBLE":  # whose rows are joined, not left without a match
        is_first = query.args["from_"].this is call.tree
        keeps = all(each.side in {"", "LEFT" if is_first else ""} for each in joins)
        return alone or (keeps and not stars)
    return alone and any(_is_bound(each, call) for each in _keys(query))


def _inline(
    query: exp.Select, call: _Call, relation: exp.Expr, bounds: dict[str, exp.Expr]
) -> None:
    """Have a SELECT read the relation itself, and name the bounds of its windows."""
    known = call.known_as or relation.alias_or_name
    if query.args.get("joins"):
        for each in bounds.values():
            each.expressions[0].set("table", exp.to_identifier(known))
    items = query.expressions
    for each in _own(query):
        if _is_bound(each, call):
            bound = bounds[each.name.lower()].copy()
            bound.meta.update(each.meta)
            each.replace(exp.alias_(bound, each.name) if each in items else bound)
    for item in list(query.expressions):
        if item.is_star:
            named = [exp.alias_(each.copy(), name) for name, each in bounds.items()]
            found = query.expressions
            place = next(n for n, each in enumerate(found, 1) if each is item)
            query.set("expressions", [*found[:place], *named, *found[place:]])
    relation.set("alias", exp.TableAlias(this=exp.to_identifier(known)))
    call.tree.replace(relation)
    _leave_out_timeless(query, bounds)


def _leave_out_timeless(query: exp.Select, bounds: dict[str, exp.Expr]) -> None:
    """Leave out rows without a time, which are in no window."""
    time = bounds["window_start"].expressions[0].copy()
    is_null = exp.Is(this=time, expression=exp.Null())
    query.where(exp.Not(this=is_null), copy=False)


def _keys(query: exp.Select) -> Iterator[exp.Expr]:
    """What a SELECT is grouped by, without its places in the SELECT."""
    group = query.args.get("group")
    for each in group.expressions if group is not None else ():
        if isinstance(each, exp.Literal) and each.is_int and int(each.name) <= len(query.selects):
            yield query.selects[int(each.name) - 1].unalias()
        else:
            yield each


def _is_bound(tree: exp.Expr, call: _Call) -> bool:
    """Whether a tree is the column of a bound of a window."""
    if not isinstance(tree, exp.Column) or tree.name.lower() not in _SIDES:
        return False
    given = call.args[0]
    return tree.table.lower() in {"", (call.known_as or given.name).lower()}


def _own(query: exp.Select) -> list[exp.Expr]:
    """The nodes of a SELECT without those of its subqueries."""
    return list(query.walk(prune=lambda each: isinstance(each, exp.Query) and each is not query))


def _counts(star: exp.Expr) -> bool:
    """Whether a star is that of COUNT(*)."""
    return isinstance(star.parent, exp.Func)


# ---- rows of lists and series


def _rewrite_rows(query: exp.Select, source: exp.Expr, sql: str) -> None:
    call = _call_of(source.this)
    if call is not None and call.name in _ROWS:
        made, names = _generator(call, sql)
        item = _named(made, names)
        alias = exp.TableAlias(this=exp.to_identifier(call.known_as or call.name.lower()))
        source.set("this", exp.Subquery(this=exp.Select(expressions=[item]), alias=alias))
    for join in list(query.args.get("joins") or ()):
        call = _call_of(join.this)
        if call is not None and call.name in _ROWS:
            _as_lateral(query, join, call, sql)


def _as_lateral(query: exp.Select, join: exp.Join, call: _Call, sql: str) -> None:
    """Have a SELECT read the rows of a function as a LATERAL VIEW, instead of joining them."""
    condition = join.args.get("on")
    is_left = join.side == "LEFT"
    usual = condition is None or condition == exp.true()
    if join.method or join.side not in {"", "LEFT"} or join.args.get("using"):
        _refuse(join, f"this join with {call.name} is not supported", _JOINED, sql)
    if is_left and not usual:
        _refuse(join, f"LEFT JOIN {call.name} is supported with ON TRUE only", _JOINED, sql)
    made, names = _generator(call, sql)
    known = exp.TableAlias(
        this=exp.to_identifier(call.known_as or call.name.lower()),
        columns=[exp.to_identifier(each) for each in names],
    )
    starts = [each.meta["start"] for each in join.walk() if "start" in each.meta]
    made.meta["start"] = min(starts, default=0)
    is_outer = is_left or made.name.upper().endswith(_OUTER)
    made.set("this", made.name.upper().removesuffix(_OUTER))
    query.append("laterals", exp.Lateral(this=made, view=True, outer=is_outer, alias=known))
    query.args["joins"].remove(join)
    if condition is not None and not usual:
        query.where(condition, copy=False)


def _generator(call: _Call, sql: str) -> tuple[exp.Anonymous, list[str]]:
    """What makes the rows of a function, and the names of its columns; empty: Spark's."""
    args = [each.copy() for each in call.args]
    names = call.columns
    if not args:
        _refuse(call.tree, f"{call.name} has no argument", _JOINED, sql)
    if call.name in {"GENERATE_SERIES", "RANGE"}:
        own = call.known_as or "generate_series" if call.name == "GENERATE_SERIES" else "id"
        return _function("EXPLODE", _series(call, sql)), names or [own]
    if call.name != "UNNEST":
        return _function(call.name, *args), names
    if call.ordinality:
        names = [*(names or [call.known_as or "unnest"]), call.ordinality][:2]
        return _numbered(args[0], names), names
    if len(args) > 1:
        return _function("INLINE", _function("ARRAYS_ZIP", *args)), names
    return _function("EXPLODE", *args), names or [call.known_as or "unnest"]


def _numbered(given: exp.Expr, names: list[str]) -> exp.Anonymous:
    """The elements of an array with their places, counted from 1."""
    value, place = exp.column("_x"), exp.column("_i")
    count = exp.Cast(
        this=exp.Add(this=place, expression=exp.Literal.number(1)),
        to=exp.DataType.build("BIGINT", dialect="spark"),
    )
    fields = (exp.Literal.string(names[0]), value, exp.Literal.string(names[1]), count)
    made = exp.Lambda(
        this=_function("NAMED_STRUCT", *fields),
        expressions=[exp.to_identifier("_x"), exp.to_identifier("_i")],
    )
    return _function("INLINE", _function("TRANSFORM", given, made))


def _series(call: _Call, sql: str) -> exp.Expr:
    """The array of a series; NULL, of which nothing comes, if it is empty."""
    args = [each.copy() for each in call.args]
    if call.name == "RANGE" and len(args) == 1:
        args.insert(0, exp.Literal.number(0))
    if not 2 <= len(args) <= 3:
        _refuse(call.tree, f"{call.name} has too few or too many arguments", _SERIES, sql)
    first, last, *step = args
    falls = bool(step) and _falls(step[0], call, sql)
    if call.name == "RANGE":
        first, last = (_bigint(each) for each in (first, last))
        beyond = exp.Add if falls else exp.Sub
        last = beyond(this=last, expression=exp.Literal.number(1))
    test = exp.GTE if falls else exp.LTE
    known = _function("SEQUENCE", first.copy(), last.copy(), *step)
    return exp.If(this=test(this=first, expression=last), true=known, false=exp.Null())


def _falls(step: exp.Expr, call: _Call, sql: str) -> bool:
    """Whether a series goes down."""
    inner = step.unnest()
    if isinstance(inner, exp.Neg):
        return not _falls(inner.this, call, sql)
    value = inner.this if isinstance(inner, exp.Interval) else inner
    text = value.name.strip() if isinstance(value, exp.Literal) else ""
    if not text or not any(each in "123456789" for each in text):
        _refuse(call.tree, f"the step of {call.name} is written as a constant", _SERIES, sql)
    return text.startswith("-")


def _bigint(tree: exp.Expr) -> exp.Expr:
    return exp.Cast(this=tree, to=exp.DataType.build("BIGINT", dialect="spark"))


def _function(name: str, *args: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(args))


def _named(tree: exp.Expr, names: list[str]) -> exp.Expr:
    """An item of a SELECT with the names of its columns."""
    known = [exp.to_identifier(each) for each in names]
    if not known:
        return tree
    if len(known) == 1:
        return exp.Alias(this=tree, alias=known[0])
    return exp.Aliases(this=tree, expressions=known)


def _refuse(tree: exp.Expr, message: str, hint: str, sql: str) -> NoReturn:
    line, column = place_of(tree, sql)
    raise SqlUnsupportedError(message, sql=sql, line=line, column=column, hint=hint)
