"""What DuckDB does exactly as Spark does: the text of an operation in its SQL.

Each of them is held against our own compiled form, and that against Spark, in the tests. An
operation that is not here runs as a kernel, which is always right and a little slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.model.types import REAL
from millstream.sql.adhoc.physical import duck_type, name_text
from millstream.sql.expressions.type_rules import INTEGERS, is_decimal, is_float, is_integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.expressions.nodes import Call

_COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}  # NaN equals itself and is the greatest, there too
_FIELDS = {
    **{name: f"{name.lower()}({{0}})" for name in ("YEAR", "QUARTER", "MONTH", "DAY")},
    **{name: f"{name.lower()}({{0}})" for name in ("HOUR", "MINUTE", "SECOND", "DAYOFYEAR")},
    "WEEKOFYEAR": "weekofyear({0})",
    "DAYOFMONTH": "day({0})",
    "DAYOFWEEK": "dayofweek({0}) + 1",
    "WEEKDAY": "isodow({0}) - 1",
}
_SEARCHES = {
    "STARTSWITH": "starts_with({0}, {1})",
    "ENDSWITH": "ends_with({0}, {1})",
    "CONTAINS": "contains({0}, {1})",
}


def native(node: Call) -> str | None:
    """Return an operation with ``{0}``, ``{1}`` for its arguments; None when it needs a kernel."""
    word = node.op.name.split(" ", 1)[0]
    write = _WRITERS.get(word)
    return None if write is None else write(node, word)


def _compare(_node: Call, word: str) -> str:
    return f"{{0}} {word} {{1}}"


def _calculate(node: Call, word: str) -> str | None:
    if len(node.args) != 2 or node.args[0].type.kind in {"DATE", "TIMESTAMP", "INTERVAL"}:
        return None
    if is_decimal(node.type):
        return _decimal(node, word)
    return f"{{0}} {word} {{1}}"


def _decimal(node: Call, word: str) -> str | None:
    if node.op.raises:
        return None  # it rounds, or overflows at another place than DuckDB does
    scales = [each.type.arrow.scale for each in node.args]
    if word != "*":
        scales = [node.type.arrow.scale] * 2
    # In their own widths DuckDB multiplies in 64 bits, which may not do.
    left, right = (f"CAST({{{place}}} AS DECIMAL(38, {each}))" for place, each in enumerate(scales))
    return f"CAST({left} {word} {right} AS {duck_type(node.type)})"


def _sign(node: Call, word: str) -> str | None:
    if not (is_integer(node.type) or is_float(node.type)):
        return None
    # DuckDB widens the least integer, which then does not fit the CAST.
    return f"CAST(-{{0}} AS {duck_type(node.type)})" if word == "NEG" else None


def _cast(node: Call, _word: str) -> str | None:
    source, target = node.args[0].type, node.type
    text = f"CAST({{0}} AS {duck_type(target)})"
    if is_integer(source):
        wider = is_integer(target) and INTEGERS.index(source) <= INTEGERS.index(target)
        return text if wider or target.kind in {"DOUBLE", "VARCHAR"} else None
    pair = (source.kind, target.kind)
    exact = {("REAL", "DOUBLE"), ("DATE", "TIMESTAMP"), ("TIMESTAMP", "DATE")}
    return text if pair in exact else None


def _field(_node: Call, word: str) -> str:
    return f"CAST({_FIELDS[word]} AS INTEGER)"


def _search(_node: Call, word: str) -> str:
    return _SEARCHES[word]


def _struct_field(node: Call, _word: str) -> str:
    name = str(node.op.params[0]).replace("{", "{{").replace("}", "}}")
    return f"({{0}}).{name_text(name)}"


def _extreme(node: Call, word: str) -> str:
    form = "CAST({{{}}} AS DOUBLE)" if node.type == REAL else "{{{}}}"
    text = f"{word.lower()}({', '.join(form.format(place) for place in range(len(node.args)))})"
    # Of REALs, DuckDB makes keys to sort by and reads them again: -0.0 comes back as 0.0.
    return f"CAST({text} AS {duck_type(REAL)})" if node.type == REAL else text


def _concat(node: Call, _word: str) -> str:
    return " || ".join(f"{{{place}}}" for place in range(len(node.args)))


_WRITERS: dict[str, Callable[[Call, str], str | None]] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    "<=>": lambda _node, _word: "{0} IS NOT DISTINCT FROM {1}",
    **dict.fromkeys(("+", "-", "*"), _calculate),
    "NEG": _sign,
    "CAST": _cast,
    **dict.fromkeys(_FIELDS, _field),
    **dict.fromkeys(_SEARCHES, _search),
    "FIELD": _struct_field,
    "GREATEST": _extreme,
    "LEAST": _extreme,
    "CONCAT": _concat,
    "LENGTH": lambda node, _word: (
        "CAST(length({0}) AS INTEGER)" if node.args[0].type.kind == "VARCHAR" else None
    ),
    "ISNAN": lambda _node, _word: "coalesce(isnan({0}), FALSE)",
}
