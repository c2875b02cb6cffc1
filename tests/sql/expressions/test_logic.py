"""Three-valued logic against an evaluator that has nothing in common with ours."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.model import Column, Schema
from millstream.sql.expressions import Predicate, Projection, bind
from millstream.sql.statements.parse import parse_expression

SCHEMA = Schema.of(a="BOOLEAN", b="BOOLEAN", c="BOOLEAN NOT NULL", x="INT", y="INT")

# Truth as numbers: FALSE is 0, NULL a half, TRUE 1; then AND is the least and OR the greatest.
HALF = 0.5


def number(value):
    return HALF if value is None else float(value)


def compared(left, right, test):
    return HALF if left is None or right is None else float(test(left, right))


def among(value, values):
    each = [compared(value, one, lambda a, b: a == b) for one in values]
    return max(each)


LEAVES = {
    "a": lambda row: number(row[0]),
    "b": lambda row: number(row[1]),
    "c": lambda row: number(row[2]),
    "NULL": lambda _: HALF,
    "TRUE": lambda _: 1.0,
    "x = y": lambda row: compared(row[3], row[4], lambda a, b: a == b),
    "x < 2": lambda row: compared(row[3], 2, lambda a, b: a < b),
    "x <> y": lambda row: compared(row[3], row[4], lambda a, b: a != b),
    "x <=> y": lambda row: float(row[3] == row[4]),
    "x IN (1, 2)": lambda row: among(row[3], [1, 2]),
    "x IN (1, NULL)": lambda row: among(row[3], [1, None]),
    "y IN (x, 1)": lambda row: among(row[4], [row[3], 1]),
    "x BETWEEN 1 AND y": lambda row: min(
        compared(row[3], 1, lambda a, b: a >= b), compared(row[3], row[4], lambda a, b: a <= b)
    ),
}


def extend(inner):
    one = inner
    return st.one_of(
        st.tuples(one, one).map(
            lambda p: (f"({p[0][0]} AND {p[1][0]})", lambda row: min(p[0][1](row), p[1][1](row)))
        ),
        st.tuples(one, one).map(
            lambda p: (f"({p[0][0]} OR {p[1][0]})", lambda row: max(p[0][1](row), p[1][1](row)))
        ),
        one.map(lambda p: (f"(NOT {p[0]})", lambda row: 1 - p[1](row))),
        one.map(lambda p: (f"({p[0]} IS NULL)", lambda row: float(p[1](row) == HALF))),
        one.map(lambda p: (f"({p[0]} IS TRUE)", lambda row: float(p[1](row) == 1))),
        one.map(lambda p: (f"({p[0]} IS NOT FALSE)", lambda row: float(p[1](row) != 0))),
        st.tuples(one, one).map(
            lambda p: (
                f"(CASE WHEN {p[0][0]} THEN {p[1][0]} END)",
                lambda row: p[1][1](row) if p[0][1](row) == 1 else HALF,
            )
        ),
    )


leaves = st.sampled_from([(f"({text})", evaluate) for text, evaluate in LEAVES.items()])
trees = st.recursive(leaves, extend, max_leaves=6)
truth = st.sampled_from([None, False, True])
small = st.sampled_from([None, 0, 1, 2, 3])
rows = st.lists(st.tuples(truth, truth, st.booleans(), small, small), min_size=1, max_size=8)


@given(trees, rows)
def test_logic_is_three_valued(tree, rows):
    text, evaluate = tree
    wanted = [evaluate(row) for row in rows]
    node = bind(parse_expression(f"{text} IS NOT NULL AND {text}"), SCHEMA)
    plain = bind(parse_expression(f"COALESCE({text}, NULL, {text})"), SCHEMA)
    batch = SCHEMA.rows_to_arrow(rows)
    predicate = Predicate(node)
    kept = [place for place, value in enumerate(wanted) if value == 1]
    assert predicate.places(rows) == kept
    assert [place for place, each in enumerate(predicate.mask(batch).to_pylist()) if each] == kept
    schema = Schema((Column("v", plain.type, nullable=plain.nullable),))
    values = [(None if value == HALF else bool(value),) for value in wanted]
    projection = Projection([plain], schema)
    assert projection.rows(rows) == values
    assert schema.arrow_to_rows(projection.arrow(batch)) == values
