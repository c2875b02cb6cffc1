"""Which rows of a view are final, which window lets late rows go, and what rows are ordered by."""

import pytest

from millstream.sql import parse
from millstream.views.plan.planner import plan_query

from .logs import find

TUMBLE = "TUMBLE(ts, INTERVAL '1 hour')"
HOURLY = f"SELECT COUNT(*) AS n FROM trades GROUP BY {TUMBLE}"
CLOSE = "EMIT ON WINDOW CLOSE"
EXPLODED = "WITH x AS (SELECT * FROM trades) SELECT symbol FROM x LATERAL VIEW EXPLODE(tags) t"
SESSION = "SELECT COUNT(*) AS n FROM trades GROUP BY SESSION(ts, INTERVAL '1 hour')"
LARGEST = "(SELECT MAX(id) FROM accounts)"


def planned(sql):
    [statement] = parse(sql)
    return plan_query(statement, find)


@pytest.mark.parametrize(
    ("sql", "retracts"),
    [
        ("SELECT symbol FROM trades", False),
        ("SELECT symbol FROM trades UNION ALL SELECT symbol FROM orders", False),
        (
            "WITH x AS (SELECT * FROM trades) SELECT symbol FROM x LATERAL VIEW EXPLODE(tags) t",
            False,
        ),
        ("SELECT symbol FROM trades UNION SELECT symbol FROM orders", True),
        ("SELECT symbol FROM trades UNION ALL SELECT symbol FROM accounts", True),
        ("SELECT id FROM accounts", True),
        ("SELECT symbol FROM trades LIMIT 3", True),
        ("SELECT symbol, SUM(qty) OVER (ORDER BY ts) AS s FROM trades", True),
        ("SELECT s FROM (SELECT SUM(qty) OVER (ORDER BY ts) AS s FROM trades) x", True),
        ("SELECT symbol, (SELECT MAX(id) FROM accounts) AS m FROM trades", True),
        ("SELECT symbol FROM trades WHERE symbol IN (SELECT symbol FROM accounts)", True),
        ("SELECT t.symbol FROM trades t JOIN accounts a ON t.symbol = a.symbol", True),
        ("SELECT * FROM trades PIVOT (SUM(qty) FOR symbol IN ('a'))", True),
        ("SELECT DISTINCT symbol FROM trades", False),
        ("SELECT symbol FROM trades GROUP BY symbol", False),
        ("SELECT DISTINCT symbol, (SELECT MAX(id) FROM accounts) AS m FROM trades", True),
        ("SELECT DISTINCT symbol, SUM(qty) OVER (ORDER BY ts) AS s FROM trades", True),
        ("SELECT symbol FROM trades GROUP BY symbol HAVING COUNT(*) < 2", True),
        ("SELECT DISTINCT owner FROM accounts", True),
        ("SELECT COUNT(*) AS n FROM trades", True),
        (HOURLY, True),
        (f"{HOURLY} EMIT FINAL", False),
        (f"{HOURLY} {CLOSE}", False),
        (f"{SESSION} {CLOSE}", True),
        (f"{HOURLY.replace('AS n', f'+ {LARGEST} AS n')} {CLOSE}", True),
        (f"{HOURLY.replace('trades', 'changing')} {CLOSE}", True),
        (f"CREATE STREAM s AS {HOURLY} {CLOSE} ALLOW LATENESS INTERVAL '1 minute'", True),
    ],
)
def test_whether_rows_may_disappear(sql, retracts):
    assert planned(sql).retracts is retracts


@pytest.mark.parametrize(
    ("source", "is_timed"),
    [
        ("trades", True),
        ("(SELECT * FROM trades WHERE qty > 1) x", True),
        ("(SELECT ts, qty + 1 AS q FROM trades) x", True),
        ("(SELECT ts FROM trades UNION ALL SELECT at FROM orders) x", True),
        ("(SELECT symbol, ts FROM trades) x (s, ts)", True),
        ("(SELECT ts + INTERVAL '1 hour' AS ts FROM trades) x", False),
        ("(SELECT ts FROM trades UNION ALL SELECT at FROM plain) x", False),
        ("(SELECT at AS ts FROM plain) x", False),
        ("(SELECT DISTINCT ts FROM trades) x", False),
        ("(SELECT MAX(ts) OVER (ORDER BY qty) AS ts FROM trades) x", False),
        ("(SELECT ts, ROW_NUMBER() OVER (ORDER BY ts) AS n FROM trades) x", False),
        ("changing", False),
        ("trades JOIN accounts a ON trades.symbol = a.symbol", False),
    ],
)
def test_whether_late_rows_are_left_out_of_windows_that_do_not_wait(source, is_timed):
    plan = planned(f"SELECT COUNT(*) AS n FROM {source} GROUP BY {TUMBLE}")
    assert (plan.window is not None, plan.added) == (is_timed, ("_end",) if is_timed else ())


@pytest.mark.parametrize(
    ("source", "order"),
    [
        ("plain", "STRUCT(`plain`.`_row_lsn`)"),
        ("trades", "STRUCT(`trades`.`ts`, `trades`.`_row_lsn`)"),
        ("(SELECT * FROM plain) p", "STRUCT(`p`.`_row_lsn`)"),
        ("(SELECT v FROM plain) p (v)", "STRUCT(`p`.`_row_lsn`)"),
        (
            "(SELECT v FROM plain UNION ALL SELECT qty FROM trades) p",
            "STRUCT(`p`.`_row_lsn`)",
        ),
        ("changing", "STRUCT(`changing`.`ts`)"),
        ("plain JOIN people USING (k)", "STRUCT(`plain`.`_row_lsn`)"),
        ("plain LEFT JOIN (SELECT k AS j FROM people) q ON k = j", "STRUCT(`plain`.`_row_lsn`)"),
    ],
)
def test_what_rows_are_ordered_by(source, order):
    name = "qty" if source == "trades" else "v"
    made = planned(f"SELECT FIRST({name}) AS f FROM {source}").spark_sql
    assert made.startswith(f"SELECT MIN_BY({name}, {order}) AS f FROM ")


def test_columns_that_are_there_for_the_order_only_are_not_selected():
    made = planned("SELECT FIRST(v) AS f FROM (SELECT * FROM (SELECT p.* FROM plain p) x) y")
    assert "SELECT p.* EXCEPT (`_row_lsn`, `_wm`)" in made.spark_sql
    assert "SELECT * EXCEPT (`_row_lsn`, `_wm`)" in made.spark_sql


def test_one_reader_of_a_common_table_expression_is_left_as_it_is():
    made = planned(
        "WITH x AS (SELECT * FROM plain) SELECT y.f, x.* FROM (SELECT FIRST(v) AS f FROM x) y, x"
    )
    assert made.spark_sql.startswith("WITH x AS (SELECT * FROM `__log0` AS `plain`) SELECT")
    assert made.dated == (0,)
