"""The forms that a SELECT may have, as live views: exact after each change, against DuckDB.

All views of a group are made at once, over tables and a source that change in a few steps.
``make proof`` makes views of all forms.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

import millstream as ms

from ..effort import PROOF  # noqa: TID252 - tests have no name
from .against_duckdb import Model, Proof

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MOMENT = pa.timestamp("us", tz="UTC")
KEYS = {"t": ("id",), "u": ("id",)}
SCHEMAS = {
    "t": pa.schema([("id", pa.int32()), ("k", pa.string()), ("a", pa.int32()), ("b", pa.int32())]),
    "u": pa.schema(
        [("id", pa.int32()), ("a", pa.int32()), ("d", pa.decimal128(8, 2)), ("born", MOMENT)]
    ),
    "e": pa.schema([("k", pa.string()), ("n", pa.int32()), ("ts", MOMENT)]),
}
DDL = """
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, a INT, b INT);
CREATE TABLE u (id INT PRIMARY KEY, a INT, d DECIMAL(8, 2), born TIMESTAMP);
CREATE SOURCE e (k VARCHAR, n INT, ts TIMESTAMP)
"""

SUBQUERIES = {
    "in_aggregate": "SELECT k, SUM(a + (SELECT MAX(b) FROM t)) AS x FROM t GROUP BY k",
    "beside_aggregate": "SELECT k, SUM(a) + (SELECT MAX(id) FROM u) AS x FROM t GROUP BY k",
    "in_filter": """SELECT k, COUNT(*) FILTER (WHERE a > (SELECT AVG(a) FROM u)) AS n FROM t
        GROUP BY k""",
    "correlated_in_aggregate": """SELECT k, SUM(a + (SELECT MAX(u.id) FROM u WHERE u.a = t.a)) AS x
        FROM t GROUP BY k""",
    "in_rollup": """SELECT k, SUM(a + (SELECT MAX(id) FROM u)) AS s FROM t GROUP BY ROLLUP (k)
        HAVING COUNT(*) > 0""",
    "in_key": """SELECT a + (SELECT MAX(id) FROM u) AS g, COUNT(*) AS n FROM t
        GROUP BY a + (SELECT MAX(id) FROM u)""",
    "in_left_join": """SELECT t.id, u.id AS j FROM t LEFT JOIN u
        ON t.a = u.a AND u.id > (SELECT MIN(b) FROM t)""",
    "in_full_join": """SELECT t.id, u.id AS j FROM t FULL JOIN u
        ON t.a = u.a AND u.id > (SELECT MIN(b) FROM t)""",
    "in_condition_of_both": """SELECT t.id, u.id AS j FROM t JOIN u
        ON t.a = u.a + (SELECT MIN(b) FROM t)""",
    "in_having": """SELECT k, COUNT(*) AS n FROM t GROUP BY k
        HAVING COUNT(*) > 1 OR MAX(a) >= (SELECT MAX(id) FROM u)""",
    "exists_as_value": """SELECT id, EXISTS (SELECT 1 FROM u WHERE u.a = t.a) AS x,
        EXISTS (SELECT 1 FROM u) AS y, a NOT IN (SELECT a FROM u) AS z FROM t""",
    "exists_in_aggregate": """SELECT k, SUM(CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.a = t.a)
        THEN 1 ELSE 0 END) AS n FROM t GROUP BY k""",
    "not_in": "SELECT id FROM t WHERE a NOT IN (SELECT u.a FROM u WHERE u.id = t.b)",
    "in_pairs": "SELECT id FROM t WHERE (a, b) IN (SELECT a, id FROM u)",
    "in_case": """SELECT id, CASE WHEN a > 1 THEN (SELECT MAX(d) FROM u) ELSE (SELECT MIN(d)
        FROM u) END AS x FROM t""",
    "first_of_all": """SELECT t.id, (SELECT u.d FROM u ORDER BY u.id DESC LIMIT 1) AS d FROM t
        WHERE t.a > 0""",
    "by_key": "SELECT t.id, t.a + (SELECT u.d FROM u WHERE u.id = t.a) AS d FROM t",
    "two_values": "SELECT (SELECT COUNT(*) FROM t) AS n, (SELECT SUM(d) FROM u) AS m",
    "in_sets": """SELECT k, COUNT(DISTINCT a + (SELECT MAX(d) FROM u)) AS n, COUNT(DISTINCT b) AS m
        FROM t GROUP BY ROLLUP (k) HAVING COUNT(*) > 0""",
    "in_order": "SELECT id, SUM(a + (SELECT COUNT(*) FROM u)) OVER (ORDER BY id) AS s FROM t",
}
SETS = {
    "full_join_of_nulls": "SELECT t.id, u.id AS j FROM t FULL JOIN u ON t.a = u.a AND t.b = u.id",
    "intersects": "SELECT a FROM t INTERSECT SELECT a FROM u",
    "intersects_all": "SELECT a FROM t INTERSECT ALL SELECT a FROM u",
    "excepts": "SELECT a, b FROM t EXCEPT SELECT a, id FROM u",
    "excepts_all": "SELECT a FROM t EXCEPT ALL SELECT a FROM u",
    "unites": "SELECT a, k FROM t UNION SELECT n, k FROM e",
    "grouping": """SELECT k, a, COUNT(*) AS n, GROUPING(k) AS g FROM t
        GROUP BY GROUPING SETS ((k), (a), (k, a))""",
    "cubes": """SELECT k, a, COUNT(DISTINCT b) AS n FROM t GROUP BY CUBE (k, a)
        HAVING COUNT(*) > 0""",
    "lateral_rows": "SELECT t.id, x.d FROM t, LATERAL (SELECT d FROM u WHERE u.a = t.a) x",
    "lateral_left": """SELECT t.id, x.n FROM t LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM u
        WHERE u.a < t.a) x ON TRUE""",
    "lateral_running": """SELECT t.id, x.s FROM t JOIN LATERAL
        (SELECT SUM(d) OVER (ORDER BY id) AS s FROM u WHERE u.a = t.a) x ON TRUE""",
    "lateral_steps": """SELECT t.id, x.p, x.d FROM t JOIN LATERAL
        (SELECT d, LAG(d) OVER (ORDER BY id) AS p FROM u WHERE u.a = t.a) x ON TRUE""",
    "common_twice": """WITH g AS (SELECT k, SUM(a) AS s FROM t GROUP BY k)
        SELECT x.k, y.k AS l FROM g x JOIN g y ON x.s = y.s""",
    "common_hidden": """WITH x AS (SELECT a FROM t) SELECT x.a FROM x JOIN
        (WITH x AS (SELECT a FROM u) SELECT a FROM x) y ON x.a = y.a""",
    "constants": """SELECT v.n, COUNT(t.id) AS c FROM (VALUES (1), (2), (NULL)) AS v(n)
        LEFT JOIN t ON t.a = v.n GROUP BY v.n""",
    "using_key": "SELECT id, t.k, u.d FROM t FULL JOIN u USING (id)",
}
SUMS = "SELECT a, SUM(b) AS s, COUNT(*) AS n, MAX(id) AS m FROM t GROUP BY a"
PAIRS = "SELECT t.id, t.a, t.b, u.id AS j, u.d FROM t JOIN u ON t.a = u.a"
SHARED = {
    "the_greatest_sum": f"WITH r AS ({SUMS}) SELECT a, s FROM r WHERE s = (SELECT MAX(s) FROM r)",
    "groups_with_each_other": f"""WITH r AS ({SUMS})
        SELECT p.a, p.s, q.n FROM r p LEFT JOIN r q ON p.a = q.n""",
    "groups_by_other_columns": f"""WITH r AS ({SUMS}) SELECT a, m FROM r WHERE n > 2
        UNION ALL SELECT n, s FROM r WHERE m < 9""",
    "pairs_with_each_other": f"""WITH r AS ({PAIRS})
        SELECT p.id, p.j, q.d FROM r p JOIN r q ON p.b = q.j AND p.id < q.id""",
    "groups_of_pairs_and_all": f"""WITH r AS ({PAIRS}) SELECT a, SUM(d) AS x FROM r GROUP BY a
        HAVING SUM(d) > (SELECT SUM(d) / 4 FROM r)""",
    "pairs_and_who_has_none": f"""WITH r AS ({PAIRS})
        SELECT t.id, x.j FROM t LEFT JOIN r x ON x.id = t.id AND x.b > 1
        WHERE t.id NOT IN (SELECT id FROM r WHERE d IS NOT NULL) OR t.b > 2""",
    "ranks_of_equal_order": f"""WITH r AS ({PAIRS}), k AS (SELECT id, a,
        RANK() OVER (PARTITION BY a ORDER BY id, j) AS k FROM r)
        SELECT p.id, q.id AS next FROM k p JOIN k q ON p.a = q.a AND p.k = q.k - 1""",
    "thrice": f"""WITH r AS ({SUMS}) SELECT x.a, y.n, z.s FROM r x JOIN r y ON x.a = y.a
        JOIN r z ON z.a = y.n""",
    "no_value_for_the_group_of_null": f"""WITH r AS ({SUMS}) SELECT x.a, y.n, g.m
        FROM r x JOIN r y ON x.a = y.n
        JOIN (SELECT a, SUM(b) / COUNT(a) AS m FROM t GROUP BY a) g ON g.a = x.a""",
}
"""What is read twice."""

OTHER_DIALECT = {
    "pivots": (
        """SELECT * FROM (SELECT k, a, b FROM t) PIVOT (SUM(b) AS s, COUNT(*) AS n FOR a IN
            (1 AS one, 2 AS two))""",
        """SELECT k, SUM(b) FILTER (WHERE a = 1), NULLIF(COUNT(*) FILTER (WHERE a = 1), 0),
            SUM(b) FILTER (WHERE a = 2), NULLIF(COUNT(*) FILTER (WHERE a = 2), 0)
            FROM t GROUP BY k""",
    ),
    "unpivots": (
        "SELECT id, c, v FROM (SELECT id, a, b FROM t) UNPIVOT (v FOR c IN (a, b))",
        """SELECT id, 'a', a FROM t WHERE a IS NOT NULL UNION ALL
            SELECT id, 'b', b FROM t WHERE b IS NOT NULL""",
    ),
    "lists": (
        """SELECT t.k, LISTAGG(e.k, ',') WITHIN GROUP (ORDER BY e.n DESC) AS l,
            array_join(COLLECT_LIST(e.k) WITHIN GROUP (ORDER BY e.n), '') AS c,
            array_join(COLLECT_SET(e.n) FILTER (WHERE e.n > 0), ',') AS s
            FROM t JOIN e ON t.a = e.n GROUP BY t.k""",
        """SELECT t.k, STRING_AGG(e.k, ',' ORDER BY e.n DESC NULLS LAST, e.k),
            COALESCE(STRING_AGG(e.k, '' ORDER BY e.n NULLS FIRST, e.k), ''),
            COALESCE(STRING_AGG(DISTINCT e.n::VARCHAR, ',' ORDER BY e.n::VARCHAR)
                FILTER (WHERE e.n > 0), '')
            FROM t JOIN e ON t.a = e.n GROUP BY t.k""",
    ),
    "lists_of_distinct": (
        "SELECT a, LISTAGG(DISTINCT k, '+') WITHIN GROUP (ORDER BY k DESC) AS l FROM t GROUP BY a",
        "SELECT a, STRING_AGG(DISTINCT k, '+' ORDER BY k DESC) FROM t GROUP BY a",
    ),
    "modes": (
        """SELECT k, MODE(a) AS least, MODE() WITHIN GROUP (ORDER BY a DESC) AS most,
            ANY_VALUE(b) AS any FROM t GROUP BY k""",
        """SELECT k, (SELECT a FROM t y WHERE y.k IS NOT DISTINCT FROM x.k AND a IS NOT NULL
                GROUP BY a ORDER BY COUNT(*) DESC, a LIMIT 1),
            (SELECT a FROM t y WHERE y.k IS NOT DISTINCT FROM x.k AND a IS NOT NULL
                GROUP BY a ORDER BY COUNT(*) DESC, a DESC LIMIT 1), MIN(b) FROM t x GROUP BY k""",
    ),
    "explodes": (
        """SELECT v, COUNT(*) AS n FROM (SELECT EXPLODE(ARRAY(t.a, u.id)) AS v FROM t JOIN u
            ON t.a = u.a) GROUP BY v""",
        """SELECT v, COUNT(*) FROM (SELECT UNNEST([t.a, u.id]) AS v FROM t JOIN u ON t.a = u.a)
            GROUP BY v""",
    ),
    "distinct_pairs": (
        "SELECT k, COUNT(DISTINCT a, b) AS n FROM t GROUP BY k",
        """SELECT k, COUNT(DISTINCT (a, b)) FILTER (WHERE a IS NOT NULL AND b IS NOT NULL) FROM t
            GROUP BY k""",
    ),
}

TEN = "INTERVAL '10 seconds'"
BUCKET = "TIME_BUCKET(INTERVAL '10 seconds', {})"
TWENTY = "TIME_BUCKET(INTERVAL '20 seconds', {})"
HOPS = """(SELECT *, TIME_BUCKET(INTERVAL '5 seconds', ts) - INTERVAL 5 SECONDS * i AS w FROM e,
    (VALUES (0), (1)) h(i))"""
STEPS = """(SELECT *, TIME_BUCKET(INTERVAL '20 seconds', {0}) AS w,
    TIME_BUCKET(INTERVAL '20 seconds', {0}) + INTERVAL 5 SECONDS * i AS end_ FROM {1},
    (VALUES (1), (2), (3), (4)) h(i)) WHERE {0} < end_"""
WINDOWS = {
    "tumble_of_join": (
        f"""SELECT TUMBLE_START(e.ts, {TEN}) AS w, t.k, SUM(e.n) AS s FROM e JOIN t ON t.a = e.n
            GROUP BY TUMBLE(e.ts, {TEN}), t.k""",
        f"""SELECT {BUCKET.format("ts")} AS w, t.k, SUM(n) FROM e JOIN t ON t.a = e.n
            WHERE ts IS NOT NULL GROUP BY 1, 2""",
    ),
    "end_of_tumble": (
        f"SELECT window_end, COUNT(*) AS n FROM u GROUP BY TUMBLE(born, {TEN}) HAVING COUNT(*) < 3",
        f"""SELECT {BUCKET.format("born")} + {TEN} AS w, COUNT(*) FROM u WHERE born IS NOT NULL
            GROUP BY 1 HAVING COUNT(*) < 3""",
    ),
    "hop_of_join": (
        f"""SELECT HOP_START(ts) AS w, t.k, SUM(e.n) AS s FROM e JOIN t ON t.a = e.n
            GROUP BY HOP(ts, INTERVAL '5 seconds', {TEN}), t.k""",
        f"""SELECT w, t.k, SUM(n) FROM {HOPS} e JOIN t ON t.a = e.n WHERE ts IS NOT NULL
            GROUP BY 1, 2""",
    ),
    "cumulate_of_join": (
        """SELECT CUMULATE_START(ts) AS b, CUMULATE_END(ts) AS w, t.k, SUM(e.n) AS s FROM e
            JOIN t ON t.a = e.n GROUP BY CUMULATE(ts, INTERVAL '5 seconds', INTERVAL '20 seconds'),
            t.k""",
        f"""SELECT w, end_, t.k, SUM(n) FROM (SELECT * FROM {STEPS.format("ts", "e")}) e
            JOIN t ON t.a = e.n GROUP BY ALL""",
    ),
    "cumulate_of_table": (
        """SELECT WINDOW_START AS b, WINDOW_END AS w, SUM(a) AS s FROM u
            GROUP BY CUMULATE(born, INTERVAL '5 seconds', INTERVAL '20 seconds')""",
        f"SELECT w, end_, SUM(a) FROM {STEPS.format('born', 'u')} GROUP BY ALL",
    ),
    "joined_windows": (
        f"""SELECT x.window_start AS w, x.n, y.m FROM
            (SELECT WINDOW_START, SUM(n) AS n FROM e GROUP BY TUMBLE(ts, {TEN})) x
            LEFT JOIN (SELECT WINDOW_START, COUNT(*) AS m FROM u GROUP BY TUMBLE(born, {TEN})) y
            ON x.window_start = y.window_start""",
        f"""SELECT x.w, x.n, y.m FROM
            (SELECT {BUCKET.format("ts")} AS w, SUM(n) AS n FROM e WHERE ts IS NOT NULL
            GROUP BY 1) x LEFT JOIN (SELECT {BUCKET.format("born")} AS w, COUNT(*) AS m FROM u
            WHERE born IS NOT NULL GROUP BY 1) y ON x.w = y.w""",
    ),
    "joined_by_window": (
        f"""SELECT e.n, u.id FROM e JOIN u ON TUMBLE(e.ts, {TEN}) = TUMBLE(u.born, {TEN})
            AND e.n = u.a""",
        f"""SELECT e.n, u.id FROM e JOIN u ON {BUCKET.format("e.ts")} = {BUCKET.format("u.born")}
            AND e.n = u.a""",
    ),
    "two_windows": (
        f"""SELECT TUMBLE_START(e.ts) AS v, TUMBLE_END(u.born) AS w, COUNT(*) AS n FROM e JOIN u
            ON e.n = u.a GROUP BY TUMBLE(e.ts, {TEN}), TUMBLE(u.born, INTERVAL '20 seconds')""",
        f"""SELECT {BUCKET.format("ts")}, {TWENTY.format("born")} + INTERVAL '20 seconds', COUNT(*)
            FROM e JOIN u ON n = a WHERE ts IS NOT NULL AND born IS NOT NULL GROUP BY 1, 2""",
    ),
    "windows_of_rows": (
        f"""SELECT DISTINCT *, HOP_END(ts, INTERVAL '5 seconds', {TEN}) AS w FROM e
            WHERE EXISTS (SELECT 1 FROM t WHERE t.a = e.n)""",
        f"""SELECT DISTINCT k, n, ts, w + {TEN} FROM {HOPS} e WHERE ts IS NOT NULL
            AND EXISTS (SELECT 1 FROM t WHERE t.a = e.n)""",
    ),
}
FOREIGN = {
    "tumble_in_from": (
        f"""SELECT x.window_start, k, SUM(id) AS s FROM TUMBLE(u, born, {TEN}) AS x
            JOIN t USING (id) GROUP BY x.window_start, x.window_end, k""",
        f"""SELECT {BUCKET.format("born")} AS w, k, SUM(id) FROM u JOIN t USING (id)
            WHERE born IS NOT NULL GROUP BY 1, 2""",
    ),
    "hop_in_from": (
        f"""SELECT window_end AS w, SUM(n) AS s FROM HOP(e, ts, INTERVAL '5 seconds', {TEN})
            WHERE n IN (SELECT a FROM t) GROUP BY window_start, window_end""",
        f"""SELECT w + {TEN} AS w, SUM(n) FROM {HOPS} e WHERE ts IS NOT NULL
            AND n IN (SELECT a FROM t) GROUP BY 1""",
    ),
    "series_in_from": (
        "SELECT id, g FROM t, generate_series(1, 3) AS g WHERE g <> a",
        "SELECT id, g FROM t, generate_series(1, 3) AS x(g) WHERE g <> a",
    ),
    "unnest_in_from": (
        "SELECT id, x, n FROM t, unnest(ARRAY[a, b]) WITH ORDINALITY AS u(x, n) WHERE k = 'x'",
        """SELECT id, [a, b][n], n FROM t, generate_series(1, 2) AS x(n) WHERE k = 'x'""",
    ),
    "aggregates_in_order": (
        """SELECT k, array_to_string(array_agg(id ORDER BY a DESC, b), ',') AS l,
            string_agg(k, '+' ORDER BY b) AS s,
            first(id ORDER BY b, a DESC) AS f, last_value(b ORDER BY id) AS z FROM t GROUP BY k""",
        """SELECT k, string_agg(id, ',' ORDER BY a DESC NULLS LAST, b NULLS FIRST, id),
            string_agg(k, '+' ORDER BY b), first(id ORDER BY b NULLS FIRST, a DESC NULLS LAST, id),
            last(b ORDER BY id) FROM t GROUP BY k""",
    ),
    "lists_by_value": (
        """SELECT k, array_to_string(array_agg(b), '-') AS l, string_agg(k, '') AS s FROM t
            GROUP BY k""",
        """SELECT k, COALESCE(string_agg(b, '-' ORDER BY b), ''), string_agg(k, '') FROM t
            GROUP BY k""",
    ),
    "compared_with_arrays": (
        """SELECT id, a = ANY(ARRAY[1, b]) AS x, b <> ALL(ARRAY[a, 3]) AS y FROM t
            WHERE k ~ '^[xy]' OR id = ANY('{1,2}') OR a = '2'""",
        """SELECT id, a IN (1, b), b NOT IN (a, 3) FROM t
            WHERE regexp_matches(k, '^[xy]') OR id IN (1, 2) OR a = 2""",
    ),
    "nothing": ("VALUES (1, 'a'), (2, 'b')", "VALUES (1, 'a'), (2, 'b')"),
}
"""What other databases write, and what it is in DuckDB's words."""

EVERY = {
    "foreign": FOREIGN,
    "subqueries": {name: (sql, sql) for name, sql in SUBQUERIES.items()},
    "sets": {name: (sql, sql) for name, sql in SETS.items()} | OTHER_DIALECT,
    "shared": {name: (sql, sql) for name, sql in SHARED.items()},
    "windows": WINDOWS,
}
CHOSEN = [
    "lists",
    "lists_of_distinct",
    "modes",
    *("in_aggregate", "beside_aggregate", "in_full_join", "in_having", "exists_as_value"),
    *("by_key", "full_join_of_nulls", "common_hidden"),
    *("cumulate_of_join", "joined_by_window", "two_windows"),
    *FOREIGN,
]
FORMS = (
    EVERY
    if PROOF
    else {"some": {name: f[name] for name in CHOSEN for f in EVERY.values() if name in f}}
)


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def t_rows(count):
    return [(n, "xyz"[n % 3] if n % 7 else None, n % 4 or None, n % 5) for n in range(count)]


def u_rows(count):
    return [
        (n, n % 3 or None, Decimal(n % 5) / 4, at(n * 7) if n % 4 else None) for n in range(count)
    ]


def e_rows(start, stop):
    return [("xyz"[n % 3], n % 4, at(n * 3) if n % 5 else None) for n in range(start, stop)]


@pytest.mark.parametrize("group", FORMS)
def test_forms(db, group):
    db.execute(DDL)
    model = Model(SCHEMAS)
    proof = Proof(db, model, KEYS)
    for name, (sql, expected) in FORMS[group].items():
        proof.view(name, sql, expected)
    proof.check()
    proof.insert("t", t_rows(12))
    proof.insert("e", e_rows(0, 12))
    proof.check()
    proof.insert("u", u_rows(9))
    proof.check()
    for name, changed, where in [
        ("t", {"a": 2, "k": "x"}, {"b": 1}),
        ("u", {"a": None}, {"id": 5}),
        ("t", {"a": None, "b": 3}, {"k": "z"}),
        ("u", {"born": at(11), "a": 3}, {"a": 1}),
    ]:
        proof.update(name, changed, where)
        proof.insert("e", e_rows(len(model.rows["e"]), len(model.rows["e"]) + 2))
        proof.check()
    proof.delete("u", {"id": 8})
    proof.delete("t", {"b": 3})
    proof.check()
    proof.delete("u", {})
    proof.insert("t", t_rows(3))
    proof.check()
    proof.delete("t", {})
    proof.check()


REFUSED = [
    ("SELECT t.id, (SELECT u.d FROM u WHERE u.a = t.a) AS d FROM t", "several rows"),
    (f"SELECT u.a, COUNT(*) AS n FROM u GROUP BY a, SESSION(born, {TEN})", "SESSION"),
    (
        f"SELECT e.n FROM e JOIN u ON HOP_END(e.ts, {TEN}, {TEN}) = u.born",
        "HOP in the condition of a join",
    ),
]


def test_refused(db):
    db.execute(DDL)
    for query, message in REFUSED:
        with pytest.raises(ms.errors.SqlError, match=message) as caught:
            db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        assert caught.value.hint


def test_windows_are_keys(db):
    db.execute(DDL)
    for number, bound in enumerate(["TUMBLE_START", "TUMBLE_END"]):
        db.execute(
            f"CREATE MATERIALIZED VIEW v{number} AS SELECT t.k, {bound}(ts) AS w, COUNT(*) AS n"
            f" FROM e JOIN t ON t.k = e.k GROUP BY t.k, TUMBLE(ts, {TEN})"
        )
    assert [each["primary_key"] for each in db.query("SHOW VIEWS").to_pylist()] == ["k, w", "k, w"]
