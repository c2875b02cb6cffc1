"""The two forms of an expression are one: same rows, same values, same failures."""

import importlib.util
import pathlib
from random import Random

import pytest
import sqlglot
from hypothesis import HealthCheck, given, reject, settings

from millstream.errors import ExpressionError, SqlTypeError, SqlUnsupportedError
from millstream.model import Column, Schema
from millstream.sql.dialect import Millstream
from millstream.sql.expr import Predicate, Projection, bind

spec = importlib.util.spec_from_file_location(
    "expr_strategies", pathlib.Path(__file__).with_name("strategies.py")
)
draw = importlib.util.module_from_spec(spec)
spec.loader.exec_module(draw)

quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def bound(text):
    try:
        return bind(sqlglot.parse_one(text, dialect=Millstream), draw.SCHEMA, sql=text)
    except (SqlTypeError, SqlUnsupportedError):
        reject()  # a drawn CASE may mix what does not go together


def outcome(function, *args):
    """What a function gives, in a form in which NaN is NaN and -0.0 is not 0.0; or that it fails."""
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

    assert outcome(projection.rows, rows) == outcome(by_arrow, rows)
    for row in rows:
        assert outcome(projection.rows, [row]) == outcome(by_arrow, [row])
        assert outcome(lambda: [projection.row(row)]) == outcome(by_arrow, [row])
    return outcome(projection.rows, rows)


def check_predicate(node, rows):
    predicate = Predicate(node)

    def by_arrow(rows):
        mask = predicate.mask(draw.SCHEMA.rows_to_arrow(rows))
        assert mask.null_count == 0
        assert len(mask) == len(rows)
        return [place for place, kept in enumerate(mask.to_pylist()) if kept]

    assert outcome(predicate.places, rows) == outcome(by_arrow, rows)
    for row in rows:
        single = outcome(predicate.places, [row])
        assert single == outcome(by_arrow, [row])
        assert single == outcome(lambda: [0] if predicate.test(row) else [])


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


EVERY = [(kind, form) for kind, forms in draw.FORMS.items() for form in forms]


@pytest.mark.parametrize(("kind", "form"), EVERY, ids=[form for _, form in EVERY])
def test_every_form_agrees(kind, form):
    """Each operation on its own, on plain columns, so that none is left to chance."""
    random = Random(form)
    rows = [draw.a_row(random) for _ in range(40)]
    tried = 0
    for _ in range(6):
        text = form
        for name, leaves in draw.LEAVES.items():
            while "{" + name + "}" in text:
                text = text.replace("{" + name + "}", random.choice(leaves), 1)
        try:
            node = bind(sqlglot.parse_one(text, dialect=Millstream), draw.SCHEMA, sql=text)
        except (SqlTypeError, SqlUnsupportedError):
            continue
        tried += 1
        if check_projection(node, rows) == "fails":
            good = [row for row in rows if outcome(Projection([node], one_of(node)).row, row) != "fails"]
            check_projection(node, good)
        if node.type.kind == "BOOLEAN":
            check_predicate(node, rows)
    assert tried
