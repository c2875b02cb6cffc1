"""CAST, TRY_CAST and assignment: from one type to another, where all forms and Spark agree."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millstream.errors import SchemaError
from millstream.formats.text import bytea
from millstream.model.types import BIGINT, BINARY, DOUBLE, NUMERIC, REAL, VARCHAR, parse_type
from millstream.sql.expressions import kernels, literals
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.nodes import Datum, Literal, Node, Op, Tree, Value
from millstream.sql.expressions.runtime import missing
from millstream.sql.expressions.to_python import one_value
from millstream.sql.expressions.type_rules import (
    as_decimal,
    integer_range,
    is_decimal,
    is_float,
    is_integer,
    is_number,
    unit_and_limit,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder

    Kernel = Callable[[Any], Any]


_LONG_DIGITS = 18  # a DECIMAL of more, Spark makes a DOUBLE before it makes an INTEGER of it


def cast_op(source: SqlType, target: SqlType) -> Op | None:
    """Return the CAST between two types; None when there is none that we can do exactly.

    >>> from millstream.model.types import BIGINT, DOUBLE
    >>> cast_op(BIGINT, DOUBLE).python
    'float({0})'
    >>> cast_op(DOUBLE, VARCHAR) is None
    True
    """
    for applies, make in _CASTS:
        if applies(source, target):
            made = make(source, target)
            return Op(
                f"CAST {source.sql} {target.sql}",
                f"CAST({{0}} AS {target.sql})",
                made.python,
                made.arrow,
                params=made.params,
                raises=made.raises,
                partial=made.partial,
            )
    return None


def try_cast_op(source: SqlType, target: SqlType) -> Op | None:
    """Return the TRY_CAST between two types, which gives NULL where CAST raises."""
    op = cast_op(source, target)
    if op is None or not op.raises:
        return op
    return Op(
        f"TRY_{op.name}",
        f"TRY_{op.sql}",
        "attempt({p0}, {0})",
        params=(one_value(op),),
        partial=True,
    )


def cast(node: Node, target: SqlType) -> Node | None:
    """Return a node as one of another type; None when there is no such CAST."""
    if node.type == target:
        return node
    if isinstance(node, Literal) and node.value is None:
        return Literal(None, target)
    op = cast_op(node.type, target)
    return None if op is None else call(op, node, of=target)


def _form(
    python: str,
    arrow: Kernel | None = None,
    *params: Value,
    raises: bool = False,
    partial: bool = False,
) -> Op:
    return Op("", "", python, arrow, params=params, raises=raises, partial=partial)


def _arrow_cast(target: SqlType, *, safe: bool = False) -> Kernel:
    return lambda value: pc.cast(value, target.arrow, safe=safe)


# --- Between numbers ------------------------------------------------------------------------------


def _is_widening(source: SqlType, target: SqlType) -> bool:
    if is_integer(source) and is_integer(target):
        return bool(source.arrow.bit_width <= target.arrow.bit_width)
    return source.kind == "REAL" and target.kind == "DOUBLE"


def _widen(_source: SqlType, target: SqlType) -> Op:
    return _form("{0}", _arrow_cast(target))


def _narrow(_source: SqlType, target: SqlType) -> Op:
    low, high = integer_range(target)
    python = f"{{0}} if {low} <= {{0}} <= {high} else too_large()"
    return _form(python, _arrow_cast(target, safe=True), raises=True)


def _integer_to_real(_source: SqlType, target: SqlType) -> Op:
    return _form("float({0})", _arrow_cast(target))


def _float_to_integer(_source: SqlType, target: SqlType) -> Op:
    _, high = integer_range(target)
    return _form(
        f"float_to_integer({{0}}, {high})",
        lambda value: kernels.float_to_integer(value, target.arrow),
        raises=True,
    )


def _decimal_to_integer(source: SqlType, target: SqlType) -> Op:
    _, high = integer_range(target)
    if target != BIGINT and source.arrow.precision > _LONG_DIGITS:
        return _form(f"float_to_integer(float({{0}}), {high})", raises=True)
    return _form(f"decimal_to_integer({{0}}, {high})", raises=True)


def _to_decimal(source: SqlType, target: SqlType) -> Op:
    exact, of = as_decimal(source).arrow, target.arrow
    always = of.scale >= exact.scale and of.precision - of.scale >= exact.precision - exact.scale
    value = "Decimal({0})" if is_integer(source) else "{0}"
    arrow = _arrow_cast(target, safe=True) if always else None
    return _form(
        f"decimal_fit({value}, {{p0}}, {{p1}})", arrow, *unit_and_limit(target), raises=not always
    )


def _float_to_decimal(_source: SqlType, target: SqlType) -> Op:
    python, params = "float_to_decimal({0}, {p0}, {p1})", unit_and_limit(target)
    return _form(python, None, *params, raises=True, partial=True)  # NaN becomes NULL


# --- Truth, text and time -------------------------------------------------------------------------


def _number_to_boolean(source: SqlType, _target: SqlType) -> Op:
    zero = pa.scalar(source.check(0), source.arrow)
    return _form("{0} != 0", lambda value: pc.not_equal(value, zero))


def _boolean_to_text(_source: SqlType, target: SqlType) -> Op:
    return _form("'true' if {0} else 'false'", _arrow_cast(target))


def _text_to_integer(_source: SqlType, target: SqlType) -> Op:
    _, high = integer_range(target)
    return _form(f"text_to_integer({{0}}, {high}, {target.kind!r})", raises=True)


def _text_to_decimal(_source: SqlType, target: SqlType) -> Op:
    return _form("text_to_decimal({0}, {p0}, {p1})", None, *unit_and_limit(target), raises=True)


def _between(source: str, target: str) -> Callable[[SqlType, SqlType], bool]:
    return lambda s, t: s.kind == source and t.kind == target


_CASTS: tuple[tuple[Callable[[SqlType, SqlType], bool], Callable[[SqlType, SqlType], Op]], ...] = (
    (_is_widening, _widen),
    (lambda s, t: is_integer(s) and is_integer(t), _narrow),
    (
        lambda s, t: is_integer(s) and t.kind == "DOUBLE",
        lambda _, t: _form("float({0})", _arrow_cast(t)),
    ),
    # Wider integers lose digits, or do not: Spark leaves this CAST out inside of another.
    (lambda s, t: s.kind in {"TINYINT", "SMALLINT"} and t.kind == "REAL", _integer_to_real),
    (_between("DOUBLE", "REAL"), lambda _, t: _form("single({0})", _arrow_cast(t))),
    (lambda s, t: is_float(s) and is_integer(t), _float_to_integer),
    (lambda s, t: is_decimal(s) and is_integer(t), _decimal_to_integer),
    # Arrow's own cast of a DECIMAL to a float is not always the nearest one.
    (lambda s, t: is_decimal(s) and t.kind == "DOUBLE", lambda _s, _t: _form("float({0})")),
    (lambda s, t: (is_integer(s) or is_decimal(s)) and is_decimal(t), _to_decimal),
    (lambda s, t: s.kind == "DOUBLE" and is_decimal(t), _float_to_decimal),
    (lambda s, t: is_number(s) and t.kind == "BOOLEAN", _number_to_boolean),
    (
        lambda s, t: s.kind == "BOOLEAN" and is_integer(t),
        lambda _, t: _form("int({0})", _arrow_cast(t)),
    ),
    (
        lambda s, t: s.kind == "BOOLEAN" and is_float(t),
        lambda _, t: _form("float({0})", _arrow_cast(t)),
    ),
    (_between("BOOLEAN", "VARCHAR"), _boolean_to_text),
    (
        lambda s, t: is_integer(s) and t == VARCHAR,
        lambda _, t: _form("str({0})", _arrow_cast(t)),
    ),
    (lambda s, t: is_decimal(s) and t == VARCHAR, lambda _s, _t: _form("format({0}, 'f')")),
    (_between("DATE", "VARCHAR"), lambda _, t: _form("{0}.isoformat()", _arrow_cast(t))),
    (_between("TIMESTAMP", "VARCHAR"), lambda _s, _t: _form("timestamp_to_text({0})")),
    (lambda s, t: s == VARCHAR and is_integer(t), _text_to_integer),
    (lambda s, t: s == VARCHAR and is_decimal(t), _text_to_decimal),
    (_between("VARCHAR", "DOUBLE"), lambda _s, _t: _form("text_to_double({0})", raises=True)),
    (_between("VARCHAR", "BOOLEAN"), lambda _s, _t: _form("text_to_boolean({0})", raises=True)),
    (_between("VARCHAR", "DATE"), lambda _s, _t: _form("text_to_date({0})", raises=True)),
    (_between("VARCHAR", "BINARY"), lambda _, t: _form("{0}.encode()", _arrow_cast(t))),
    (_between("DATE", "TIMESTAMP"), lambda _, t: _form("midnight({0})", _arrow_cast(t))),
    (_between("TIMESTAMP", "DATE"), lambda _, t: _form("{0}.date()", _arrow_cast(t))),
)


# --- Binding CAST ---------------------------------------------------------------------------------


def _bind_cast(binder: Binder, tree: Tree) -> Node:
    target = target_of(binder, tree)
    if any(tree.args.get(name) for name in ("format", "action", "default")):
        binder.refuse(tree, "CAST takes a type alone", "Write CAST(x AS TYPE).")
    node = binder.bind(tree.this)
    if node.type == target:
        if isinstance(node, Literal) and not literals.is_suffixed(tree):
            return replace(
                node, number=False
            )  # Spark looks at what is written, not at a CAST of it
        return node
    if isinstance(node, Literal):
        known = _cast_literal(binder, tree, node, target)
        if known is not None:
            return known
    op = (try_cast_op if isinstance(tree, exp.TryCast) else cast_op)(node.type, target)
    if op is None:
        binder.refuse(
            tree,
            f"CAST of {node.type.sql} to {target.sql} is not exact, so it is not supported",
            "Cast in two steps, or convert before the row comes in.",
        )
    return call(op, node, of=target)


def _cast_literal(binder: Binder, tree: Tree, node: Literal, target: SqlType) -> Node | None:
    """Return the CAST of a literal, where more is known than of a column; None: no more is."""
    if node.value is None:
        return Literal(None, target)
    if node.type.kind == "VARCHAR" and target.kind in {"DATE", "TIMESTAMP"}:
        # TRY_CAST of a text that is none is refused, too: Spark reads more forms than we do.
        return binder.coerce(tree, node, target)
    if literals.is_suffixed(tree):
        return _suffixed(binder, tree, node, target)
    if target == REAL and isinstance(node.value, int) and abs(node.value) <= 1 << 24:
        return Literal(float(node.value), REAL)
    return None


def _suffixed(binder: Binder, tree: Tree, node: Literal, target: SqlType) -> Node:
    """Return a number with its type behind it, such as ``100Y``."""
    made = cast(node, target)
    if not isinstance(made, Literal) or made.value in {math.inf, -math.inf}:
        hint = "Leave out the letters that follow it."
        binder.refuse(
            tree, f"the number {tree.this.name} is out of the range of {target.sql}", hint
        )
    return Literal(made.value, target, number=True)


def target_of(binder: Binder, tree: Tree) -> SqlType:
    """Return the type that a CAST is to."""
    text = tree.args["to"].sql(dialect="spark")
    try:
        return parse_type(text)
    except SchemaError as error:
        binder.mismatch(tree, error.message, error.hint)


# --- Assignment: INSERT and UPDATE ----------------------------------------------------------------


def assign(binder: Binder, tree: exp.Expr, node: Node, target: SqlType, where: str) -> Node:
    """Return a node as a value of a column, converted as Spark does when it stores in ANSI mode.

    Any number goes into a column of any other type of numbers: a DECIMAL is rounded, half up, to
    the scale, an integer gets what is before the point; what is out of range is an error. Only
    NUMERIC without a precision, which is DECIMAL(38, 18), takes no number that it would round. A
    DATE goes into a TIMESTAMP and back. Text becomes a time only where it is written out.

    Args:
        binder: for errors.
        tree: what the node was made of.
        node: the value.
        target: the type of the column.
        where: the column, and perhaps the row, for errors.
    """
    if node.type == target:
        return node
    if isinstance(node, Literal) and node.value is None:
        return Literal(None, target)
    if isinstance(node, Literal) and node.type == VARCHAR and target.kind in {"DATE", "TIMESTAMP"}:
        return binder.coerce(tree, node, target)
    if isinstance(node, Literal) and node.type == VARCHAR and target.kind == "BINARY":
        return _stored_bytes(binder, tree, node, where)
    op = _store_op(node.type, target)
    if op is None:
        known = f" {node.sql}" if isinstance(node, Literal) else ""
        message = f"{where}: expected {target.sql}, got {node.type.sql}{known}"
        binder.mismatch(tree, message, _assign_hint(target))
    made = call(op, node, of=target)
    if isinstance(node, Literal) and not isinstance(made, Literal):
        message = f"{where}: {node.sql} is out of the range of {target.sql}"
        binder.mismatch(tree, message, _assign_hint(target))
    return made


def _store_op(source: SqlType, target: SqlType) -> Op | None:
    if {source.kind, target.kind} == {"DATE", "TIMESTAMP"}:
        return cast_op(source, target)
    if not (is_number(source) and is_number(target)):
        return None
    if target == REAL and (is_integer(source) or is_decimal(source)):
        # Not a CAST of expressions: Spark leaves that out, or not, inside of another.
        return Op(f"STORE {source.sql} REAL", "CAST({0} AS REAL)", "nearest_single({0})")
    if target == NUMERIC and not is_integer(source):
        # NUMERIC without a precision rounds nothing that it stores; a written scale does.
        params = unit_and_limit(target)
        python = "decimal_exact({0}, {p0}, {p1})"
        name = f"STORE {source.sql} NUMERIC"
        return Op(name, "{0}", python, params=params, raises=True, partial=is_float(source))
    widened = DOUBLE if source == REAL and is_decimal(target) else source  # as Spark does
    return cast_op(widened, target)


def _stored_bytes(binder: Binder, tree: exp.Expr, node: Literal, where: str) -> Literal:
    r"""Return the bytes of a text such as ``\x00ff``, which PostgreSQL's clients send as BYTEA."""
    with suppress(ValueError):
        if node.value.startswith("\\x"):
            return Literal(bytea(node.value), BINARY)
    message = f"{where}: expected BINARY, got VARCHAR {node.sql}"
    return binder.mismatch(tree, message, _BYTES_HINT)


_BYTES_HINT = r"Write X'00FF', '\x00ff'::BYTEA, or CAST('text' AS BINARY) for the bytes of a text."


def _assign_hint(target: SqlType) -> str:
    if target.kind in {"DATE", "TIMESTAMP"}:
        return literals.time_hint(target)
    if target == VARCHAR:
        return "A text is written in single quotes: '...'; of a number, CAST(... AS VARCHAR)."
    return f"Write a value of {target.sql}, or CAST(... AS {target.sql})."


def short(node: Node, length: int) -> Node:
    """Return a text that raises where it has more characters than its column allows."""
    python = "short_text({0}, {p0})"
    op = Op(f"SHORT {length}", "{0}", python, params=(length,), raises=True)
    return call(op, node, of=node.type)


def present(binder: Binder, tree: exp.Expr, node: Node, name: str) -> Node:
    """Return a node that raises where it would be NULL, for a column that is NOT NULL."""
    if not node.nullable:
        return node
    if isinstance(node, Literal):
        binder.mismatch(tree, f"column {name} is NOT NULL", "Give it a value.")

    def arrow(value: Datum) -> Datum:
        if value.as_py() is None if isinstance(value, pa.Scalar) else value.null_count:
            raise missing(name)
        return value

    op = Op(
        f"PRESENT {name}",
        "{0}",
        "present({0}, {p0})",
        arrow,
        params=(name,),
        raises=True,
        strict=False,
    )
    return call(op, node, of=node.type)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    exp.Cast: _bind_cast,
    exp.TryCast: _bind_cast,
}
