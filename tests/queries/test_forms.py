"""DuckDB's form of an expression is that of Arrow: same values, same failures."""

import importlib.util
import pathlib
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, reject, settings

from millstream.errors import ExpressionError, SqlTypeError, SqlUnsupportedError
from millstream.model import Column, Schema
from millstream.queries.duckdb import AdhocRunner
from millstream.sql import Input, as_query, parse
from millstream.sql.adhoc import plan_adhoc
from millstream.sql.expressions import Predicate, Projection, bind
from millstream.sql.statements.parse import parse_expression

spec = importlib.util.spec_from_file_location(
    "expr_strategies",
    pathlib.Path(__file__).parents[1] / "sql" / "expressions" / "strategies.py",
)
draw = importlib.util.module_from_spec(spec)
spec.loader.exec_module(draw)

quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
INPUT = Input("t", "source", draw.SCHEMA)


@pytest.fixture(scope="module")
def runner():
    made = AdhocRunner()
    yield made
    made.close()


def outcome(function, *args):
    """What a function gives, with NaN equal to itself and -0.0 not to 0.0; or that it fails."""
    try:
        return repr(function(*args))
    except ExpressionError as error:
        assert error.hint
        return "fails"


def bound(text):
    try:
        return bind(parse_expression(text), draw.SCHEMA, sql=text)
    except (SqlTypeError, SqlUnsupportedError):
        reject()


def planned(runner, sql):
    (statement,) = parse(sql)
    plan = plan_adhoc(as_query(statement), lambda _name: INPUT)

    def run(rows):
        batch = draw.SCHEMA.rows_to_arrow(rows)
        made = runner.run(plan, {"t": pa.Table.from_batches([batch])})
        made.validate(full=True)
        return [row for part in made.to_batches() for row in plan.schema.arrow_to_rows(part)]

    return plan, run


def check(runner, text, node, rows):
    schema = Schema((Column("x", node.type, nullable=node.nullable),))
    projection = Projection([node], schema)
    plan, run = planned(runner, f"SELECT {text} AS x FROM t")
    assert plan.schema == schema
    found = outcome(projection.rows, rows)
    assert outcome(run, rows) == found
    if found != "fails":
        return rows
    alone = [outcome(projection.rows, [row]) for row in rows]
    assert [outcome(run, [row]) for row in rows] == alone
    return [row for row, each in zip(rows, alone, strict=True) if each != "fails"]


def check_condition(runner, text, node, rows):
    predicate = Predicate(node)
    _, run = planned(runner, f"SELECT i FROM t WHERE {text}")
    kept = outcome(lambda: [(rows[place][2],) for place in predicate.places(rows)])
    # DuckDB may leave out what would fail, as Spark may; constants it works out before any row.
    if kept != "fails" and outcome(run, []) != "fails":
        assert outcome(run, rows) == kept


@quick
@given(draw.anything, draw.rows)
def test_values_agree(runner, text, rows):
    check(runner, text, bound(text), rows)


@quick
@given(draw.conditions, draw.conditions, draw.rows)
def test_conditions_agree(runner, left, right, rows):
    check_condition(runner, f"{left} AND {right}", bound(f"{left} AND {right}"), rows)


EVERY = [(kind, form) for kind, forms in draw.FORMS.items() for form in forms]


@pytest.mark.parametrize(("kind", "form"), EVERY, ids=[form for _, form in EVERY])
def test_every_form_agrees(runner, kind, form):
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
        good = check(runner, text, node, rows)
        check(runner, text, node, good)
    assert tried
