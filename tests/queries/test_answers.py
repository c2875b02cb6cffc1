"""What Spark 4.3 answers, in ANSI mode and UTC: queries, their types and their rows.

``cases/answers.jsonl`` was written by Spark itself, see ``cases/make_answers.py``.
"""

import importlib.util
import json
import math
import pathlib

import pyarrow as pa
import pytest

from millstream.errors import ExpressionError
from millstream.queries.duckdb import AdhocRunner
from millstream.sql import Input, as_query, parse
from millstream.sql.adhoc import plan_adhoc

HERE = pathlib.Path(__file__).parent / "cases"
spec = importlib.util.spec_from_file_location("adhoc_rows", HERE / "rows.py")
given = importlib.util.module_from_spec(spec)
spec.loader.exec_module(given)

CASES = [json.loads(line) for line in (HERE / "answers.jsonl").read_text().splitlines()]
INPUTS = {
    "trades": Input("trades", "source", given.TRADES, event_time="ts"),
    "nothing": Input("nothing", "source", given.TRADES, event_time="ts"),
    "symbols": Input("symbols", "table", given.SYMBOLS, retracts=True),
    "venues": Input("venues", "view", given.VENUES, retracts=True),
}


@pytest.fixture(scope="module")
def runner():
    made = AdhocRunner()
    yield made
    made.close()


def relation(name):
    rows = given.ROWS[name]
    table = pa.Table.from_batches([given.SCHEMAS[name].rows_to_arrow(rows)])
    return table.append_column("_lsn", pa.array(range(len(rows)), pa.int64()))


def planned(sql):
    (statement,) = parse(sql)
    return plan_adhoc(as_query(statement), INPUTS.__getitem__)


def spark_name(of):
    if of.kind == "ARRAY":
        return f"array<{spark_name(of.children[0])}>"
    if of.kind == "STRUCT":
        fields = zip(of.names, of.children, strict=True)
        return f"struct<{','.join(f'{name}:{spark_name(each)}' for name, each in fields)}>"
    names = {"REAL": "float", "INTEGER": "int", "VARCHAR": "string"}
    return names.get(of.kind, of.sql.lower().replace(", ", ","))


def same(one, two, of):
    """Whether two values are equal; sums of floats may be added up in another order."""
    if one is None or two is None or of != "double":
        return one == two
    left, right = float(one), float(two)
    return one == two or math.isclose(left, right, rel_tol=1e-13)


@pytest.mark.parametrize(("sql", "types", "rows"), CASES, ids=[case[0] for case in CASES])
def test_spark_says_the_same(runner, sql, types, rows):
    plan = planned(sql)
    relations = {name: relation(name) for name in plan.tables}
    if types == "fails":
        with pytest.raises(ExpressionError) as caught:
            runner.run(plan, relations)
        assert caught.value.hint
        return
    made = runner.run(plan, relations)
    made.validate(full=True)
    assert made.schema == plan.schema.arrow
    assert [spark_name(column.type) for column in plan.schema.columns] == types
    found = [
        given.plain(row) for part in made.to_batches() for row in plan.schema.arrow_to_rows(part)
    ]
    if not given.is_ordered(sql):
        found = sorted(found, key=repr)
    assert len(found) == len(rows)
    for mine, sparks in zip(found, rows, strict=True):
        assert all(map(same, mine, sparks, types)), (mine, sparks)


def test_spark_has_run_every_query():
    lines = (HERE / "queries.sql").read_text().splitlines()
    asked = [line for line in lines if line and not line.startswith("--")]
    assert [sql for sql, _, _ in CASES] == asked
