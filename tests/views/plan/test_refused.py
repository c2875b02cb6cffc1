"""Every query of ``refused_views.sql`` is refused as it says there: class, place, hint."""

from pathlib import Path

import pytest

from millstream import errors
from millstream.errors import ObjectNotFoundError, SqlError
from millstream.model import Schema
from millstream.sql import Input, parse
from millstream.views.plan.planner import plan_query

from .logs import LOGS, find

FIXTURE = Path(__file__).parent / "refused_views.sql"


def blocks():
    for block in FIXTURE.read_text().split("\n\n")[1:]:
        sql, caret, error, hint = block.rstrip("\n").split("\n")
        kind, message = error.removeprefix("-- ").split(": ", 1)
        hint = hint.removeprefix("-- hint: ")
        yield pytest.param(sql, len(caret), kind, message, hint, id=sql)


@pytest.mark.parametrize(("sql", "column", "kind", "message", "hint"), list(blocks()))
def test_refused(sql, column, kind, message, hint):
    [statement] = parse(sql)
    with pytest.raises(SqlError) as caught:
        plan_query(statement, find)
    error = caught.value
    assert (type(error), error.message, error.hint) == (getattr(errors, kind), message, hint)
    assert (error.sql, error.line, error.column) == (sql, 1, column)
    assert hint


def test_a_log_that_is_not_there():
    [statement] = parse("SELECT count(*) AS n FROM nothing")
    with pytest.raises(ObjectNotFoundError, match="there is no nothing"):
        plan_query(statement, find)


@pytest.mark.parametrize("name", ["_wm", "_log", "_0_a", "_g0", "_W", "_end"])
def test_names_that_the_feed_has_itself(name):
    log = Input("t", "source", Schema.of({"a": "INT", name: "INT"}))
    [statement] = parse("SELECT count(*) AS n FROM t")
    with pytest.raises(SqlError, match="a name that is reserved in views"):
        plan_query(statement, lambda _: log)


def test_places_in_a_text_of_several_statements():
    sql = (
        "SHOW VIEWS;\nCREATE STREAM s AS\n  SELECT symbol,\n    rand() FROM trades GROUP BY symbol"
    )
    [_, create] = parse(sql)
    with pytest.raises(SqlError) as caught:
        plan_query(create, find)
    assert (caught.value.line, caught.value.column, caught.value.sql) == (4, 5, sql)


@pytest.mark.parametrize("name", sorted(LOGS))
def test_every_log_can_be_read(name):
    [statement] = parse(f"SELECT * FROM {name.upper()}")
    plan = plan_query(statement, find)
    assert (plan.inputs, plan.spark_sql) == ((name,), f"SELECT * FROM `__log0` AS `{name.upper()}`")
