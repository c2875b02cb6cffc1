"""Rows that change and go: views over tables, joins with tables, views over views, streams."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from .exact import Twin

ACCOUNTS = """id INT PRIMARY KEY, k VARCHAR, owner VARCHAR, balance DECIMAL(12, 2), rate DOUBLE,
    small SMALLINT, active BOOLEAN, at TIMESTAMP"""
TRADES = "symbol VARCHAR, price DOUBLE, qty BIGINT, ts TIMESTAMP"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Bank:
    """Does things to a table at random. Doubles have few bits: sums are exact in any order."""

    def __init__(self, twin, seed):
        self._twin = twin
        self._dice = random.Random(seed)

    def row(self, number):
        dice = self._dice

        def some(value):
            return None if dice.random() < 0.15 else value

        return (
            number,
            some(dice.choice(["a", "b", "c", "Ω"])),
            some(dice.choice(["Ann", "Bob", "Cid"])),
            some(Decimal(dice.randint(-(10**4), 10**4)).scaleb(-2)),
            some(dice.choice([0.5, -1.25, 3.0, -0.0, float("nan"), float("inf"), 2.0**40])),
            some(dice.randint(-3, 3)),
            some(dice.random() < 0.5),
            some(NOON + timedelta(seconds=dice.randint(-200, 200))),
        )

    def work(self, times):
        for _ in range(times):
            numbers = self._dice.sample(range(25), self._dice.randint(1, 4))
            what = self._dice.randint(0, 5)
            if what == 0:
                self._twin.db.execute(f"DELETE FROM accounts WHERE id IN ({str(numbers)[1:-1]})")
            elif what == 1:
                self._twin.db.execute(
                    f"UPDATE accounts SET small = 2, k = 'c' WHERE id < {numbers[0]}"
                )
            else:
                self._twin.db.insert("accounts", list(map(self.row, numbers)), replace=True)

    def empty(self):
        self._twin.db.execute("DELETE FROM accounts")


def trades(count, seed):
    dice = random.Random(seed)
    return [
        (
            dice.choice(["a", "b", "c", "Ω", "q", None]),
            dice.choice([None, 0.25, -1.5, 8.0]),
            dice.choice([None, 1, 2, 3, 40]),
            NOON + timedelta(seconds=dice.randint(-40, 40) * 5),
        )
        for _ in range(count)
    ]


def orders(count, seed):
    dice = random.Random(seed)
    return [(dice.choice(["Ann", "Bob", "Cid"]), dice.choice([None, 1, 2])) for _ in range(count)]


OF_A_TABLE = {
    "by_owner": """SELECT owner, COUNT(*) AS n, COUNT(balance) AS nb, SUM(balance) AS sb,
        AVG(balance) AS ab, SUM(rate) AS sr, AVG(rate) AS ar, SUM(small) AS ss, AVG(small) AS
        av, MIN(balance) AS mib, MAX(balance) AS mab, MIN(rate) AS mir, MAX(rate) AS mar,
        MIN(k) AS mik, MAX(at) AS mat, COUNT(DISTINCT small) AS ds, COUNT(DISTINCT k, small) AS
        dk, COUNT(DISTINCT rate) AS dr, bool_and(active) AS ba, bool_or(active) AS bo,
        count_if(active) AS ci, MAX_BY(id, balance) AS mb, SUM(small) FILTER (WHERE active) AS
        fs, COUNT(*) FILTER (WHERE small > 0) AS fc, MAX(rate) FILTER (WHERE small > 0) AS fm,
        SUM(CASE WHEN active THEN balance ELSE 0 END) AS sc FROM accounts GROUP BY owner""",
    "total": """SELECT COUNT(*) AS n, SUM(balance) AS s, MIN(small) AS m, COUNT(DISTINCT owner)
        AS d FROM accounts""",
    "leavers": "SELECT k, SUM(small) AS s FROM accounts GROUP BY k HAVING SUM(small) > 0",
    "distinct_rows": "SELECT DISTINCT k, active FROM accounts WHERE small > -2",
    "unkeyed": """SELECT upper(k) AS u, balance * 2 AS b, levenshtein(owner, 'Bo') AS l FROM
        accounts WHERE small > 0 OR small IS NULL""",
    "minutes": (
        """SELECT k, WINDOW_START AS s, COUNT(*) AS n, MAX(balance) AS m FROM accounts GROUP BY
            k, TUMBLE(at, INTERVAL '1 minute')""",
        """SELECT k, window.start AS s, count(*) AS n, max(balance) AS m FROM accounts GROUP BY
            k, window(at, '1 minute')""",
    ),
}


def test_aggregates_over_a_table(db, spark):
    twin = Twin(db, spark)
    twin.table("accounts", ACCOUNTS)
    bank = Bank(twin, 1)
    bank.work(30)
    twin.views(**OF_A_TABLE)
    twin.check()
    twin.await_live()

    for times in (1, 10, 30):
        bank.work(times)
        twin.check()
    bank.empty()
    twin.check()
    bank.work(5)
    twin.check()
    assert {each.state for each in twin.runners.values()} == {"live"}


JOINS = {
    "joined": """SELECT t.symbol, t.qty, a.owner, a.id FROM trades t JOIN accounts a ON
        t.symbol = a.k AND t.qty > a.small""",
    "left_joined": """SELECT t.symbol, t.qty, a.owner, p.town FROM trades t LEFT JOIN accounts
        a ON t.symbol = a.k LEFT JOIN people p ON a.owner = p.name""",
    "by_owner": (
        """SELECT a.owner, COUNT(*) AS n, SUM(t.price) AS p, MAX(t.qty) AS q, SUM(t.qty *
            a.small) AS w, COUNT(DISTINCT t.symbol) AS d, FIRST(t.symbol) AS f, LAST(t.price)
            AS l, LAST(t.qty) FILTER (WHERE t.price > 0) AS lf, MIN_BY(t.ts, t.qty) AS mi,
            MAX_BY(t.price, t.qty) AS ma FROM trades t LEFT JOIN accounts a ON t.symbol = a.k
            GROUP BY a.owner""",
        # Many rows have the same time: the place of the trade in its log breaks the tie.
        """SELECT a.owner, count(*) AS n, sum(t.price) AS p, max(t.qty) AS q, sum(t.qty *
            a.small) AS w, count(DISTINCT t.symbol) AS d,
            min_by(t.symbol, struct(t.ts, t._n)) AS f, max_by(t.price, struct(t.ts, t._n)) AS l,
            max_by(t.qty, struct(t.ts, t._n)) FILTER (WHERE t.price > 0) AS lf,
            min_by(t.ts, struct(t.qty, t._n)) FILTER (WHERE t.qty IS NOT NULL) AS mi,
            max_by(t.price, struct(t.qty, t._n)) FILTER (WHERE t.qty IS NOT NULL) AS ma
            FROM trades t LEFT JOIN accounts a ON t.symbol = a.k GROUP BY a.owner""",
    ),
    "by_place": (
        """SELECT p.town, FIRST(o.qty) AS f, LAST(o.qty) AS l, MAX_BY(o.name, o.qty) AS m
            FROM orders o LEFT JOIN people p ON o.name = p.name GROUP BY p.town""",
        """SELECT p.town, min_by(o.qty, o._n) AS f, max_by(o.qty, o._n) AS l,
            max_by(o.name, struct(o.qty, o._n)) FILTER (WHERE o.qty IS NOT NULL) AS m
            FROM orders o LEFT JOIN people p ON o.name = p.name GROUP BY p.town""",
    ),
    "by_minute": (
        """SELECT p.town, WINDOW_START AS s, COUNT(*) AS n, MIN(qty) AS m FROM trades t JOIN
            accounts a ON t.symbol = a.k JOIN people p ON p.name = a.owner GROUP BY p.town,
            TUMBLE(ts, INTERVAL '1 minute')""",
        """SELECT p.town, window.start AS s, count(*) AS n, min(qty) AS m FROM trades t JOIN
            accounts a ON t.symbol = a.k JOIN people p ON p.name = a.owner GROUP BY p.town,
            window(ts, '1 minute')""",
    ),
}


def test_joins_with_tables_that_change_before_and_after(db, spark):
    twin = Twin(db, spark)
    twin.table("accounts", ACCOUNTS)
    twin.table("people", "name VARCHAR PRIMARY KEY, town VARCHAR")
    twin.source("trades", TRADES, "ts", timedelta(days=1000))
    twin.source("orders", "name VARCHAR, qty INT")
    bank = Bank(twin, 2)
    bank.work(10)
    db.insert("people", [("Ann", "Ulm"), ("Bob", "Ayr")])
    twin.push("trades", trades(20, 1), "arrow")
    twin.push("orders", orders(9, 1), "arrow")
    bank.work(10)
    twin.views(**JOINS)
    twin.check()
    twin.await_live()

    twin.push("trades", trades(20, 100), "single")
    twin.push("orders", orders(9, 100), "single")
    twin.check()
    bank.work(6)
    db.execute("UPDATE people SET town = 'Oslo' WHERE name = 'Ann'")
    twin.check()
    twin.push("trades", trades(20, 200))
    twin.push("orders", orders(9, 200))
    db.insert("people", [("Cid", None)])
    db.execute("DELETE FROM people WHERE name = 'Bob'")
    bank.work(6)
    twin.check()
    with twin.opened_again():
        twin.push("trades", trades(20, 300), "arrow")
        twin.push("orders", orders(9, 300), "arrow")
        bank.work(4)
        twin.check()
        bank.empty()
        twin.check()


SUMS = "SELECT symbol, SUM(qty) AS q, COUNT(*) AS n, MAX(price) AS m FROM trades GROUP BY symbol"
MINUTES = """SELECT symbol, {start} AS s, SUM(qty) AS q, COUNT(*) AS n FROM trades GROUP BY
    symbol, {window}"""
OURS = MINUTES.format(start="WINDOW_START", window="TUMBLE(ts, INTERVAL '1 minute')")
SPARKS = MINUTES.format(start="window.start", window="window(ts, '1 minute')")
SEEN = f"(SELECT * FROM ({SPARKS}) WHERE s + INTERVAL '1' MINUTE <= (SELECT at FROM trades_mark))"


def test_views_over_views(db, spark):
    twin = Twin(db, spark)
    twin.source("trades", TRADES, "ts", timedelta(minutes=7))  # so that no row is late
    twin.push("trades", trades(60, 1), "arrow")
    twin.view("sums", SUMS)
    twin.view("minutes", OURS, SPARKS)
    twin.view("emitted", OURS, SPARKS, kind="STREAM")
    twin.view("final", OURS, SEEN, tail="EMIT FINAL")
    twin.view("big", "SELECT symbol, qty FROM trades WHERE qty > 1")
    above = {
        "of_sums": f"""SELECT n > 10 AS many, SUM(q) AS q, MIN(q) AS lo, MAX(m) AS hi, COUNT(*)
            AS c, AVG(m) AS a, COUNT(DISTINCT q) AS d FROM {{sums:{SUMS}}} GROUP BY n > 10""",
        "of_minutes": f"""SELECT symbol, MAX(q) AS best, COUNT(*) AS n FROM
            {{minutes:{SPARKS}}} WHERE q > 1 GROUP BY symbol HAVING COUNT(*) > 1""",
        "rows_of_sums": f"""SELECT concat(symbol, '!') AS s, q / n AS a FROM {{sums:{SUMS}}}
            WHERE q > 9""",
        "of_emitted": f"SELECT SUM(q) AS q, COUNT(*) AS n FROM {{emitted:{SPARKS}}}",
        "of_final": f"""SELECT symbol, round(STDDEV(q), 6) AS d, size(collect_set(n)) AS l,
            MAX(s) AS s FROM {{final:{SEEN}}} GROUP BY symbol""",
        "of_big": """SELECT COUNT(*) AS n, SUM(qty) AS q FROM {big:SELECT qty FROM trades WHERE
            qty > 1}""",
    }
    for name, text in above.items():
        twin.view(name, *both_ways(text))
    twin.view(
        "third",
        *both_ways(
            f"SELECT COUNT(*) AS n, MAX(best) AS b FROM {{of_minutes:{above['of_minutes']}}}"
        ),
    )
    twin.check()
    twin.await_live()

    twin.push("trades", trades(40, 100), "single")
    twin.check()
    twin.promise("trades", NOON)
    twin.push("trades", [("a", 1.0, 7, NOON + timedelta(hours=1))])
    with twin.opened_again():
        twin.push("trades", [("b", 1.0, 7, NOON + timedelta(hours=1))])
        twin.check()
    assert set(twin.copies["final"].ops) == {"insert"}


def both_ways(text):
    """``{view:query}`` is the view for us, the query for Spark."""
    return _replaced(text, lambda name, _: name), _replaced(text, lambda _, query: f"({query})")


def _replaced(text, choose):
    head, brace, rest = text.partition("{")
    if not brace:
        return text
    inner, _, tail = rest.rpartition("}")
    name, _, query = inner.partition(":")
    return head + _replaced(choose(name, query), choose) + tail
