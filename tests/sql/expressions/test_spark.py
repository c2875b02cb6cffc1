"""What Spark 4.3 answers, in ANSI mode and UTC: expressions, their types and their values.

``spark.tsv`` was written by Spark itself; "fails" stands for an error while evaluating. So was
``spark_stores.tsv``, of expressions that were stored in a column of a type. ``make_spark.py`` asks.
"""

import datetime
import pathlib

import pytest

from millstream.errors import ExpressionError, SqlTypeError
from millstream.model.types import parse_type
from millstream.sql.expressions import bind
from millstream.sql.expressions.bind import Binder
from millstream.sql.expressions.casts import assign
from millstream.sql.expressions.fold import evaluate
from millstream.sql.statements.parse import parse_expression

NAMES = {"REAL": "float", "INTEGER": "int", "VARCHAR": "string", "NULL": "void"}
LINES = pathlib.Path(__file__).with_name("spark.tsv").read_text().splitlines()
CASES = [line.split("\t") for line in LINES]
STORES = [
    line.split("\t")
    for line in pathlib.Path(__file__).with_name("spark_stores.tsv").read_text().splitlines()
]


def spark_name(of):
    return NAMES.get(of.kind, of.sql.lower().replace(", ", ",").replace("varchar", "string"))


@pytest.mark.parametrize(("sql", "type_name", "value"), CASES, ids=[case[0] for case in CASES])
def test_spark_says_the_same(sql, type_name, value):
    node = bind(parse_expression(sql), None, sql=sql)
    if type_name == "fails":
        with pytest.raises(ExpressionError):
            evaluate(node)
        return
    assert as_written(evaluate(node)) == value
    # Spark's intervals know their units, ours are all the same.
    assert spark_name(node.type) == ("interval" if "interval" in type_name else type_name)


def as_written(found):
    """A value as Spark shows it, whose times have no zone."""
    if isinstance(found, datetime.datetime):
        assert found.tzinfo is datetime.UTC
        found = found.replace(tzinfo=None)
    return repr(found)


@pytest.mark.parametrize(("sql", "of", "value"), STORES, ids=[" ".join(each) for each in STORES])
def test_spark_stores_the_same(sql, of, value):
    tree, target = parse_expression(sql), parse_type(of)
    binder = Binder(None, sql, None)

    def stored():
        return evaluate(assign(binder, tree, binder.bind(tree), target, "column x"))

    if value.startswith("fails"):
        with pytest.raises((ExpressionError, SqlTypeError)):
            stored()
    else:
        assert as_written(stored()) == value


def test_the_canonical_text_is_read_as_the_same():
    for sql, _, _ in CASES:
        node = bind(parse_expression(sql), None)
        again = bind(parse_expression(node.sql), None)
        assert (again.sql, again.type) == (node.sql, node.type)
