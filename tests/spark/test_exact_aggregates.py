"""Every aggregate and every linear form over rows that only come: in both gears, as plain Spark."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from millstream.pipeline import gears

from .exact import Twin

TRADES = (
    "symbol VARCHAR, price DOUBLE, qty BIGINT, fee DECIMAL(12, 2), small SMALLINT, weight REAL, "
    "day DATE, tags ARRAY<VARCHAR>, ts TIMESTAMP"
)
ORDERS = "symbol VARCHAR, amount DECIMAL(10, 2), at TIMESTAMP"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def trades(count, seed):
    """Rows with all that is odd. Doubles have few bits, so that sums are exact in any order."""
    dice = random.Random(seed)

    def some(value):
        return None if dice.random() < 0.15 else value

    return [
        (
            some(dice.choice(["a", "b", "c", "", "Ω", "a "])),
            some(dice.choice([0.25, -1.5, 8.0, -0.0, 0.0, 1e6, 3.75])),
            some(dice.randint(-5, 20)),
            some(Decimal(dice.randint(-(10**6), 10**6)).scaleb(-2)),
            some(dice.randint(-3, 3)),
            some(dice.choice([0.5, 1.25, -2.0])),
            some(date(2026, 1, 1) + timedelta(days=dice.randint(-40, 40))),
            some([some(dice.choice("xyz")) for _ in range(dice.randint(0, 3))]),
            some(NOON + timedelta(seconds=dice.randint(-90, 90), microseconds=dice.randint(0, 3))),
        )
        for _ in range(count)
    ]


def orders(count, seed):
    dice = random.Random(seed)
    return [
        (
            dice.choice(["a", "b", "z", None]),
            Decimal(dice.randint(-999, 999)).scaleb(-2),
            NOON + timedelta(seconds=dice.randint(0, 300)),
        )
        for _ in range(count)
    ]


AGGREGATES = {
    "sums": "SELECT symbol, SUM(price) AS p, SUM(qty) AS q, SUM(fee) AS f, SUM(small) AS s, "
    "SUM(weight) AS w, COUNT(*) AS n, COUNT(price) AS c, AVG(price) AS ap, AVG(qty) AS aq, "
    "AVG(fee) AS af, AVG(small) AS a FROM trades GROUP BY symbol",
    "extremes": "SELECT symbol, MIN(price) AS a, MAX(price) AS b, MIN(fee) AS c, MAX(fee) AS d, "
    "MIN(day) AS e, MAX(day) AS f, MIN(ts) AS g, MAX(ts) AS h, MIN(symbol) AS i, MAX(weight) AS j, "
    "MAX(qty) - MIN(qty) AS spread FROM trades GROUP BY symbol",
    "firsts": (
        "SELECT symbol, FIRST(price) AS f, LAST(price) AS l, FIRST_VALUE(fee) IGNORE NULLS AS g, "
        "LAST(qty, true) AS k, LAST(tags) AS t FROM trades WHERE ts IS NOT NULL GROUP BY symbol",
        "SELECT symbol, min_by(price, struct(_n)) AS f, max_by(price, struct(_n)) AS l, "
        "min_by(fee, struct(_n)) FILTER (WHERE fee IS NOT NULL) AS g, "
        "max_by(qty, struct(_n)) FILTER (WHERE qty IS NOT NULL) AS k, "
        "max_by(tags, struct(_n)) AS t FROM trades WHERE ts IS NOT NULL GROUP BY symbol",
    ),
    "spreads": "SELECT small, round(STDDEV(price), 6) AS a, round(VARIANCE(qty), 6) AS b, "
    "round(stddev_pop(fee), 6) AS c, round(var_pop(small), 6) AS d, round(var_samp(weight), 6) AS e, "
    "round(skewness(qty), 6) AS f, round(corr(price, qty), 6) AS g FROM trades GROUP BY small",
    "distincts": "SELECT symbol, COUNT(DISTINCT price) AS p, COUNT(DISTINCT qty) AS q, "
    "COUNT(DISTINCT fee) AS f, COUNT(DISTINCT qty, small) AS r, COUNT(DISTINCT day) AS d, "
    "COUNT(DISTINCT qty) FILTER (WHERE price > 0) AS g FROM trades GROUP BY symbol",
    "approximate": "SELECT day, approx_count_distinct(qty) AS a, approx_count_distinct(symbol) AS b, "
    "percentile_approx(qty, 0.5) AS c, percentile_approx(qty, array(0.1, 0.9)) AS d "
    "FROM trades GROUP BY day",
    "orderly": "SELECT symbol, median(qty) AS a, percentile(qty, 0.25) AS b, "
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY small) AS c, bit_or(qty) AS d, bit_xor(small) AS e, "
    "bool_or(price > 5) AS f, every(qty > -9) AS g, count_if(qty > 5) AS h, try_sum(qty) AS i "
    "FROM trades GROUP BY symbol",
    "lists": (
        "SELECT small, collect_list(qty) AS l, listagg(symbol, '-') AS s, collect_set(qty) AS c, "
        "MIN_BY(symbol, fee) AS m, MAX_BY(tags, fee) AS x FROM trades GROUP BY small",
        "SELECT small, transform(sort_array(collect_list(struct(_n, qty)) FILTER (WHERE qty IS NOT "
        "NULL)), x -> x.qty) AS l, listagg(symbol, '-') WITHIN GROUP (ORDER BY _n) AS s, "
        "array_sort(collect_set(qty)) AS c, min_by(symbol, struct(fee, _n)) FILTER (WHERE fee IS NOT "
        "NULL) AS m, max_by(tags, struct(fee, _n)) FILTER (WHERE fee IS NOT NULL) AS x "
        "FROM trades GROUP BY small",
    ),
    "filtered": "SELECT symbol, COUNT(*) FILTER (WHERE qty > 5) AS a, SUM(fee) FILTER (WHERE price "
    "> 0 AND fee > 0) AS b, MAX(qty) FILTER (WHERE day > DATE '2026-01-01') AS c, "
    "AVG(price) FILTER (WHERE symbol <> 'a') AS d FROM trades GROUP BY symbol",
    "leavers": "SELECT symbol, SUM(qty) AS q, COUNT(*) AS n FROM trades GROUP BY symbol "
    "HAVING SUM(qty) % 3 <> 0 AND COUNT(*) > 2",
    "global": "SELECT COUNT(*) AS n, SUM(fee) AS f, MAX(ts) AS t, COUNT(DISTINCT symbol) AS d "
    "FROM trades",
    "global_having": "SELECT SUM(qty) AS q FROM trades HAVING SUM(qty) % 2 = 0",
    "hidden_keys": "SELECT COUNT(*) AS n, SUM(qty) AS q FROM trades GROUP BY symbol, qty > 5",
    "expressions": "SELECT upper(symbol) AS u, qty % 2 AS odd, SUM(qty * 2) + COUNT(*) AS x, "
    "CASE WHEN SUM(qty) > 10 THEN 'many' WHEN SUM(qty) IS NULL THEN 'none' ELSE 'few' END AS c, "
    "round(SUM(price) / COUNT(*), 3) AS m FROM trades GROUP BY upper(symbol), qty % 2",
    "distinct_rows": "SELECT DISTINCT symbol, small FROM trades",
    "over_groups": "SELECT s, q * 2 AS qq FROM (SELECT symbol AS s, SUM(qty) AS q FROM trades "
    "GROUP BY symbol) WHERE q > 20",
    "of_union": "SELECT s, SUM(v) AS v, COUNT(*) AS n FROM (SELECT symbol AS s, fee AS v FROM trades "
    "WHERE qty > 1 UNION ALL SELECT symbol, amount FROM orders) GROUP BY s",
    "of_tags": "SELECT tag, COUNT(*) AS n FROM (SELECT explode(tags) AS tag FROM trades) GROUP BY tag",
    "of_cte": "WITH big AS (SELECT symbol AS s, price * qty AS v, day FROM trades WHERE qty > 1), "
    "bigger (x, y, d) AS (SELECT upper(s), v + 1, day FROM big WHERE v > 0) "
    "SELECT x, month(d) AS m, SUM(y) AS y, COUNT(*) AS n FROM bigger GROUP BY x, month(d)",
}

LINEAR = {
    "functions": "SELECT symbol, log10(qty) AS l, date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS f, "
    "date_trunc('hour', ts) AS h, transform(tags, x -> concat(x, '!')) AS b, array_size(tags) AS n, "
    "levenshtein(symbol, 'b') AS lev, try_cast(symbol AS INT) AS i, CASE WHEN qty > 5 THEN 'it''s' "
    "WHEN symbol = 'Ω' THEN symbol END AS c, ts + INTERVAL '1 hour 30 minutes' AS later, "
    "md5(symbol) AS m, to_json(struct(symbol, qty)) AS j, fee * 1.5 AS fees, "
    "named_struct('a', qty, 'b', tags) AS s, map(coalesce(symbol, '?'), small) AS mp "
    "FROM trades WHERE qty > 0 OR symbol IS NULL",
    "both": "SELECT symbol, qty AS n, 'trade' AS kind FROM trades WHERE qty > 1 "
    "UNION ALL SELECT symbol, amount, 'order' FROM orders WHERE amount > 0",
    "twice": "SELECT symbol, qty FROM trades WHERE qty > 5 UNION ALL "
    "SELECT symbol, qty FROM trades WHERE qty < 10",
    "exploded": "SELECT symbol, place, tag FROM trades LATERAL VIEW OUTER posexplode(tags) t "
    "AS place, tag WHERE symbol <> 'c'",
    "in_process": "SELECT symbol, price * 2 AS twice FROM trades WHERE qty > 3",
}


@pytest.mark.parametrize("views", [AGGREGATES, LINEAR], ids=["aggregates", "linear"])
def test_all_forms_in_both_gears(db, spark, monkeypatch, views):
    monkeypatch.setattr(gears, "SHIFT_UP", 1)  # a view that has a row to read catches up first
    twin = Twin(db, spark)
    twin.source("trades", TRADES)
    twin.source("orders", ORDERS)
    twin.push("trades", trades(120, 1), "arrow")
    twin.push("orders", orders(20, 2))
    twin.views(**views)
    twin.check()
    assert {each.shifts for each in twin.runners.values()} == {1}, "from catch-up to live"

    twin.push("trades", trades(40, 3), "single")
    twin.push("orders", orders(10, 4), "single")
    twin.push("trades", trades(30, 5), "arrow")
    twin.check()
    assert {each.state for each in twin.runners.values()} == {"live"}

    twin.shift("catch-up")
    twin.push("trades", trades(50, 6), "arrow")
    twin.push("orders", orders(30, 7))
    twin.check()
