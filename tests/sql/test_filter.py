"""Filters: SELECT, INSERT and UPDATE of one log, bound to its schema."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from millstream.errors import (
    ExpressionError,
    RowError,
    SqlColumnError,
    SqlTypeError,
    SqlUnsupportedError,
)
from millstream.model import Schema
from millstream.sql.filter import plan_insert, plan_select, plan_update, plan_where, where_of
from millstream.sql.statements.parse import parse

SCHEMA = Schema.of(
    key=("id",),
    id="BIGINT NOT NULL",
    symbol="VARCHAR",
    price="DOUBLE",
    n="INT",
    cents="DECIMAL(10, 2)",
    ts="TIMESTAMP",
    day="DATE",
    small="TINYINT",
    r="REAL",
    b="BOOLEAN",
)
ROW = (1, "AAPL", 101.0, 2, Decimal("1.50"), datetime(2026, 1, 1, tzinfo=UTC), None, 1, 0.5, True)
OTHER = (2, "MSFT", None, 0, None, None, date(2026, 1, 1), None, None, None)


def select(sql, schema=SCHEMA, **options):
    (statement,) = parse(sql)
    return plan_select(statement, schema, **options)


def insert(sql, schema=SCHEMA):
    (statement,) = parse(sql)
    return plan_insert(statement, schema)


def update(sql, schema=SCHEMA):
    (statement,) = parse(sql)
    return plan_update(statement, schema)


# --- SELECT ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("items", ["*", "t.*", "T.*"])
def test_all_columns_are_no_projection(items):
    plan = select(f"SELECT {items} FROM t")
    assert plan.projection is None
    assert plan.predicate is None
    assert plan.schema == SCHEMA
    assert plan.fingerprint == select("SELECT * FROM T").fingerprint


def test_columns_by_name_are_these_and_no_others():
    """When a column is added, ``*`` has it, and a list of names has not."""
    plan = select(f"SELECT {', '.join(SCHEMA.names)} FROM t")
    assert plan.projection is not None
    assert plan.schema == SCHEMA
    assert plan.fingerprint != select("SELECT * FROM t").fingerprint


def test_a_projection_in_both_forms():
    plan = select("SELECT symbol, price * n AS value, ID FROM t AS x WHERE x.price > 100 LIMIT 3")
    assert plan.schema.ddl == "symbol VARCHAR, value DOUBLE, id BIGINT NOT NULL"
    assert plan.schema.key == ("id",)
    assert plan.limit == 3
    assert plan.projection.rows([ROW]) == [("AAPL", 202.0, 1)]
    assert plan.projection.row(ROW) == ("AAPL", 202.0, 1)
    assert plan.predicate.places([ROW, OTHER, ROW]) == [0, 2]
    batch = SCHEMA.rows_to_arrow([ROW, OTHER])
    made = plan.projection.arrow(batch)
    assert made.schema.equals(plan.schema.arrow, check_metadata=True)
    assert plan.schema.arrow_to_rows(made) == [("AAPL", 202.0, 1), ("MSFT", None, 2)]
    # Columns that stay as they are share their memory with the batch.
    assert made.column(0).buffers()[2].address == batch.column(1).buffers()[2].address
    assert batch.filter(plan.predicate.mask(batch)).num_rows == 1


def test_the_key_is_kept_under_another_name_and_lost_with_its_column():
    assert select("SELECT symbol AS id, id AS number FROM t").schema.key == ("number",)
    assert select("SELECT symbol FROM t").schema.key == ()
    assert select("SELECT id + 1 AS id FROM t").schema.key == ()


@pytest.mark.parametrize(
    ("where", "equality", "residual"),
    [
        ("symbol = 'AAPL'", (1, {"AAPL"}), None),
        ("'AAPL' = symbol", (1, {"AAPL"}), None),
        ("price > 1 AND symbol = 'AAPL' AND n = 2", (1, {"AAPL"}), "price > 1.0D AND n = 2"),
        ("symbol IN ('a', 'b', NULL) AND price > 1", (1, {"a", "b"}), "price > 1.0D"),
        ("id = 5.0", (0, {5}), None),
        ("small = 5", (7, {5}), None),
        ("cents = 1.5", (4, {Decimal("1.50")}), None),
        ("ts = '2026-01-01'", (5, {datetime(2026, 1, 1, tzinfo=UTC)}), None),
        ("day IN ('2026-01-01')", (6, {date(2026, 1, 1)}), None),
        ("b = TRUE", (9, {True}), None),
        ("price = 1.0", None, "price = 1.0D"),
        ("symbol = NULL", None, "CAST(NULL AS BOOLEAN)"),
        ("symbol = 'a' OR n = 1", None, "symbol = 'a' OR n = 1"),
        ("NOT symbol = 'a'", None, "NOT (symbol = 'a')"),
        ("n = 1.5", None, None),
        # To look the symbol up would skip the division, which the text puts first.
        ("1 / n > 0 AND symbol = 'a'", None, "(1.0D / CAST(n AS DOUBLE)) > 0.0D AND symbol = 'a'"),
        ("symbol = 'a' AND 1 / n > 0", (1, {"a"}), "(1.0D / CAST(n AS DOUBLE)) > 0.0D"),
    ],
)
def test_equality_and_the_rest(where, equality, residual):
    plan = select(f"SELECT * FROM t WHERE {where}")
    assert plan.equality == (equality and (equality[0], frozenset(equality[1])))
    if residual is not None:
        assert plan.residual.sql == residual
    elif equality is not None:
        assert plan.residual is None


def test_equality_has_values_of_the_columns_type():
    ((_, values),) = [select("SELECT * FROM t WHERE cents = 1.5").equality]
    assert [str(value) for value in values] == ["1.50"]


def test_an_added_condition_comes_first():
    plan = select("SELECT * FROM t WHERE 1 / n > 0 AND id = 1", extra=("SYMBOL", "AAPL"))
    assert plan.equality == (1, frozenset(["AAPL"]))
    assert plan.predicate.sql.startswith("symbol = 'AAPL' AND ")
    assert plan.residual.sql == "(1.0D / CAST(n AS DOUBLE)) > 0.0D AND id = 1L"
    assert plan.predicate.places([OTHER, ROW]) == [1]  # the division by zero is not reached
    alone = select("SELECT * FROM t", extra=("symbol", "AAPL"))
    assert alone.residual is None
    assert alone.fingerprint == select("SELECT * FROM t WHERE symbol = 'AAPL'").fingerprint
    assert select("SELECT * FROM t", extra=("symbol", None)).equality == (1, frozenset())
    with pytest.raises(SqlTypeError, match="cannot be compared exactly"):
        select("SELECT * FROM t", extra=("price", 1.0))
    with pytest.raises(SqlColumnError, match="no column"):
        select("SELECT * FROM t", extra=("tenant", "a"))


def test_different_plans_have_different_fingerprints():
    texts = [
        "SELECT id FROM t",
        "SELECT id FROM u",
        "SELECT id AS i FROM t",
        "SELECT id FROM t LIMIT 1",
        "SELECT id FROM t WHERE n = 1",
        "SELECT id FROM t WHERE n = 2",
        "SELECT id FROM t WHERE symbol = '1'",
        "SELECT id FROM t WHERE price = 1",
    ]
    assert len({select(text).fingerprint for text in texts}) == len(texts)
    one, two = "n IN (1, 2) AND 3 < n", "N IN (2, 1, 1) and (n > 3.0)"
    assert (
        select(f"SELECT id FROM t WHERE {one}").fingerprint
        == select(f"select Id from T x where {two}").fingerprint
    )


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELECT idd FROM t", SqlColumnError, "no column idd"),
        ("SELECT x.id FROM t", SqlColumnError, "no table or alias x"),
        ("SELECT t.id FROM t x", SqlColumnError, "no table or alias t"),
        ("SELECT x.* FROM t", SqlColumnError, "no table or alias x"),
        ("SELECT id, ID FROM t", SqlColumnError, "two columns are named"),
        ("SELECT id AS _lsn FROM t", SqlColumnError, "_lsn"),
        ("SELECT NULL AS x FROM t", SqlTypeError, "NULL of no type"),
        ("SELECT * FROM t WHERE n", SqlTypeError, "expected a condition"),
    ],
)
def test_a_select_that_cannot_be(sql, error, message):
    with pytest.raises(error, match=message) as caught:
        select(sql)
    assert caught.value.sql == sql
    assert caught.value.hint


def test_what_has_no_name_has_that_of_its_place():
    """As in views and in queries with groups."""
    assert select("SELECT id + 1, n, UPPER(symbol) FROM t").schema.names == ("_c0", "n", "_c2")


def test_a_failing_row_fails_in_both_forms():
    predicate = where_of("10 / n > 1", SCHEMA)
    batch = SCHEMA.rows_to_arrow([ROW, OTHER])
    for evaluate in (lambda: predicate.places([ROW, OTHER]), lambda: predicate.mask(batch)):
        with pytest.raises(ExpressionError, match="division by zero") as caught:
            evaluate()
        assert "NULLIF" in caught.value.hint
    guarded = where_of("n <> 0 AND 10 / n > 1", SCHEMA)
    assert guarded.places([ROW, OTHER]) == [0]
    assert guarded.mask(batch).to_pylist() == [True, False]


def test_empty_batches():
    predicate = where_of("1 / 0 > n", SCHEMA)
    assert predicate.places([]) == []
    assert predicate.mask(SCHEMA.rows_to_arrow([])).equals(pa.array([], pa.bool_()))
    assert where_of("TRUE", SCHEMA).mask(SCHEMA.rows_to_arrow([ROW])).to_pylist() == [True]
    plan = select("SELECT 1 AS one, 1 / 0 AS bad FROM t")
    assert plan.projection.arrow(SCHEMA.rows_to_arrow([])).num_rows == 0


def test_a_where_that_is_not_there():
    assert plan_where(None, SCHEMA) is None


# --- INSERT ---------------------------------------------------------------------------------------


def test_values_become_rows_in_the_order_of_the_schema():
    rows = insert(
        "INSERT INTO t (symbol, ID, price, cents, ts, day, r) VALUES "
        "('a', 1, 1.5, 2, '2026-01-01 12:00:00', DATE '2026-01-01', 0.1), "
        "(UPPER('b') || 'c', 1 + 2, -1e3, NULL, NULL, '2026-01-02', 1)"
    )
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert rows == [
        (
            1,
            "a",
            1.5,
            None,
            Decimal("2.00"),
            noon,
            date(2026, 1, 1),
            None,
            0.10000000149011612,
            None,
        ),
        (3, "Bc", -1000.0, None, None, None, date(2026, 1, 2), None, 1.0, None),
    ]
    assert str(rows[0][4]) == "2.00"


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("INSERT INTO t (idd) VALUES (1)", SqlColumnError, "no column idd"),
        ("INSERT INTO t (symbol) VALUES ('a')", RowError, "row 0, column 'id'"),
        ("INSERT INTO t (id) VALUES (1), (NULL)", RowError, "row 1, column 'id'"),
        ("INSERT INTO t (id) VALUES (1e19)", SqlTypeError, "row 0, column id: 1e.19D is out of"),
        ("INSERT INTO t (id, small) VALUES (1, 128)", SqlTypeError, "128 is out of the range of"),
        ("INSERT INTO t (id, cents) VALUES (1, 99999999.995)", SqlTypeError, "out of the range"),
        ("INSERT INTO t (id, n) VALUES (1, '5')", SqlTypeError, "expected INTEGER, got VARCHAR"),
        ("INSERT INTO t (id, symbol) VALUES (1, 5)", SqlTypeError, "expected VARCHAR"),
        ("INSERT INTO t (id, ts) VALUES (1, 'noon')", SqlTypeError, "is not a valid TIMESTAMP"),
        ("INSERT INTO t (id, symbol) VALUES (1, price)", SqlColumnError, "only constants"),
        ("INSERT INTO t (id, price) VALUES (1, 1 / 0)", ExpressionError, "division by zero"),
        ("INSERT INTO t VALUES (1, 'a')", SqlTypeError, "2 values for 10 columns"),
    ],
)
def test_an_insert_that_cannot_be(sql, error, message):
    with pytest.raises(error, match=message) as caught:
        insert(sql)
    assert caught.value.hint


# --- UPDATE ---------------------------------------------------------------------------------------


def test_an_update_gives_rows_with_all_columns():
    predicate, projection = update(
        "UPDATE t SET price = price * 2, N = small, cents = 3 WHERE id = 1"
    )
    assert predicate.places([ROW, OTHER]) == [0]
    assert projection.schema == SCHEMA
    assert projection.rows([ROW])[0][:5] == (1, "AAPL", 202.0, 1, Decimal("3.00"))
    batch = SCHEMA.rows_to_arrow([ROW, OTHER])
    assert SCHEMA.arrow_to_rows(projection.arrow(batch)) == projection.rows([ROW, OTHER])
    assert update("UPDATE t SET symbol = NULL")[0] is None


@pytest.mark.parametrize(
    ("assignment", "stored"),
    [
        ("cents = cents + 1", Decimal("2.50")),
        ("cents = cents * 1.005", Decimal("1.51")),
        ("cents = cents / 4", Decimal("0.38")),
        ("cents = price", Decimal("101.00")),
        ("n = id + 1", 2),
        ("n = -cents", -1),
        ("price = id + 16777216", 16777217.0),
        ("price = cents", 1.5),
        ("small = small + 126", 127),
        ("r = id + 16777216", 16777216.0),
        ("r = price / 3", 33.66666793823242),
        ("day = ts", date(2026, 1, 1)),
    ],
)
def test_an_assignment_converts_to_the_type_of_its_column(assignment, stored):
    _, projection = update(f"UPDATE t SET {assignment}")
    place = SCHEMA.names.index(assignment.split()[0])
    assert repr(projection.row(ROW)[place]) == repr(stored)
    by_arrow = SCHEMA.arrow_to_rows(projection.arrow(SCHEMA.rows_to_arrow([ROW])))
    assert repr(by_arrow[0][place]) == repr(stored)


@pytest.mark.parametrize(
    "assignment", ["small = small + 127", "cents = 1e8 + n", "n = price * 1e8"]
)
def test_what_its_column_cannot_hold_fails(assignment):
    _, projection = update(f"UPDATE t SET {assignment}")
    for evaluate in (
        lambda: projection.row(ROW),
        lambda: projection.arrow(SCHEMA.rows_to_arrow([ROW])),
    ):
        with pytest.raises(ExpressionError, match="out of the range"):
            evaluate()


def test_a_null_for_a_column_that_is_not_null():
    _, projection = update("UPDATE t SET id = n")
    nothing = (1, *[None] * 9)
    assert projection.row(ROW)[0] == 2
    for evaluate in (
        lambda: projection.row(nothing),
        lambda: projection.arrow(SCHEMA.rows_to_arrow([ROW, nothing])),
    ):
        with pytest.raises(ExpressionError, match="id is NOT NULL"):
            evaluate()


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("UPDATE t SET nn = 1", SqlColumnError, "no column nn"),
        ("UPDATE t SET id = NULL", SqlTypeError, "id is NOT NULL"),
        ("UPDATE t SET n = symbol", SqlTypeError, "expected INTEGER, got VARCHAR"),
        ("UPDATE t SET n = b", SqlTypeError, "expected INTEGER, got BOOLEAN"),
        ("UPDATE t SET day = n", SqlTypeError, "expected DATE, got INTEGER"),
        ("UPDATE t SET small = 128", SqlTypeError, "column small: 128 is out of the range"),
        ("UPDATE t SET symbol = n", SqlTypeError, "expected VARCHAR, got INTEGER"),
        ("UPDATE t SET n = n WHERE SQRT(n) = EXP(1)", SqlUnsupportedError, "EXP"),
    ],
)
def test_an_update_that_cannot_be(sql, error, message):
    with pytest.raises(error, match=message) as caught:
        update(sql)
    assert caught.value.hint
