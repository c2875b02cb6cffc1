"""Synonyms: functions and operators of PostgreSQL, RisingWave and LaminarDB, as Spark has them.

What Spark has under the same name keeps Spark's meaning. Trees are changed as they are read, so
that a synonym means the same in filters, ad-hoc queries and views.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RENAMED: Final[Mapping[str, str]] = {
    "APPROX_DISTINCT": "APPROX_COUNT_DISTINCT",
    "ARRAY_HAS": "ARRAY_CONTAINS",
    "LIST_CONTAINS": "ARRAY_CONTAINS",
    "ARRAY_TO_STRING": "ARRAY_JOIN",
    "STRPOS": "INSTR",
    "TO_TIMESTAMP_SECONDS": "TIMESTAMP_SECONDS",
    "TO_TIMESTAMP_MILLIS": "TIMESTAMP_MILLIS",
    "TO_TIMESTAMP_MICROS": "TIMESTAMP_MICROS",
    "UNNEST": "EXPLODE",
}
"""Functions that Spark has under another name, with the same arguments."""

_PATTERNS: Final = (
    *(("YYYY", "yyyy"), ("HH24", "HH"), ("HH12", "hh"), ("MONTH", "MMMM"), ("Month", "MMMM")),
    *(("MON", "MMM"), ("Mon", "MMM"), ("DAY", "EEEE"), ("Day", "EEEE"), ("DDD", "DDD")),
    *(("YY", "yy"), ("MM", "MM"), ("MI", "mm"), ("DD", "dd"), ("DY", "EEE"), ("Dy", "EEE")),
    *(("SS", "ss"), ("MS", "SSS"), ("US", "SSSSSS"), ("HH", "hh"), ("AM", "a"), ("PM", "a")),
)
"""What times are written with in PostgreSQL, the longest first, and in Java."""

_TIME_PATTERN: Final = re.compile(r"YYYY|YY|HH24|HH12|MI")
"""What shows that a pattern is one of PostgreSQL's: Java's have none of these."""

_LETTERS: Final = re.compile(r"[A-Za-z]")
_PART: Final = r'(?:"(?:[^"\\]|\\.)*"|[^{}",\\]*)'
_ARRAY_TEXT: Final = re.compile(rf"\s*\{{{_PART}(?:,{_PART})*\}}\s*")
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,]+)')
_NO_ARRAYS: Final = (exp.Query, exp.Predicate, exp.Connector, exp.Not)
_COMPARED: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def as_spark(tree: exp.Expr) -> exp.Expr:
    """Return a tree with Spark's names for what it calls; it is changed in place.

    >>> from sqlglot import parse_one
    >>> as_spark(parse_one("array_has(tags, 'x')", dialect="spark")).sql(dialect="spark")
    "ARRAY_CONTAINS(tags, 'x')"
    """
    for node in reversed(list(tree.walk())):
        made = _spelled(node)
        if made is None:
            continue
        if "start" in node.meta:
            made.meta.setdefault("start", node.meta["start"])
        if node is tree:
            tree = made
        else:
            node.replace(made)
    return tree


def _spelled(node: exp.Expr) -> exp.Expr | None:
    """What Spark has instead of a node; None: the node itself."""
    if isinstance(node, _COMPARED):
        return _quantified(node)
    make = _NODES.get(type(node))
    return None if make is None else make(node)


def _called(node: exp.Anonymous) -> exp.Expr | None:
    """A function by its name."""
    name = node.name.upper()
    if name in RENAMED:
        node.set("this", RENAMED[name])
    make = _CALLS.get(name)
    return None if make is None else make(node)


def _call(name: str, *args: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(args))


def _cast(tree: exp.Expr, to: str) -> exp.Cast:
    return exp.Cast(this=tree, to=exp.DataType.build(to, dialect="spark"))


# ---- texts and times


def _without_case(node: exp.RegexpILike) -> exp.Expr:
    """``a ~* b``: a regular expression that takes no notice of capitals."""
    pattern, flag = node.expression.copy(), "(?i)"
    if isinstance(pattern, exp.Literal) and pattern.is_string:
        made: exp.Expr = exp.Literal.string(flag + pattern.name)
    else:
        made = _call("CONCAT", exp.Literal.string(flag), pattern)
    return exp.RegexpLike(this=node.this.copy(), expression=made)


def _java_pattern(tree: exp.Expr) -> exp.Literal | None:
    """A pattern of PostgreSQL's for times as Java has it; None if it is another one."""
    if not isinstance(tree, exp.Literal) or not tree.is_string:
        return None
    if _TIME_PATTERN.search(tree.name) is None:
        return None
    rest, made = tree.name, ""
    while rest:
        found = next((each for each in _PATTERNS if rest.startswith(each[0])), None)
        if found is None and (rest[0] == "'" or _LETTERS.match(rest)):
            return None
        made += rest[0] if found is None else found[1]
        rest = rest[1 if found is None else len(found[0]) :]
    return exp.Literal.string(made)


def _formatted(node: exp.Anonymous) -> exp.Expr | None:
    """TO_CHAR of a time; that of a number is Spark's own."""
    pattern = _java_pattern(node.expressions[1]) if len(node.expressions) == 2 else None
    return None if pattern is None else _call("DATE_FORMAT", node.expressions[0], pattern)


def _parsed(node: exp.Anonymous) -> exp.Expr | None:
    """TO_TIMESTAMP and TO_DATE of a text with a pattern."""
    pattern = _java_pattern(node.expressions[1]) if len(node.expressions) == 2 else None
    if pattern is not None:
        node.set("expressions", [node.expressions[0], pattern])
    return None


def _part(node: exp.Anonymous) -> exp.Expr | None:
    """DATE_PART('epoch', ts)."""
    is_epoch = len(node.expressions) == 2 and node.expressions[0].name.upper() == "EPOCH"
    return _epoch(node.expressions[1]) if is_epoch else None


def _extracted(node: exp.Extract) -> exp.Expr | None:
    """EXTRACT(EPOCH FROM ts)."""
    return _epoch(node.expression) if node.name.upper() == "EPOCH" else None


def _epoch(time: exp.Expr) -> exp.Expr:
    """The seconds since 1970, or between two times, with their fraction."""
    inner = time.unnest()
    if isinstance(inner, exp.Sub) and not isinstance(inner.expression.unnest(), exp.Interval):
        micros: exp.Expr = exp.Paren(
            this=exp.Sub(this=_micros(inner.this), expression=_micros(inner.expression))
        )
    else:
        micros = _micros(time)
    return exp.Paren(
        this=exp.Div(
            this=_cast(micros, "DOUBLE"), expression=_cast(exp.Literal.number(1_000_000), "DOUBLE")
        )
    )


def _micros(time: exp.Expr) -> exp.Expr:
    return _call("UNIX_MICROS", _cast(time.copy(), "TIMESTAMP"))


def _split(node: exp.Anonymous) -> exp.Expr | None:
    """STRING_TO_ARRAY: the parts of a text between a delimiter; none of an empty text."""
    if len(node.expressions) not in {2, 3}:
        return None
    text, by, *null = node.expressions
    if not isinstance(by, exp.Literal) or not by.is_string or not by.name or "\\" in by.name:
        return None
    quoted = exp.Literal.string(rf"\Q{by.name}\E")
    parts: exp.Expr = _call("SPLIT", text.copy(), quoted)
    if null:
        each = exp.Lambda(
            this=_call("NULLIF", exp.column("_x"), null[0].copy()),
            expressions=[exp.to_identifier("_x")],
        )
        parts = _call("TRANSFORM", parts, each)
    nothing = _cast(_call("ARRAY"), "ARRAY<STRING>")
    is_empty = exp.EQ(this=text.copy(), expression=exp.Literal.string(""))
    return exp.If(this=is_empty, true=nothing, false=parts)


def _member(node: exp.Anonymous) -> exp.Expr | None:
    """JSONB_GET_TEXT and JSON_EXTRACT_PATH_TEXT: a member of an object, as text."""
    value, *names = node.expressions or [exp.Null()]
    steps = [each.name for each in names if isinstance(each, exp.Literal)]
    if not steps or len(steps) < len(names) or any("'" in each for each in steps):
        return None
    path = "$" + "".join(f"['{each}']" if not each.isdecimal() else f"[{each}]" for each in steps)
    return _call("GET_JSON_OBJECT", value, exp.Literal.string(path))


# ---- aggregates, and comparisons with arrays


def _percentile(node: exp.WithinGroup) -> exp.Expr | None:
    """APPROX_PERCENTILE(0.5 [, error]) WITHIN GROUP (ORDER BY x)."""
    call, order = node.this, node.expression.expressions
    name = call.name.upper() if isinstance(call, exp.Anonymous) else ""
    if name not in {"APPROX_PERCENTILE", "PERCENTILE_APPROX"} or len(order) != 1:
        return None
    if order[0].args.get("desc") or not 1 <= len(call.expressions) <= 2:
        return None
    share, *error = call.expressions
    accuracy = []
    if error:
        value = float(error[0].name) if isinstance(error[0], exp.Literal) else 0.0
        if not 0 < value < 1:
            return None
        accuracy = [exp.Literal.number(round(1 / value))]
    return _call("APPROX_PERCENTILE", order[0].this.copy(), share, *accuracy)


def _quantified(node: exp.Expr) -> exp.Expr | None:
    """A comparison with ANY or ALL of an array."""
    side = node.expression
    name, given = "", None
    if isinstance(side, exp.Any | exp.All):
        name, given = side.key.upper(), side.this.unnest()
    elif isinstance(side, exp.Anonymous) and len(side.expressions) == 1:
        name, given = side.name.upper(), side.expressions[0].unnest()
    if name not in {"ANY", "SOME", "ALL"} or given is None or isinstance(given, _NO_ARRAYS):
        return None
    elements = _elements(given)
    is_all, value = name == "ALL", node.this.copy()
    if elements is not None and isinstance(node, exp.NEQ if is_all else exp.EQ):
        if not elements:
            return exp.Boolean(this=is_all)
        found = exp.In(this=value, expressions=elements)
        return exp.Not(this=found) if is_all else found
    array = given.copy() if elements is None else _call("ARRAY", *elements)
    each = exp.Lambda(
        this=type(node)(this=value, expression=exp.column("_x")),
        expressions=[exp.to_identifier("_x")],
    )
    return _call("FORALL" if is_all else "EXISTS", array, each)


def _elements(given: exp.Expr) -> list[exp.Expr] | None:
    """The elements of an array that is written out, also as ``'{1,2}'``; None of any other."""
    if isinstance(given, exp.Array):
        return [each.copy() for each in given.expressions]
    if isinstance(given, exp.Anonymous) and given.name.upper() == "ARRAY":
        return [each.copy() for each in given.expressions]
    inner, of = given, None
    if isinstance(given, exp.Cast) and given.to.is_type(exp.DataType.Type.ARRAY):
        inner, of = given.this, given.to.expressions[0]
    if not isinstance(inner, exp.Literal) or not inner.is_string:
        return None
    if _ARRAY_TEXT.fullmatch(inner.name) is None:
        return None
    return [_element(found, of) for found in _ELEMENT.finditer(inner.name.strip()[1:-1])]


def _element(found: re.Match[str], of: exp.Expr | None) -> exp.Expr:
    quoted, bare = found[1], found[2]
    if quoted is None and bare.strip().upper() == "NULL":
        return exp.Null()
    text = bare.strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    made = exp.Literal.string(text)
    return made if of is None else exp.Cast(this=made, to=of.copy())


def _window(node: exp.Anonymous) -> exp.Expr | None:
    """A window whose lengths are numbers: milliseconds, as in LaminarDB."""
    name, args = node.name.upper(), node.expressions
    if name == "SLIDE" and len(args) == 3:  # which has the size first
        node.set("expressions", [args[0], args[2], args[1]])
    node.set("this", _WINDOWS.get(name, node.this))
    for each in node.expressions[1:]:
        if isinstance(each, exp.Literal) and each.is_int:
            length = exp.Literal.string(f"{each.name} milliseconds")
            length.meta.update(each.meta)
            each.replace(exp.Interval(this=length))
    return None


_WINDOWS: Final = {"TUMBLING": "TUMBLE", "HOPPING": "HOP", "SLIDE": "HOP"}
_WINDOW_NAMES: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION")

_CALLS: Final[Mapping[str, Callable[[exp.Anonymous], exp.Expr | None]]] = {
    **dict.fromkeys((*_WINDOW_NAMES, *_WINDOWS), _window),
    **{f"{name}_{side}": _window for name in _WINDOW_NAMES for side in ("START", "END")},
    "TO_CHAR": _formatted,
    "TO_TIMESTAMP": _parsed,
    "TO_DATE": _parsed,
    "DATE_PART": _part,
    "DATEPART": _part,
    "STRING_TO_ARRAY": _split,
    "JSONB_GET_TEXT": _member,
    "JSON_GET_TEXT": _member,
    "JSON_EXTRACT_PATH_TEXT": _member,
    "JSONB_EXTRACT_PATH_TEXT": _member,
}

_NODES: Final[Mapping[type[exp.Expr], Callable[..., exp.Expr | None]]] = {
    exp.Anonymous: _called,
    exp.Extract: _extracted,
    exp.RegexpILike: _without_case,
    exp.WithinGroup: _percentile,
}
