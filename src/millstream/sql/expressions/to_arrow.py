"""The form for Arrow batches: an expression as a chain of kernels, with no Python per row.

A form takes the batch and ``reach``: the rows that the expression is evaluated for, None for all.
Kernels run over all rows; operations that can raise see NULL in the rows that are not reached, for
which no kernel raises. What a form gives in those rows is of no account.

The few operations that no kernel does exactly run their Python form over the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql.expressions import kernels
from millstream.sql.expressions.nodes import (
    And,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    Datum,
    InList,
    IsNull,
    IsTrue,
    Literal,
    Node,
    Not,
    Or,
    conjuncts,
)
from millstream.sql.expressions.runtime import division_by_zero, overflow
from millstream.sql.expressions.to_python import compile_elements

if TYPE_CHECKING:
    from millstream.errors import ExpressionError


Reach = Any
"""The rows that an expression is evaluated for, as a mask; None for all."""

Form = Callable[[pa.RecordBatch, Any], Datum]


def compile_condition(node: Node) -> Callable[[pa.RecordBatch], pa.BooleanArray]:
    """Return the function of a batch to the mask of the rows that a WHERE keeps."""
    parts = [(compile_value(part), part.raises) for part in conjuncts(node)]

    def mask(batch: pa.RecordBatch) -> pa.BooleanArray:
        kept: Any = None
        for form, raises in parts:
            value = form(
                batch,
                _rows(batch, pc.fill_null(kept, False)) if kept is not None and raises else None,
            )
            kept = value if kept is None else pc.and_kleene(kept, value)
        return pc.fill_null(_rows(batch, kept), False)

    return lambda batch: mask(batch) if batch.num_rows else pa.array([], pa.bool_())


def compile_array(node: Node) -> Callable[[pa.RecordBatch], pa.Array]:
    """Return the function of a batch to the array of the node's values."""
    form = compile_value(node)

    def array(batch: pa.RecordBatch) -> pa.Array:
        if not batch.num_rows:
            return pa.array([], node.type.arrow)
        return _rows(batch, form(batch, None))

    return array


def compile_value(node: Node) -> Form:
    """Return the form of a node."""
    return _FORMS[type(node)](node)


# --- The nodes ------------------------------------------------------------------------------------


def _column(node: ColumnRef) -> Form:
    place = node.index
    return lambda batch, _reach: batch.column(place)


def _literal(node: Literal) -> Form:
    value = pa.scalar(node.value, node.type.arrow)
    return lambda _batch, _reach: value


def _call(node: Call) -> Form:
    op, forms = node.op, [compile_value(each) for each in node.args]
    kernel = op.arrow or _by_python(node)
    count = len(forms)
    order = list(reversed(range(count))) if op.backwards else list(range(count))
    # After which arguments it matters that they are NULL: an argument that follows may raise.
    stops = {at for i, at in enumerate(order) if any(node.args[k].raises for k in order[i + 1 :])}
    first = order[0]

    def run(batch: pa.RecordBatch, reach: Reach) -> Datum:
        values, here = [None] * count, reach
        for place in order:
            value = forms[place](batch, here)
            values[place] = value
            if op.strict and place in stops:
                here = _narrow(batch, here, pc.is_valid(value))
        if op.raises and reach is not None:
            values[first] = _masked(values[first], reach)
        return kernel(*values)

    def guarded(batch: pa.RecordBatch, reach: Reach) -> Datum:
        try:
            return run(batch, reach)
        except pa.ArrowInvalid as error:
            raise _failed(error) from error

    def plain(batch: pa.RecordBatch, _reach: Reach) -> Datum:
        return kernel(*[form(batch, None) for form in forms])

    if not node.raises:
        return plain
    return guarded if op.raises else run


def _and(node: And) -> Form:
    left, right, raises = compile_value(node.left), compile_value(node.right), node.right.raises

    def run(batch: pa.RecordBatch, reach: Reach) -> Datum:
        first = left(batch, reach)
        if raises:
            reach = _narrow(batch, reach, pc.fill_null(first, True))
        return pc.and_kleene(first, right(batch, reach))

    return run


def _or(node: Or) -> Form:
    left, right, raises = compile_value(node.left), compile_value(node.right), node.right.raises

    def run(batch: pa.RecordBatch, reach: Reach) -> Datum:
        first = left(batch, reach)
        if raises:
            reach = _narrow(batch, reach, pc.invert(pc.fill_null(first, False)))
        return pc.or_kleene(first, right(batch, reach))

    return run


def _not(node: Not) -> Form:
    arg = compile_value(node.arg)
    return lambda batch, reach: pc.invert(arg(batch, reach))


def _is_null(node: IsNull) -> Form:
    arg = compile_value(node.arg)
    return lambda batch, reach: pc.is_null(arg(batch, reach))


def _is_true(node: IsTrue) -> Form:
    arg, wanted = compile_value(node.arg), node.wanted

    def run(batch: pa.RecordBatch, reach: Reach) -> Datum:
        value = pc.fill_null(arg(batch, reach), not wanted)
        return value if wanted else pc.invert(value)

    return run


def _in_list(node: InList) -> Form:
    arg, values = compile_value(node.arg), pa.array(node.values, node.arg.type.arrow)
    null = pa.scalar(None, pa.bool_())

    def run(batch: pa.RecordBatch, reach: Reach) -> Datum:
        value = arg(batch, reach)
        found = pc.is_in(_rows(batch, value), value_set=values)
        if node.with_null:
            return pc.if_else(found, found, null)
        return pc.if_else(pc.is_valid(value), found, null) if node.arg.nullable else found

    return run


def _case(node: Case) -> Form:
    branches = [
        (compile_value(condition), compile_value(value)) for condition, value in node.branches
    ]
    default, raises = compile_value(node.default), node.raises

    def run(batch: pa.RecordBatch, reach: Reach) -> Datum:
        conditions, values = [], []
        for condition, value in branches:
            chosen = pc.fill_null(condition(batch, reach), False)
            conditions.append(_rows(batch, chosen))
            values.append(value(batch, _narrow(batch, reach, chosen) if raises else None))
            if raises:
                reach = _narrow(batch, reach, pc.invert(chosen))
        values.append(default(batch, reach if raises else None))
        return _if_else(conditions, values)

    return run


def _if_else(conditions: list[Any], values: list[Any]) -> Datum:
    # Nested if_else does every type, case_when only some.
    result = values[-1]
    for condition, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
        result = pc.if_else(condition, value, result)
    return result


def _coalesce(node: Coalesce) -> Form:
    forms, raises = [compile_value(each) for each in node.args], node.raises

    def run(batch: pa.RecordBatch, reach: Reach) -> Datum:
        values = []
        for form in forms:
            value = form(batch, reach if raises else None)
            values.append(value)
            if raises:
                reach = _narrow(batch, reach, pc.is_null(value))
        return pc.coalesce(*values)

    return run


_FORMS: dict[type, Callable[[Any], Form]] = {
    ColumnRef: _column,
    Literal: _literal,
    Call: _call,
    And: _and,
    Or: _or,
    Not: _not,
    IsNull: _is_null,
    IsTrue: _is_true,
    InList: _in_list,
    Case: _case,
    Coalesce: _coalesce,
}


# --- Parts ----------------------------------------------------------------------------------------


def _rows(batch: pa.RecordBatch, value: Datum) -> pa.Array:
    """Return a datum as an array with one value for each row of the batch."""
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, batch.num_rows)
    return value


def _narrow(batch: pa.RecordBatch, reach: Reach, more: Datum) -> pa.BooleanArray:
    """Return the rows of ``reach`` for which ``more``, which is never NULL, holds, too."""
    more = _rows(batch, more)
    return more if reach is None else pc.and_(reach, more)


def _masked(value: Datum, reach: pa.BooleanArray) -> pa.Array:
    return pc.if_else(reach, value, pa.scalar(None, value.type))


def _by_python(node: Call) -> Callable[..., Datum]:
    """Return a kernel that runs an operation's Python form over the values."""
    names = [f"c{place}" for place in range(len(node.args))]
    refs = tuple(
        ColumnRef(place, name, each.type, nullable=True)
        for place, (name, each) in enumerate(zip(names, node.args, strict=True))
    )
    elements = compile_elements(Call(node.op, refs, node.type), names)
    types, arrow = [each.type for each in node.args], node.type.arrow

    def kernel(*values: Datum) -> Datum:
        length = max((len(each) for each in values if not isinstance(each, pa.Scalar)), default=-1)
        arrays = [
            pa.repeat(each, max(length, 1)) if isinstance(each, pa.Scalar) else each
            for each in values
        ]
        result = pa.array(elements(*map(kernels.python_values, types, arrays)), arrow)
        return result if length >= 0 else result[0]

    return kernel


def _failed(error: pa.ArrowInvalid) -> ExpressionError:
    """Return our error for one of Arrow's kernels, which differ in their text only."""
    return division_by_zero() if "divide by zero" in str(error) else overflow()
