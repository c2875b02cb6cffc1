"""The current rows of a table, and the changes that statements mean."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import DuplicateKeyError, RowError
from millstream.model import Schema
from millstream.model.schema import Column
from millstream.model.types import parse_type
from millstream.sql import parse, plan_update, plan_where
from millstream.sql.filter import where_of
from millstream.tables import Changes, Table
from millstream.tables import changes as dml

SCHEMA = Schema.of(key=("id",), id="BIGINT NOT NULL", v="BIGINT")


def update(sql):
    (statement,) = parse(sql)
    return plan_update(statement, SCHEMA)


def where(sql):
    (statement,) = parse(f"DELETE FROM t WHERE {sql}")
    return plan_where(statement.where, SCHEMA)  # type: ignore[attr-defined]


class Committed:
    """A table whose changes are committed at once; keeps a copy by weights, and one by key."""

    def __init__(self, *rows):
        self.table, self.lsn = Table("t", SCHEMA), 0
        self.weights, self.by_key = {}, {}
        if rows:
            self.commit(dml.insert(self.table, rows))

    def commit(self, changes):
        batch = changes.batch(SCHEMA)
        if batch is None:
            return None
        placed = batch.placed("t", self.lsn + 1, committed_at=1, origin=None)
        self.lsn = placed.lsn
        self.table.apply(placed)
        for row, weight in zip(placed.rows, placed.weights, strict=True):
            self.weights[row] = self.weights.get(row, 0) + weight
        for change in placed:  # as a reader does that keeps the rows by key
            if change.op == "delete":
                del self.by_key[change.row[0]]
            else:
                self.by_key[change.row[0]] = change.row
        return placed

    @property
    def rows(self):
        return sorted(self.table.snapshot()[0])


class TestInsert:
    def test_new_rows_appear(self):
        one = Committed((1, 10), (2, 20))
        assert one.rows == [(1, 10), (2, 20)]
        assert one.table.lsn == 2
        assert len(one.table) == 2

    @pytest.mark.parametrize("rows", [[(3, 0), (1, 0)], [(3, 0), (3, 1)]])
    def test_an_existing_key_refuses_the_entire_statement(self, rows):
        one = Committed((1, 10))
        with pytest.raises(DuplicateKeyError, match="id = ") as caught:
            dml.insert(one.table, rows)
        assert caught.value.key == (rows[1][0],)
        assert one.rows == [(1, 10)]

    def test_replace_is_an_update(self):
        one = Committed((1, 10))
        changes = dml.insert(one.table, [(1, 11), (2, 20), (2, 21)], "replace")
        assert (changes.rows, changes.weights) == ([(1, 10), (1, 11), (2, 21)], [-1, 1, 1])
        assert changes.count == 2
        assert [c.op for c in one.commit(changes)] == ["update", "insert"]
        assert one.rows == [(1, 11), (2, 21)]

    def test_replace_by_the_same_changes_nothing(self):
        one = Committed((1, 10))
        changes = dml.insert(one.table, [(1, 10)], "replace")
        assert changes.count == 1
        assert changes.batch(SCHEMA) is None

    def test_ignore_keeps_what_is_there(self):
        one = Committed((1, 10))
        changes = dml.insert(one.table, [(1, 11), (2, 20), (2, 21)], "ignore")
        assert (changes.rows, changes.count) == ([(2, 20)], 1)


class TestUpdate:
    def test_replaces_the_rows_that_are_meant(self):
        one = Committed((1, 10), (2, 20), (3, 30))
        changes = dml.update(one.table, *update("UPDATE t SET v = v + 1 WHERE id > 1"))
        assert changes.count == 2
        assert [c.op for c in one.commit(changes)] == ["update", "update"]
        assert one.rows == [(1, 10), (2, 21), (3, 31)]

    def test_unchanged_rows_are_counted_and_not_emitted(self):
        one = Committed((1, 10), (2, 20))
        changes = dml.update(one.table, *update("UPDATE t SET v = 10"))
        assert (changes.count, len(changes.rows)) == (2, 2)

    @pytest.mark.parametrize(
        ("sql", "expected"),
        [
            ("UPDATE t SET id = id + 1", [(2, 10), (3, 20), (4, 30)]),
            ("UPDATE t SET id = id - 1", [(0, 10), (1, 20), (2, 30)]),
            ("UPDATE t SET id = 4 - id", [(1, 30), (2, 20), (3, 10)]),
            ("UPDATE t SET id = 4 - id, v = 0", [(1, 0), (2, 0), (3, 0)]),
            ("UPDATE t SET id = 9 WHERE id = 2", [(1, 10), (3, 30), (9, 20)]),
        ],
    )
    def test_keys_may_move_and_change_places(self, sql, expected):
        """A reader that keeps the rows by key, one change after the other, has them right, too."""
        one = Committed((1, 10), (2, 20), (3, 30))
        one.commit(dml.update(one.table, *update(sql)))
        assert one.rows == expected
        assert sorted(one.by_key.values()) == expected
        assert {row: w for row, w in one.weights.items() if w} == dict.fromkeys(expected, 1)

    @pytest.mark.parametrize(
        "sql",
        ["UPDATE t SET id = 1 WHERE id = 2", "UPDATE t SET id = 7", "UPDATE t SET id = 2 - id % 2"],
    )
    def test_two_rows_cannot_have_one_key(self, sql):
        one = Committed((1, 10), (2, 20), (3, 30))
        with pytest.raises(DuplicateKeyError):
            dml.update(one.table, *update(sql))
        assert one.rows == [(1, 10), (2, 20), (3, 30)]


class TestDelete:
    def test_removes_the_rows_that_are_meant(self):
        one = Committed((1, 10), (2, 20), (3, 30))
        changes = dml.delete(one.table, where("v >= 20"))
        assert (changes.count, changes.weights) == (2, [-1, -1])
        one.commit(changes)
        assert one.rows == [(1, 10)]
        one.commit(dml.delete(one.table, None))
        assert one.rows == []
        assert dml.delete(one.table, None).batch(SCHEMA) is None


statements = st.one_of(
    st.tuples(
        st.sampled_from(["error", "replace", "ignore"]),
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=4),
    ),
    st.sampled_from(
        [
            "UPDATE t SET v = v + 1",
            "UPDATE t SET v = 0 WHERE id > 2",
            "UPDATE t SET id = id + 1",
            "UPDATE t SET id = 5 - id",
            "UPDATE t SET id = id + 3 WHERE id < 3",
        ]
    ),
    st.integers(0, 5),
)


@given(st.lists(statements, max_size=15))
def test_the_log_adds_up_to_the_table(script):
    """Whatever is done: the weights, and a copy by key, say the same as the rows."""
    one = Committed()
    for step in script:
        try:
            if isinstance(step, tuple):
                changes = dml.insert(one.table, step[1], step[0])
            elif isinstance(step, str):
                changes = dml.update(one.table, *update(step))
            else:
                changes = dml.delete(one.table, where(f"id = {step}"))
        except DuplicateKeyError:
            continue
        one.commit(changes)
        assert {row: w for row, w in one.weights.items() if w} == dict.fromkeys(one.rows, 1)
        assert sorted(one.by_key.values()) == one.rows
    fresh = Table("t", SCHEMA)
    assert fresh.snapshot()[:2] == ([], 0)


class TestApply:
    def test_a_replay_gives_the_same_rows(self, tmp_path):
        with ms.open(tmp_path) as db:
            db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            db.insert("t", [(n, n) for n in range(20)])
            db.execute("UPDATE t SET id = 19 - id; DELETE FROM t WHERE v % 3 = 0")
            expected = sorted(db.query("SELECT * FROM t").fetchall())
        with ms.open(tmp_path) as db:
            assert sorted(db.query("SELECT * FROM t").fetchall()) == expected
            db.insert("t", [(19, 0)])

    def test_a_snapshot_is_not_changed_by_what_follows(self):
        one = Committed((1, 10))
        rows, lsn, _ = one.table.snapshot()
        one.commit(dml.delete(one.table, None))
        assert (rows, lsn) == ([(1, 10)], 1)


class TestEvolve:
    def test_rows_get_nulls(self):
        one = Committed((1, 10))
        wider = SCHEMA.with_column(Column("w", parse_type("VARCHAR")))
        one.table.evolve(wider)
        assert one.table.snapshot()[0] == [(1, 10, None)]
        assert dml.insert(one.table, [(2, 20, "x")]).rows == [(2, 20, "x")]

    def test_in_a_database(self, tmp_path):
        with ms.open(tmp_path) as db:
            db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            db.insert("t", [(1, 10)])
            db.execute("ALTER TABLE t ADD COLUMN w VARCHAR")
            db.execute("UPDATE t SET w = 'x' WHERE id = 1")
            db.insert("t", [(2, 20, None)])
        with ms.open(tmp_path) as db:
            assert db.query("SELECT * FROM t").fetchall() == [(1, 10, "x"), (2, 20, None)]


def test_a_null_where_there_must_be_a_value_is_refused():
    schema = Schema.of(key=("id",), id="BIGINT NOT NULL", v="BIGINT NOT NULL")
    table = Table("t", schema)

    class Nothing:
        def rows(self, rows):
            return [(row[0], None) for row in rows]

    batch = dml.insert(table, [(1, 1)]).batch(schema)
    table.apply(batch.placed("t", 1, committed_at=1, origin=None))
    with pytest.raises(RowError, match="t: ") as caught:
        dml.update(table, None, Nothing())
    assert caught.value.column == "v"


def test_changes_that_are_none():
    assert Changes().batch(SCHEMA) is None
    changes = Changes()
    changes.replace(None, (1, 1))
    assert changes.batch(SCHEMA).is_insert_only


@pytest.mark.parametrize(
    ("type_", "values", "text"),
    [
        ("BIGINT", (7, 8), "7"),
        ("INT", (-7, 8), "-7"),
        ("VARCHAR", ("äö", "b"), "'äö'"),
        ("BOOLEAN", (True, False), "TRUE"),
        ("DATE", (date(2026, 1, 2), date(2026, 1, 3)), "DATE '2026-01-02'"),
        (
            "TIMESTAMP",
            (datetime(2026, 1, 2, 3, tzinfo=UTC), datetime(2026, 1, 2, 4, tzinfo=UTC)),
            "TIMESTAMP '2026-01-02 03:00:00'",
        ),
        ("DECIMAL(10, 2)", (Decimal("1.50"), Decimal("2.50")), "1.5"),
        ("DOUBLE", (1.5, 2.5), "1.5"),
        ("VARBINARY", (b"a", b"b"), "X'61'"),
    ],
)
def test_a_row_is_found_by_its_key(tmp_path, type_, values, text):
    with ms.open(tmp_path / "db") as db:
        db.execute(f"CREATE TABLE t (k {type_}, part INT, v INT, PRIMARY KEY (k, part))")
        db.insert("t", [(value, part, 0) for value in values for part in (1, 2)])
        wanted = f"k = {text} AND part = 1"
        assert db.query(f"SELECT v FROM t WHERE {wanted}").fetchall() == [(0,)]
        assert db.query(f"SELECT v FROM t WHERE {wanted} AND v > 0").fetchall() == []
        assert db.query(f"SELECT v FROM t WHERE part = 1 AND {text} = k").fetchall() == [(0,)]
        assert len(db.query(f"SELECT v FROM t WHERE k = {text}").fetchall()) == 2
        assert db.execute(f"UPDATE t SET v = v + 1 WHERE {wanted}").rowcount == 1
        assert db.execute(f"UPDATE t SET v = v + 1 WHERE {wanted} AND v = 0").rowcount == 0
        assert db.query("SELECT part, v FROM t WHERE v = 1").fetchall() == [(1, 1)]
        assert db.execute(f"DELETE FROM t WHERE {wanted} AND k IS NULL").rowcount == 0
        assert db.execute(f"DELETE FROM t WHERE {wanted}").rowcount == 1
        assert db.execute(f"DELETE FROM t WHERE {wanted}").rowcount == 0
        assert len(db.query("SELECT * FROM t").fetchall()) == 3


def test_only_equality_with_every_column_of_the_key_pins_it():
    schema = Schema.of(key=("a", "b"), a="BIGINT NOT NULL", b="VARCHAR NOT NULL", v="BIGINT")

    def pinned(sql):
        return where_of(sql, schema).pinned((0, 1))

    assert pinned("a = 1 AND b = 'x'") == (1, "x")
    assert pinned("v > 2 AND (b = 'x' AND 1 = a)") == (1, "x")
    for sql in (
        "a = 1",
        "a = 1 OR b = 'x'",
        "a = v AND b = 'x'",
        "a >= 1 AND b = 'x'",
        "NOT a = 1",
    ):
        assert pinned(sql) is None


class TestColumns:
    def test_they_follow_every_change(self):
        made = Committed((1, 10), (2, None))
        assert _columns(made.table, "v") == ([10, None], 2)
        made.commit(dml.insert(made.table, [(3, 30)]))
        assert _columns(made.table, "v") == ([10, None, 30], 3)
        made.commit(dml.delete(made.table, where("id = 2")))
        assert _columns(made.table, "id") == ([1, 3], 2)
        made.table.evolve(SCHEMA.with_column(Column("w", parse_type("VARCHAR"))))
        assert _columns(made.table, "w") == ([None, None], 2)
        made.table.clear()
        assert _columns(made.table, "id") == ([], 0)

    def test_they_are_made_once_for_each_state(self):
        made = Committed((1, 10))
        (one, _), (two, _) = made.table.columns(["v"]), made.table.columns(["v", "id"])
        assert one["v"] is two["v"]
        made.commit(dml.insert(made.table, [(3, 30)]))
        assert made.table.columns(["v"])[0]["v"] is not one["v"]

    def test_none_of_them(self):
        assert Committed((1, 10), (2, 20)).table.columns([]) == ({}, 2)


def _columns(table, name):
    arrays, count = table.columns([name])
    return arrays[name].to_pylist(), count
