"""The two forms of an expression are one: same rows, same values, same failures."""

import importlib.util
import pathlib
from random import Random

import pytest
from hypothesis import HealthCheck, given, reject, settings

from millstream.errors import ExpressionError, SqlTypeError, SqlUnsupportedError
from millstream.model import Column, Schema
from millstream.sql.expressions import Predicate, Projection, bind
from millstream.sql.statements.parse import parse_expression

spec = importlib.util.spec_from_file_location(
    "expr_strategies", pathlib.Path(__file__).with_name("strategies.py")
)
draw = importlib.util.module_from_spec(spec)
spec.loader.exec_module(draw)

quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def bound(text):
    try:
        return bind(parse_expression(text), draw.SCHEMA, sql=text)
    except (SqlTypeError, SqlUnsupportedError):
        reject()  # a drawn CASE may mix what does not go together


def outcome(function, *args):
    """What a function gives, with NaN equal to itself and -0.0 not to 0.0; or that it fails."""
    try:
        return repr(function(*args))
    except ExpressionError as error:
        assert error.hint
        return "fails"


def one_of(node):
    return Schema((Column("x", node.type, nullable=node.nullable),))


def check_projection(node, rows):
    schema = one_of(node)
    projection = Projection([node], schema)

    def by_arrow(rows):
        batch = projection.arrow(draw.SCHEMA.rows_to_arrow(rows))
        assert batch.schema == schema.arrow
        batch.validate(full=True)
        return schema.arrow_to_rows(batch)

    found = outcome(projection.rows, rows)
    assert found == outcome(by_arrow, rows)
    if found != "fails":
        assert found == outcome(lambda: [projection.row(row) for row in rows])
        return rows
    alone = [outcome(projection.rows, [row]) for row in rows]
    assert alone == [outcome(by_arrow, [row]) for row in rows]
    return [row for row, each in zip(rows, alone, strict=True) if each != "fails"]


def check_predicate(node, rows):
    predicate = Predicate(node)

    def by_arrow(rows):
        mask = predicate.mask(draw.SCHEMA.rows_to_arrow(rows))
        assert mask.null_count == 0
        assert len(mask) == len(rows)
        return [place for place, kept in enumerate(mask.to_pylist()) if kept]

    found = outcome(predicate.places, rows)
    assert found == outcome(by_arrow, rows)
    if found == "fails":
        alone = [outcome(predicate.places, [row]) for row in rows]
        assert alone == [outcome(by_arrow, [row]) for row in rows]
    else:
        assert found == repr([place for place, row in enumerate(rows) if predicate.test(row)])


@quick
@given(draw.anything, draw.rows)
def test_values_agree(text, rows):
    check_projection(bound(text), rows)


@quick
@given(draw.conditions, draw.rows)
def test_conditions_agree(text, rows):
    check_predicate(bound(text), rows)


@quick
@given(draw.conditions, draw.conditions, draw.rows)
def test_a_conjunction_agrees(left, right, rows):
    check_predicate(bound(f"{left} AND {right}"), rows)


@quick
@given(draw.anything)
def test_the_canonical_text_is_read_as_the_same(text):
    node = bound(text)
    again = bind(parse_expression(node.sql), draw.SCHEMA)
    assert (again.sql, again.type) == (node.sql, node.type)


EVERY = [(kind, form) for kind, forms in draw.FORMS.items() for form in forms]


@pytest.mark.parametrize(("kind", "form"), EVERY, ids=[form for _, form in EVERY])
def test_every_form_agrees(kind, form):
    """Each operation on its own, on plain columns, so that none is left to chance."""
    random = Random(form)
    rows = [draw.a_row(random) for _ in range(24)]
    tried = 0
    for _ in range(4):
        text = form
        for name, leaves in draw.LEAVES.items():
            while "{" + name + "}" in text:
                text = text.replace("{" + name + "}", random.choice(leaves), 1)
        try:
            node = bind(parse_expression(text), draw.SCHEMA, sql=text)
        except (SqlTypeError, SqlUnsupportedError):
            continue
        tried += 1
        good = check_projection(node, rows)
        check_projection(node, good)
        if node.type.kind == "BOOLEAN":
            check_predicate(node, rows)
    assert tried
