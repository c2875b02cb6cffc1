"""CAST: from one type to another, where both forms and Spark agree on every value."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.types import BIGINT, VARCHAR
from millstream.sql.expressions import kernels
from millstream.sql.expressions.kinds import (
    as_decimal,
    integer_range,
    is_decimal,
    is_float,
    is_integer,
    is_number,
)
from millstream.sql.expressions.nodes import Op, Value
from millstream.sql.expressions.to_python import one_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType

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


def unit_and_limit(of: SqlType) -> tuple[Decimal, Decimal]:
    """Return one unit of a DECIMAL's last place, and the power of ten that it cannot hold."""
    precision, scale = of.arrow.precision, of.arrow.scale
    return Decimal(1).scaleb(-scale), Decimal(1).scaleb(precision - scale)


def _form(python: str, arrow: Kernel | None = None, *params: Value, raises: bool = False) -> Op:
    return Op("", "", python, arrow, params=params, raises=raises)


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
    return _form("float_to_decimal({0}, {p0}, {p1})", None, *unit_and_limit(target), raises=True)


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
    (_between("VARCHAR", "BINARY"), lambda _, t: _form("{0}.encode()", _arrow_cast(t))),
    (_between("DATE", "TIMESTAMP"), lambda _, t: _form("midnight({0})", _arrow_cast(t))),
    (_between("TIMESTAMP", "DATE"), lambda _, t: _form("{0}.date()", _arrow_cast(t))),
)
