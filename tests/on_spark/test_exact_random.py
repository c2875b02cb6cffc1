"""Any rows in any pushes, tables that change, restarts: in the end, what Spark answers."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ..effort import effort  # noqa: TID252 - tests have no name
from .exact import Twin

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VIEWS = {
    "sums": """SELECT k, SUM(v) AS s, COUNT(*) AS n, AVG(d) AS a, MIN(d) AS lo, MAX(f) AS hi
        FROM ticks GROUP BY k""",
    "lists": (
        "SELECT v, COUNT(DISTINCT k) AS c, FIRST(k) AS f, LAST(d) AS l FROM ticks GROUP BY v",
        """SELECT v, count(DISTINCT k) AS c, min_by(k, struct(ts, _n)) AS f, max_by(d,
            struct(ts, _n)) AS l FROM ticks GROUP BY v""",
    ),
    "leavers": "SELECT k, SUM(v) AS s FROM ticks GROUP BY k HAVING SUM(v) % 2 = 0",
    "distinct_rows": "SELECT DISTINCT k, v FROM ticks",
    "minutes": (
        """SELECT k, WINDOW_START AS s, SUM(f) AS f, COUNT(*) AS n FROM ticks GROUP BY k,
            TUMBLE(ts, INTERVAL '1 minute')""",
        """SELECT k, window.start AS s, sum(f) AS f, count(*) AS n FROM ticks GROUP BY k,
            window(ts, '1 minute')""",
    ),
    "hops": (
        """SELECT WINDOW_END AS e, MAX(v) AS m FROM ticks GROUP BY HOP(ts, INTERVAL '30'
            SECOND, INTERVAL '1' MINUTE)""",
        """SELECT window.end AS e, max(v) AS m FROM ticks GROUP BY window(ts, '1 minute', '30
            seconds')""",
    ),
    "in_sessions": (
        """SELECT k, WINDOW_START AS s, WINDOW_END AS e, COUNT(*) AS n FROM ticks GROUP BY k,
            SESSION(ts, INTERVAL '9 seconds')""",
        """SELECT k, session_window.start AS s, session_window.end AS e, count(*) AS n FROM
            ticks GROUP BY k, session_window(ts, '9 seconds')""",
    ),
    "joined": """SELECT p.town, COUNT(*) AS n, MAX(t.d) AS m FROM ticks t LEFT JOIN places p ON
        t.k = p.k GROUP BY p.town""",
    "both": "SELECT k, md5(k) AS h FROM ticks WHERE v > 1 UNION ALL SELECT k, town FROM places",
    "of_sums": (
        "SELECT COUNT(*) AS n, MAX(s) AS m, SUM(n) AS t FROM sums",
        """SELECT count(*) AS n, max(s) AS m, sum(n) AS t FROM (SELECT k, sum(v) AS s, count(*)
            AS n FROM ticks GROUP BY k)""",
    ),
}
keys = st.sampled_from(["a", "b", "ü", "", None])
ticks = st.tuples(
    keys,
    st.none() | st.integers(-3, 3),
    st.none() | st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
    st.none() | st.integers(-64, 64).map(lambda n: n / 8),  # few bits: exact in any order
    st.integers(-300, 300).map(lambda n: NOON + timedelta(seconds=n)),
)
steps = st.one_of(
    st.tuples(st.just("single"), st.lists(ticks, min_size=1, max_size=6)),
    st.tuples(st.just("batch"), st.lists(ticks, min_size=1, max_size=20)),
    st.tuples(st.just("arrow"), st.lists(ticks, min_size=1, max_size=40)),
    st.tuples(
        st.just("place"), st.tuples(keys.filter(bool), st.sampled_from(["Ulm", "Ayr", None]))
    ),
    st.tuples(st.just("leave"), keys.filter(bool)),
)
some_steps = st.lists(steps, min_size=1, max_size=6)


def test_any_rows_any_pushes_and_opened_again(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", "k VARCHAR, v INT, d DECIMAL(8, 2), f DOUBLE, ts TIMESTAMP", "ts", DAYS)
    twin.table("places", "k VARCHAR PRIMARY KEY, town VARCHAR")
    twin.views(**VIEWS)

    def do(kind, what):
        if kind == "place":
            twin.db.insert("places", [what], replace=True)
        elif kind == "leave":
            twin.db.execute(f"DELETE FROM places WHERE k = '{what}'")
        else:
            twin.push("ticks", what, kind)

    # One database for all examples: each goes on where the last one ended, so none can be shrunk.
    @settings(
        max_examples=effort(4, 100),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(some_steps)
    def always(some):
        for kind, what in some:
            do(kind, what)
        twin.check()

    always()
    with twin.opened_again():
        always()


DAYS = timedelta(days=1000)
"""So long after its time a row may come: none is late."""
