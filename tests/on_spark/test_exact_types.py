"""All types of the model through Spark and back; no rows, wide rows, a million keys."""

from collections import Counter
from itertools import starmap

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from millstream.model.types import parse_type
from millstream.testing import TIMEOUT, engine_of

from ..effort import effort  # noqa: TID252 - tests have no name
from ..model.strategies import values_of  # noqa: TID252
from .exact import Copy, Twin, bag, plain

SCALARS = {
    "b": "BOOLEAN",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i32": "INTEGER",
    "i64": "BIGINT",
    "f32": "REAL",
    "f64": "DOUBLE",
    "s": "VARCHAR",
    "x": "BINARY",
    "d": "DATE",
    "t": "TIMESTAMP",
    "i": "INTERVAL",
    "d5": "DECIMAL(5, 2)",
    "d18": "DECIMAL(18, 0)",
    "d38": "DECIMAL(38, 38)",
}
NESTED = {
    "a": "ARRAY<VARCHAR>",
    "aa": "ARRAY<ARRAY<DECIMAL(38, 0)>>",
    "st": "STRUCT<x DOUBLE, `ü y` ARRAY<TIMESTAMP>, z STRUCT<q BINARY>>",
    "m": "MAP<VARCHAR, BIGINT>",
    "ms": "MAP<DATE, STRUCT<a INTERVAL, b MAP<INTEGER, BOOLEAN>>>",
    "deep": "ARRAY<STRUCT<m MAP<VARCHAR, ARRAY<REAL>>>>",
}
TYPES = SCALARS | NESTED
rows = st.tuples(*(values_of(parse_type(each)) for each in TYPES.values()))


KEYS = ", ".join(SCALARS)
LASTS = ", ".join(f"LAST({name}) AS last_{name}" for name in TYPES)
OF_EVERYTHING = {
    "linear": "SELECT *, md5(s) AS hash FROM everything",
    "grouped": f"SELECT {KEYS}, COUNT(*) AS n FROM everything GROUP BY {KEYS}",
    "newest": f"SELECT b, {LASTS} FROM everything GROUP BY b",
}


def test_all_types_both_ways(db):
    columns = ", ".join(starmap("{} {}".format, TYPES.items()))
    db.execute(f"CREATE SOURCE everything ({columns})")
    names = tuple(OF_EVERYTHING)
    for name, select in OF_EVERYTHING.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    copies = {name: Copy(db.subscribe(f"SELECT * FROM {name}")) for name in names}
    source, pushed = db.source("everything"), []
    schema = source.schema

    @settings(max_examples=12, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.lists(rows, min_size=1, max_size=6), st.booleans())
    def always(some, as_arrow):
        checked = schema.check_rows(some)
        if as_arrow:
            source.push_arrow(schema.rows_to_arrow(checked))
        else:
            source.push_batch(some)
        pushed.extend(schema.rows_to_arrow(checked).to_pylist())
        for name in names:
            db.wait_for(name, timeout=TIMEOUT)
        plains = [plain(tuple(row.values())) for row in pushed]
        count = len(SCALARS)
        wanted = {
            "linear": Counter(plains),
            "grouped": Counter((*row, n) for row, n in Counter(r[:count] for r in plains).items()),
            "newest": Counter({row[0]: (row[0], *row) for row in plains}.values()),
        }
        for name in names:
            shown = bag(db.query(f"SELECT * FROM {name}").to_arrow())
            assert copies[name].drain(engine_of(db).views[name].view.lsn) == shown
            if name == "linear":
                shown = Counter(row[:-1] for row in shown.elements())
            assert shown == wanted[name], name

    always()
    # What is there before a view is read in large frames.
    for name, select in OF_EVERYTHING.items():
        db.execute(f"CREATE MATERIALIZED VIEW again_{name} AS {select}")
    for name in names:
        db.wait_for(f"again_{name}", timeout=TIMEOUT)
        again = bag(db.query(f"SELECT * FROM again_{name}").to_arrow())
        assert again == bag(db.query(f"SELECT * FROM {name}").to_arrow())


OF_NOTHING = {
    "of_source": "SELECT COUNT(*) AS n, SUM(v) AS s, MAX(k) AS m, COUNT(DISTINCT v) AS d FROM logs",
    "of_table": """SELECT COUNT(*) AS n, SUM(v) AS s, MAX(k) AS m, COUNT(DISTINCT v) AS d FROM
        things""",
    "unseen": "SELECT COUNT(*) AS n FROM logs HAVING COUNT(*) > 0",
    "by_key": "SELECT k, COUNT(*) AS n FROM logs GROUP BY k",
    "of_view": (
        "SELECT MAX(n) AS m FROM by_key",
        "SELECT max(n) AS m FROM (SELECT k, count(*) AS n FROM logs GROUP BY k)",
    ),
    "of_join": "SELECT SUM(l.v * t.v) AS s FROM logs l JOIN things t ON l.k = t.k",
    "of_both": "SELECT k, v FROM logs UNION ALL SELECT k, v FROM things",
}


def test_no_rows_and_then_one(db, spark):
    twin = Twin(db, spark)
    twin.source("logs", "k VARCHAR, v BIGINT")
    twin.table("things", "k VARCHAR PRIMARY KEY, v BIGINT")
    twin.views(**OF_NOTHING)
    twin.check()
    twin.push("logs", [(None, None)])
    twin.check()
    db.insert("things", [("a", 3)])
    twin.push("logs", [("a", 2)], "single")
    twin.check()
    db.execute("DELETE FROM things")
    twin.check()


def test_a_very_wide_row(db, spark):
    twin = Twin(db, spark)
    width = 300
    columns = ", ".join(f"c{n} {['BIGINT', 'VARCHAR', 'DOUBLE'][n % 3]}" for n in range(width))
    twin.source("wide", f"k VARCHAR, {columns}")
    sums = ", ".join(f"SUM(c{n}) AS s{n}" for n in range(0, width, 3))
    twin.view("sums", f"SELECT k, {sums} FROM wide GROUP BY k")
    linear = ", ".join(f"c{n}" for n in range(width))
    twin.view("all_of_it", f"SELECT md5(k) AS h, {linear} FROM wide")
    values = [(lambda n, m: n * m), (lambda n, m: f"{n} ü {m}" * 3), (lambda n, m: n / 2 + m)]
    some = [
        (f"k{n % 4}", *(values[m % 3](n, m) if (n + m) % 7 else None for m in range(width)))
        for n in range(40)
    ]
    twin.push("wide", some[:20], "arrow")
    twin.push("wide", some[20:], "single")
    twin.check()


def test_many_keys(db):
    keys = effort(200_000, 1_000_000)
    db.execute("CREATE SOURCE hits (k BIGINT, v INT)")
    source = db.source("hits")
    order = np.random.default_rng(7).permutation(keys)
    ones = pa.array(np.ones(keys, np.int32))
    source.push_arrow(pa.record_batch([pa.array(order), ones], names=["k", "v"]))
    db.execute(
        """CREATE MATERIALIZED VIEW counts AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM hits
            GROUP BY k"""
    )
    db.wait_for("counts", timeout=TIMEOUT)
    subscription = db.subscribe("SELECT * FROM counts")
    more = pa.array(order[:5000])
    source.push_arrow(
        pa.record_batch([more, pa.array(np.full(5000, 2, np.int32))], names=["k", "v"])
    )
    source.push((-1, 3))
    db.wait_for("counts", timeout=TIMEOUT)

    count, total = np.ones(keys + 1, np.int64), np.ones(keys + 1, np.int64)
    count[order[:5000] + 1] = 2
    total[order[:5000] + 1] = 3
    total[0] = 3
    wanted = pa.table({"k": np.arange(-1, keys), "n": count, "s": total})
    assert db.query("SELECT * FROM counts").to_arrow().sort_by("k").equals(wanted)

    last, parts = engine_of(db).views["counts"].view.lsn, []
    while subscription.position < last:
        parts.append(subscription.recv(timeout=TIMEOUT).to_arrow())
    changes = pa.Table.from_batches([each.select(["k", "n", "s", "_weight"]) for each in parts])
    net = changes.group_by(["k", "n", "s"]).aggregate([("_weight", "sum")])
    assert set(net["_weight_sum"].unique().to_pylist()) == {0, 1}
    left = net.filter(pa.compute.equal(net["_weight_sum"], 1)).select(["k", "n", "s"])
    assert left.sort_by("k").equals(wanted)
