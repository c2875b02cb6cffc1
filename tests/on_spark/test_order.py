"""The order of a view's rows by what is not selected, and QUALIFY by it, against DuckDB."""

from __future__ import annotations

import random

import pyarrow as pa

import millstream as ms
from millstream.testing import TIMEOUT

from ..seed import SEED  # noqa: TID252
from .against_duckdb import Model, Proof

DDL = "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT); CREATE SOURCE e (k VARCHAR, n INT)"
COLUMNS = [("k", pa.string()), ("n", pa.int32())]
SCHEMAS = {"t": pa.schema([("id", pa.int32()), *COLUMNS]), "e": pa.schema(COLUMNS)}
WAYS = "NULLS LAST"
ORDERED = {
    "rows": f"SELECT k FROM t ORDER BY n DESC {WAYS}, id",
    "groups": f"SELECT k, SUM(n) AS s FROM e GROUP BY k ORDER BY COUNT(*) DESC {WAYS}, k {WAYS}",
    "aliased": f"SELECT k AS n, n AS m FROM t ORDER BY COALESCE(m, 0) + 1 {WAYS}, id",
    "growing": f"SELECT n AS m FROM e ORDER BY k || 'x' {WAYS}, m {WAYS}",
    "joined": f"SELECT t.k FROM t JOIN e ON t.k = e.k ORDER BY e.n {WAYS}, t.id",
    "distinct_rows": f"SELECT DISTINCT n FROM t ORDER BY n % 2 {WAYS}, n {WAYS}",
    "united": f"SELECT n, k FROM t UNION SELECT n, k FROM e ORDER BY -n {WAYS}, k {WAYS}",
    "ranked": f"SELECT k, RANK() OVER (ORDER BY id) AS r FROM t ORDER BY n {WAYS}, id DESC {WAYS}",
}
QUALIFIED = {
    "of_groups": """SELECT k, SUM(n) AS s FROM t GROUP BY k
        QUALIFY RANK() OVER (ORDER BY COUNT(*)) = 1""",
    "hidden": """SELECT k AS n FROM t GROUP BY k
        QUALIFY DENSE_RANK() OVER (ORDER BY SUM(n) DESC NULLS LAST) <= 2 AND k IS NOT NULL""",
    "shown": """SELECT k, ROW_NUMBER() OVER (ORDER BY MAX(id)) AS r FROM t GROUP BY k
        QUALIFY r > 1 AND COUNT(*) OVER (PARTITION BY COUNT(*)) = 1""",
    "below": """SELECT COUNT(*) AS c FROM (SELECT k FROM t GROUP BY k
        QUALIFY SUM(COUNT(*)) OVER (ORDER BY k NULLS FIRST) > 2) x""",
}


class TestOrderByWhatIsNotSelected:
    def check(self, proof):
        proof.check()
        for name, query in ORDERED.items():
            expected = proof.model.answer(query)
            assert proof.db.query(f"SELECT * FROM {name}").fetchall() == expected, name
            with proof.db.subscribe(f"SELECT * FROM {name}") as subscription:
                assert subscription.recv(timeout=TIMEOUT).rows == expected, name

    def change(self, proof, dice):
        rows = [(dice.choice([None, "a", "b", "c"]), dice.choice([None, 1, 2, 3])) for _ in "abc"]
        draw = dice.random()
        if draw < 0.3:
            proof.insert("e", rows)
        elif draw < 0.7:
            ids = dice.sample(range(8), 3)
            proof.insert("t", [(at, *row) for at, row in zip(ids, rows, strict=True)])
        elif draw < 0.85:
            proof.update("t", {"n": dice.choice([None, 1, 5])}, {"id": dice.randrange(8)})
        else:
            proof.delete("t", {"id": dice.randrange(8)})

    def test_is_the_order_of_the_rows_that_are_read(self, tmp_path, spark):
        dice, model = random.Random(SEED), Model(SCHEMAS)
        with ms.open(tmp_path / "db", spark=spark) as db:
            db.execute(DDL)
            proof = Proof(db, model, {"t": ("id",)})
            for name, query in ORDERED.items():
                proof.view(name, query)
            for _ in range(12):
                self.change(proof, dice)
                self.check(proof)
        with ms.open(tmp_path / "db", spark=spark) as db:
            proof.reopened(db)
            for _ in range(4):
                self.check(proof)
                self.change(proof, dice)
            self.check(proof)

    def test_a_change_of_the_order_alone_is_no_change_of_the_view(self, db):
        db.execute(
            f"{DDL}; INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2);"
            "CREATE MATERIALIZED VIEW v AS SELECT k FROM t ORDER BY n DESC"
        )
        db.wait_for("v", timeout=TIMEOUT)
        with db.subscribe("SELECT * FROM v") as subscription:
            assert subscription.recv(timeout=TIMEOUT).rows == [("b",), ("a",)]
            db.execute("UPDATE t SET n = 3 WHERE id = 1")
            db.execute("UPDATE t SET k = 'c' WHERE id = 2")
            changes = subscription.recv(timeout=TIMEOUT)
            assert [(each.op, each.row) for each in changes] == [
                ("delete", ("b",)),
                ("insert", ("c",)),
            ]
        assert db.query("SELECT * FROM v").fetchall() == [("a",), ("c",)]


def test_qualify_by_what_is_not_selected(db):
    db.execute(DDL)
    proof, dice = Proof(db, Model(SCHEMAS), {"t": ("id",)}), random.Random(SEED)
    for name, query in QUALIFIED.items():
        proof.view(name, query)
    for _ in range(12):
        TestOrderByWhatIsNotSelected().change(proof, dice)
        proof.check()
