"""Every aggregate and every linear form over append-only input, as plain Spark."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from .exact import Twin

TRADES = """symbol VARCHAR, price DOUBLE, qty BIGINT, fee DECIMAL(12, 2), small SMALLINT, weight
        REAL, day DATE, tags ARRAY<VARCHAR>, ts TIMESTAMP"""
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


VIEWS = {
    # Buffers of fixed width: Spark's hash aggregate.
    "sums": """SELECT symbol, SUM(price) AS p, SUM(qty) AS q, SUM(fee) AS f, SUM(small) AS s,
        SUM(weight) AS w, COUNT(*) AS n, COUNT(price) AS c, AVG(price) AS ap, AVG(qty) AS aq,
        AVG(fee) AS af, AVG(small) AS a, round(STDDEV(price), 6) AS b, round(VARIANCE(qty), 6)
        AS d, round(stddev_pop(fee), 6) AS e, round(var_pop(small), 6) AS g,
        round(skewness(qty), 6) AS h, round(corr(price, qty), 6) AS i, MIN(price) AS j,
        MAX(price) AS k, MIN(fee) AS l, MAX(day) AS m, MIN(ts) AS o, MAX(weight) AS t, MAX(qty)
        - MIN(qty) AS spread, bit_or(qty) AS u, bit_xor(small) AS v, bool_or(price > 5) AS x,
        every(qty > -9) AS y, count_if(qty > 5) AS z, try_sum(qty) AS aa, COUNT(*) FILTER
        (WHERE qty > 5) AS ab, SUM(fee) FILTER (WHERE price > 0 AND fee > 0) AS ac, MAX(qty)
        FILTER (WHERE day > DATE '2026-01-01') AS ad, AVG(price) FILTER (WHERE symbol <> 'a')
        AS ae FROM trades GROUP BY symbol""",
    # Buffers with strings and arrays: its sort aggregate.
    "firsts": (
        """SELECT day, FIRST(price) AS f, LAST(price) AS l, FIRST_VALUE(fee) IGNORE NULLS AS g,
            LAST(qty, true) AS k, LAST(tags) AS t, MIN(symbol) AS m, MAX(symbol) AS n,
            MIN_BY(symbol, fee) AS o, MAX_BY(tags, fee) AS x FROM trades GROUP BY day""",
        """SELECT day, min_by(price, _n) AS f, max_by(price, _n) AS l, min_by(fee, _n) FILTER
            (WHERE fee IS NOT NULL) AS g, max_by(qty, _n) FILTER (WHERE qty IS NOT NULL) AS k,
            max_by(tags, _n) AS t, min(symbol) AS m, max(symbol) AS n, min_by(symbol,
            struct(fee, _n)) FILTER (WHERE fee IS NOT NULL) AS o, max_by(tags, struct(fee, _n))
            FILTER (WHERE fee IS NOT NULL) AS x FROM trades GROUP BY day""",
    ),
    # Buffers that are objects.
    "distincts": """SELECT small, COUNT(DISTINCT price) AS a, COUNT(DISTINCT fee) AS b,
        COUNT(DISTINCT day) AS c, COUNT(DISTINCT qty, symbol) AS d, COUNT(DISTINCT qty) FILTER
        (WHERE price > 0) AS e, approx_count_distinct(qty) AS f, SUM(qty) AS s FROM trades
        GROUP BY small""",
    "lists": (
        """SELECT small, percentile_approx(qty, 0.5) AS g, percentile_approx(qty, array(0.1,
            0.9)) AS h, median(qty) AS i, percentile(qty, 0.25) AS j, percentile_cont(0.5)
            WITHIN GROUP (ORDER BY fee) AS k, collect_list(qty) AS l, listagg(symbol, '-') AS
            m, collect_set(qty) AS n, COUNT(*) AS o FROM trades GROUP BY small""",
        """SELECT small, percentile_approx(qty, 0.5) AS g, percentile_approx(qty, array(0.1,
            0.9)) AS h, median(qty) AS i, percentile(qty, 0.25) AS j, percentile_cont(0.5)
            WITHIN GROUP (ORDER BY fee) AS k, transform(sort_array(collect_list(struct(_n,
            qty)) FILTER (WHERE qty IS NOT NULL)), x -> x.qty) AS l, listagg(symbol, '-')
            WITHIN GROUP (ORDER BY _n) AS m, array_sort(collect_set(qty)) AS n, count(*) AS o
            FROM trades GROUP BY small""",
    ),
    "everything": """SELECT COUNT(*) AS n, SUM(fee) AS f, MAX(ts) AS t, COUNT(DISTINCT symbol)
        AS d FROM trades""",
    "leavers": """SELECT symbol, SUM(qty) AS q, COUNT(*) AS n FROM trades GROUP BY symbol
        HAVING SUM(qty) % 3 <> 0 AND COUNT(*) > 2""",
    "hidden_keys": """SELECT upper(symbol) AS u, SUM(qty * 2) + COUNT(*) AS x, CASE WHEN
        SUM(qty) > 10 THEN 'many' WHEN SUM(qty) IS NULL THEN 'none' ELSE 'few' END AS c FROM
        trades GROUP BY upper(symbol), qty % 2""",
    "distinct_rows": "SELECT DISTINCT symbol, small FROM trades",
    "over_groups": """SELECT s, q * 2 AS qq FROM (SELECT symbol AS s, SUM(qty) AS q FROM trades
        GROUP BY symbol) WHERE q > 20""",
    "of_union": """SELECT s, SUM(v) AS v, COUNT(*) AS n FROM (SELECT symbol AS s, fee AS v FROM
        trades WHERE qty > 1 UNION ALL SELECT symbol, amount FROM orders) GROUP BY s""",
    "of_cte": """WITH big AS (SELECT symbol AS s, price * qty AS v, explode(tags) AS tag FROM
        trades WHERE qty > 1), bigger (x, y, t) AS (SELECT upper(s), v + 1, tag FROM big WHERE
        v > 0) SELECT x, t, SUM(y) AS y, COUNT(*) AS n FROM bigger GROUP BY x, t""",
    "functions": """SELECT symbol, log10(qty) AS l, date_format(ts, 'yyyy-MM-dd
        HH:mm:ss.SSSSSS') AS f, date_trunc('hour', ts) AS h, transform(tags, x -> concat(x,
        '!')) AS b, array_size(tags) AS n, levenshtein(symbol, 'b') AS lev, try_cast(symbol AS
        INT) AS i, CASE WHEN qty > 5 THEN 'it''s' WHEN symbol = 'Ω' THEN symbol END AS c, ts +
        INTERVAL '1 hour 30 minutes' AS later, md5(symbol) AS m, to_json(struct(symbol, qty))
        AS j, fee * 1.5 AS fees, named_struct('a', qty, 'b', tags) AS s, map(coalesce(symbol,
        '?'), small) AS mp FROM trades WHERE qty > 0 OR symbol IS NULL""",
    "both": """SELECT symbol, qty AS n, 'trade' AS kind FROM trades WHERE qty > 1 UNION ALL
        SELECT symbol, amount, 'order' FROM orders WHERE amount > 0 UNION ALL SELECT symbol,
        qty, 'again' FROM trades WHERE qty < 10""",
    "exploded": """SELECT symbol, place, tag FROM trades LATERAL VIEW OUTER posexplode(tags) t
        AS place, tag WHERE symbol <> 'c'""",
    "in_process": "SELECT symbol, price * 2 AS twice FROM trades WHERE qty > 3",
}


def test_all_forms(db, spark):
    twin = Twin(db, spark)
    twin.source("trades", TRADES)
    twin.source("orders", ORDERS)
    twin.push("trades", trades(120, 1), "arrow")
    twin.push("orders", orders(20, 2))
    twin.views(**VIEWS)
    twin.check()
    twin.await_live()

    twin.push("trades", trades(40, 3), "single")
    twin.push("orders", orders(10, 4), "single")
    twin.push("trades", trades(30, 5), "arrow")
    twin.push("trades", trades(30, 6), "batch")
    twin.check()
    assert {(each.state, each.restarts) for each in twin.runners.values()} == {("live", 0)}
