"""Binding functions: by the class that sqlglot gives to a name, or by the name itself."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.model.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, TIMESTAMP, VARCHAR
from millstream.sql.expr import numbers, texts, times
from millstream.sql.expr.comparing import comparable, compare
from millstream.sql.expr.fold import call, is_null
from millstream.sql.expr.kinds import is_decimal, is_integer, is_number
from millstream.sql.expr.nodes import (
    Choice,
    FirstOf,
    Inverse,
    Literal,
    Node,
    Op,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.types import SqlType
    from millstream.sql.expr.bind import Binder

# --- Choices --------------------------------------------------------------------------------------


def _case(binder: Binder, tree: exp.Case) -> Node:
    subject = None if tree.this is None else binder.bind(tree.this)
    conditions, values = [], []
    for each in tree.args["ifs"]:
        if subject is None:
            conditions.append(binder.bind_boolean(each.this))
        else:
            conditions.append(compare(binder, each, "=", subject, binder.bind(each.this)))
        values.append(binder.bind(each.args["true"]))
    default = tree.args.get("default")
    values.append(Literal(None, values[0].type) if default is None else binder.bind(default))
    return choice(binder, tree, conditions, values)


def choice(binder: Binder, tree: exp.Expr, conditions: Sequence[Node], values: list[Node]) -> Node:
    """Return CASE; there is one value more than there are conditions."""
    of = binder.common(tree, values)
    values = [binder.coerce(tree, each, of) for each in values]
    return Choice(tuple(zip(conditions, values[:-1], strict=True)), values[-1], of)


def _if(binder: Binder, tree: exp.If) -> Node:
    other = tree.args.get("false")
    values = [
        binder.bind(tree.args["true"]),
        binder.bind(exp.Null() if other is None else other),
    ]
    return choice(binder, tree, [binder.bind_boolean(tree.this)], values)


def _first_of(binder: Binder, tree: exp.Coalesce) -> Node:
    nodes = [binder.bind(each) for each in (tree.this, *tree.expressions)]
    of = binder.common(tree, nodes)
    nodes = [binder.coerce(tree, each, of) for each in nodes]
    return nodes[0] if len(nodes) == 1 else FirstOf(tuple(nodes), of)


def _null_if(binder: Binder, tree: exp.Nullif) -> Node:
    left, right = binder.bind(tree.this), binder.bind(tree.expression)
    same = compare(binder, tree, "=", left, right)
    return Choice(((same, Literal(None, left.type)),), left, left.type)


def _nvl2(binder: Binder, tree: exp.Nvl2) -> Node:
    values = [binder.bind(tree.args["true"]), binder.bind(tree.args["false"])]
    return choice(binder, tree, [Inverse(is_null(binder.bind(tree.this)))], values)


def _extreme(binder: Binder, tree: Any) -> Node:
    nodes = [binder.bind(each) for each in (tree.this, *tree.expressions)]
    if len(nodes) < 2:
        binder.mismatch(tree, "two values at least are needed", "Name several columns.")
    of = comparable(binder, tree, nodes)
    nodes = [binder.coerce(tree, each, of) for each in nodes]
    greatest = isinstance(tree, exp.Greatest)
    return call(numbers.extreme(of, len(nodes), greatest=greatest), *nodes, of=of)


# --- Numbers --------------------------------------------------------------------------------------


def _ceil_or_floor(binder: Binder, tree: Any) -> Node:
    if tree.args.get("decimals") is not None or tree.args.get("to") is not None:
        binder.refuse(tree, "a second argument is not supported", "Scale the number, then round.")
    node, up = number_of(binder, tree.this), isinstance(tree, exp.Ceil)
    if is_integer(node.type):
        return binder.coerce(tree, node, BIGINT)
    if is_decimal(node.type):
        op, of = numbers.decimal_to_whole(node.type, up=up)
        return call(op, node, of=of)
    return call(numbers.to_whole(up=up), binder.coerce(tree, node, DOUBLE), of=BIGINT)


def _round(binder: Binder, tree: exp.Round) -> Node:
    node, places = number_of(binder, tree.this), tree.args.get("decimals")
    known = Literal(0, INTEGER) if places is None else binder.bind(places)
    if not isinstance(known, Literal) or not is_integer(known.type) or known.value is None:
        binder.refuse(tree, "ROUND needs a known number of places", "Write ROUND(x, 2).")
    if not -30 <= known.value <= 38:
        binder.refuse(tree, "ROUND takes -30 to 38 places", "Write ROUND(x, 2).")
    found = numbers.rounding(node.type, known.value)
    if found is None:
        binder.refuse(
            tree, f"ROUND of {node.type.sql} is not exact", "CAST it AS DOUBLE or DECIMAL first."
        )
    op, of = found
    return call(op, node, of=of)


def _of_double(op: Op) -> Callable[[Binder, Any], Node]:
    def bind(binder: Binder, tree: Any) -> Node:
        node = number_of(binder, tree.this)
        return call(op, binder.coerce(tree, node, DOUBLE), of=DOUBLE)

    return bind


def _is_nan(binder: Binder, tree: exp.IsNan) -> Node:
    node = binder.coerce(tree, number_of(binder, tree.this), DOUBLE)
    return call(numbers.IS_NAN, node, of=BOOLEAN)


def number_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be a number."""
    node = binder.bind(tree)
    if not is_number(node.type):
        binder.mismatch(tree, f"expected a number, got {node.type.sql}", "CAST it to a number.")
    return node


# --- Text -----------------------------------------------------------------------------------------


def text_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be text."""
    node = binder.bind(tree)
    if node.type.kind == "NULL":
        return Literal(None, VARCHAR)
    if node.type != VARCHAR:
        binder.mismatch(tree, f"expected VARCHAR, got {node.type.sql}", "CAST it AS VARCHAR.")
    return node


def _known(node: Node) -> Any:
    return node.value if isinstance(node, Literal) else None


def _of_text(op: Op, of: SqlType = VARCHAR) -> Callable[[Binder, Any], Node]:
    return lambda binder, tree: call(op, text_of(binder, tree.this), of=of)


def _length(binder: Binder, tree: exp.Length) -> Node:
    node = binder.bind(tree.this)
    if node.type.kind == "BINARY":
        return call(texts.OCTETS, node, of=INTEGER)
    return call(texts.LENGTH, text_of(binder, tree.this), of=INTEGER)


def _trim(binder: Binder, tree: exp.Trim) -> Node:
    characters = tree.expression
    known = Literal(" ", VARCHAR) if characters is None else text_of(binder, characters)
    if not isinstance(known, Literal) or known.value is None:
        binder.refuse(tree, "TRIM needs known characters", "Write TRIM(BOTH 'x' FROM text).")
    side = str(tree.args.get("position") or "BOTH").upper()
    return call(texts.trim(side, known.value), text_of(binder, tree.this), of=VARCHAR)


def _substring(binder: Binder, tree: exp.Substring) -> Node:
    text, length = text_of(binder, tree.this), tree.args.get("length")
    args = [_integer(binder, tree.args["start"])]
    if length is not None:
        args.append(_integer(binder, length))
    return _part(text, *args)


def _part(text: Node, *args: Node) -> Node:
    size = _known(args[1]) if len(args) > 1 else None
    op = texts.substring(_known(args[0]), size, has_length=len(args) > 1)
    return call(op, text, *args, of=VARCHAR)


def _left(binder: Binder, tree: exp.Left) -> Node:
    return _part(text_of(binder, tree.this), Literal(1, INTEGER), _integer(binder, tree.expression))


def _integer(binder: Binder, tree: exp.Expr) -> Node:
    node = binder.bind(tree)
    if node.type.kind not in {"NULL", "TINYINT", "SMALLINT", "INTEGER"}:
        binder.mismatch(tree, f"expected INTEGER, got {node.type.sql}", "CAST it AS INTEGER.")
    return binder.coerce(tree, node, INTEGER)


def _concat(binder: Binder, tree: Any) -> Node:
    trees = tree.expressions if isinstance(tree, exp.Concat) else [tree.this, tree.expression]
    nodes = [binder.coerce(each, binder.bind(each), VARCHAR) for each in trees]
    return nodes[0] if len(nodes) == 1 else call(texts.concat(len(nodes)), *nodes, of=VARCHAR)


def _search(name: str) -> Callable[[Binder, Any], Node]:
    def bind(binder: Binder, tree: Any) -> Node:
        text, part = text_of(binder, tree.this), text_of(binder, tree.expression)
        return call(texts.search(name, _known(part)), text, part, of=BOOLEAN)

    return bind


def _replace(binder: Binder, tree: exp.Replace) -> Node:
    text, old = text_of(binder, tree.this), text_of(binder, tree.expression)
    other = tree.args.get("replacement")
    new = Literal("", VARCHAR) if other is None else text_of(binder, other)
    return call(texts.replacement(_known(old), _known(new)), text, old, new, of=VARCHAR)


def _like(binder: Binder, tree: Any, escape: str = "\\") -> Node:
    if isinstance(tree.expression, (exp.Any, exp.All)):
        binder.refuse(tree, "LIKE ANY and ALL are not supported", "Write several LIKE with OR.")
    text, pattern = text_of(binder, tree.this), text_of(binder, tree.expression)
    if not isinstance(pattern, Literal):
        binder.refuse(
            tree,
            "LIKE needs a known pattern",
            "Use STARTSWITH, ENDSWITH or CONTAINS of two columns.",
        )
    if pattern.value is None:
        return Literal(None, BOOLEAN)
    known = pattern.value
    if isinstance(tree, exp.ILike):
        known, text = known.lower(), call(texts.LOWER, text, of=VARCHAR)
    try:
        node = call(texts.like(known, escape), text, of=BOOLEAN)
    except texts.PatternError:
        binder.refuse(
            tree,
            f"in the pattern, {escape} does not stand before %, _ or {escape}",
            f"Write {escape}{escape} for the character itself.",
        )
    return Inverse(node) if tree.args.get("negate") else node


def _escape(binder: Binder, tree: exp.Escape) -> Node:
    mark = tree.expression.name if isinstance(tree.expression, exp.Literal) else ""
    if not isinstance(tree.this, (exp.Like, exp.ILike)) or len(mark) != 1 or mark in "%_":
        binder.refuse(tree, "ESCAPE takes one character", "Write LIKE '5!%' ESCAPE '!'.")
    return _like(binder, tree.this, mark)


# --- Time -----------------------------------------------------------------------------------------


def time_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be a DATE or a TIMESTAMP."""
    # sqlglot wraps the argument of YEAR and its kin in a conversion, which changes nothing here.
    tree = tree.this if isinstance(tree, exp.TsOrDsToDate) else tree
    node = binder.bind(tree)
    if node.type not in {DATE, TIMESTAMP}:
        binder.mismatch(
            tree, f"expected DATE or TIMESTAMP, got {node.type.sql}", "Write TIMESTAMP '...'."
        )
    return node


def _field(name: str) -> Callable[[Binder, Any], Node]:
    def bind(binder: Binder, tree: Any) -> Node:
        return field(binder, tree, name, time_of(binder, tree.this))

    return bind


def field(binder: Binder, tree: exp.Expr, name: str, node: Node) -> Node:
    """Return a field of a DATE or TIMESTAMP."""
    if name in {"HOUR", "MINUTE", "SECOND"}:
        node = binder.coerce(tree, node, TIMESTAMP)
    op = times.field(name, node.type)
    if op is None:
        binder.refuse(tree, f"there is no {name} of a time", "Use YEAR, MONTH, DAY, HOUR, MINUTE.")
    return call(op, node, of=INTEGER)


_EXTRACT = {
    **{name: name for name in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE")},
    "WEEK": "WEEKOFYEAR",
    "DOW": "DAYOFWEEK",
    "DOY": "DAYOFYEAR",
    "DAYOFWEEK": "DAYOFWEEK",
}


def _extract(binder: Binder, tree: exp.Extract) -> Node:
    name = _EXTRACT.get(tree.this.name.upper())
    if name is None:
        binder.refuse(
            tree,
            f"EXTRACT({tree.this.name.upper()} ...) is not supported",
            f"EXTRACT takes {', '.join(_EXTRACT)}; for whole seconds, use SECOND(time).",
        )
    return field(binder, tree, name, time_of(binder, tree.expression))


def _truncate(binder: Binder, tree: exp.TimestampTrunc) -> Node:
    unit = times.UNITS.get(tree.args["unit"].name.upper())
    if unit is None:
        binder.refuse(
            tree, "DATE_TRUNC does not know this unit", f"It knows {', '.join(times.UNITS)}."
        )
    node = binder.coerce(tree, time_of(binder, tree.this), TIMESTAMP)
    return call(times.truncation(unit), node, of=TIMESTAMP)


# --- By name --------------------------------------------------------------------------------------


def _btrim(binder: Binder, tree: exp.Anonymous) -> Node:
    characters = tree.expressions[1] if len(tree.expressions) > 1 else None
    return _trim(binder, exp.Trim(this=tree.expressions[0], expression=characters))


_BY_NAME: dict[str, tuple[int, int, Callable[[Binder, exp.Anonymous], Node]]] = {
    "ISNULL": (1, 1, lambda binder, tree: is_null(binder.bind(tree.expressions[0]))),
    "ISNOTNULL": (1, 1, lambda binder, tree: Inverse(is_null(binder.bind(tree.expressions[0])))),
    "BTRIM": (1, 2, _btrim),
    "WEEKDAY": (
        1,
        1,
        lambda binder, tree: field(binder, tree, "WEEKDAY", time_of(binder, tree.expressions[0])),
    ),
}


def _by_name(binder: Binder, tree: exp.Anonymous) -> Node:
    name = tree.name.upper()
    if name not in _BY_NAME:
        _unknown(binder, tree, name)
    least, most, bind = _BY_NAME[name]
    if not least <= len(tree.expressions) <= most:
        binder.mismatch(tree, f"{name} takes {least} to {most} arguments", "Count them again.")
    return bind(binder, tree)


def _unknown(binder: Binder, tree: exp.Expr, name: str) -> NoReturn:
    near = difflib.get_close_matches(name, FUNCTIONS, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(FUNCTIONS)}."
    binder.error(SqlColumnError, tree, f"there is no function {name}", hint)


def _other(binder: Binder, tree: exp.Func) -> Node:
    return binder.refuse(
        tree,
        f"the function {tree.sql_name()} is not supported",
        f"There are {', '.join(FUNCTIONS)}.",
    )


def _aggregate(binder: Binder, tree: exp.AggFunc) -> Node:
    return binder.refuse(
        tree,
        f"{tree.sql_name()} is an aggregate, and aggregates are not supported yet",
        "Select the rows, and aggregate in your callback.",
    )


FUNCTIONS = (
    *("ABS", "BTRIM", "CAST", "CEIL", "COALESCE", "CONCAT", "CONTAINS", "DATE_TRUNC", "DAY"),
    *("DAYOFMONTH", "DAYOFWEEK", "DAYOFYEAR", "ENDSWITH", "EXTRACT", "FLOOR", "GREATEST", "HOUR"),
    *("IF", "IFNULL", "ISNAN", "ISNOTNULL", "ISNULL", "LEAST", "LEFT", "LENGTH", "LOWER", "LTRIM"),
    *("MINUTE", "MOD", "MONTH", "NULLIF", "NVL", "NVL2", "QUARTER", "REPLACE", "REVERSE", "ROUND"),
    *("RTRIM", "SECOND", "SIGN", "SQRT", "STARTSWITH", "SUBSTRING", "TRIM", "TRY_CAST", "UPPER"),
    *("WEEKDAY", "WEEKOFYEAR", "YEAR"),
)
"""The names of all functions, for hints."""

BINDERS: dict[type, Callable[[Binder, Any], Node]] = {
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _first_of,
    exp.Nullif: _null_if,
    exp.Nvl2: _nvl2,
    exp.Greatest: _extreme,
    exp.Least: _extreme,
    exp.Ceil: _ceil_or_floor,
    exp.Floor: _ceil_or_floor,
    exp.Round: _round,
    exp.Sqrt: _of_double(numbers.SQUARE_ROOT),
    exp.Sign: _of_double(numbers.SIGN),
    exp.IsNan: _is_nan,
    exp.Upper: _of_text(texts.UPPER),
    exp.Lower: _of_text(texts.LOWER),
    exp.Reverse: _of_text(texts.REVERSE),
    exp.Length: _length,
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.StartsWith: _search("STARTSWITH"),
    exp.EndsWith: _search("ENDSWITH"),
    exp.Contains: _search("CONTAINS"),
    exp.Replace: _replace,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Year: _field("YEAR"),
    exp.Quarter: _field("QUARTER"),
    exp.Month: _field("MONTH"),
    exp.Day: _field("DAY"),
    exp.DayOfMonth: _field("DAY"),
    exp.DayOfWeek: _field("DAYOFWEEK"),
    exp.DayOfYear: _field("DAYOFYEAR"),
    exp.WeekOfYear: _field("WEEKOFYEAR"),
    exp.Hour: _field("HOUR"),
    exp.Minute: _field("MINUTE"),
    exp.Second: _field("SECOND"),
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncate,
    exp.Anonymous: _by_name,
    exp.AggFunc: _aggregate,
    exp.Func: _other,
}
