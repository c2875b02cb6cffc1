"""Texts become the statements that they mean; nothing breaks the parser."""

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.errors import SqlError
from millstream.masking import without_secrets
from millstream.model import Column, Schema, parse_type
from millstream.sql import (
    AddColumn,
    CreateSource,
    CreateTable,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Listen,
    Millstream,
    Notify,
    Option,
    Query,
    Select,
    Show,
    ShowChanges,
    ShowCreate,
    Unlisten,
    Update,
    WatermarkSpec,
    parse,
    parse_expression,
)
from millstream.sql.positions import place_of
from millstream.sql.statements.statement import AsOf

e = parse_expression

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)

TRADES = Schema.of(symbol="VARCHAR NOT NULL", price="DOUBLE", ts="TIMESTAMP")

CASES = [
    # --- CREATE ---
    (
        (
            "CREATE SOURCE trades (symbol TEXT NOT NULL, price DOUBLE PRECISION NULL, "
            "ts TIMESTAMP, WATERMARK FOR TS AS ts - INTERVAL '1 second')"
        ),
        CreateSource(
            name="trades", schema=TRADES, watermark=WatermarkSpec("ts", timedelta(seconds=1))
        ),
    ),
    (
        "create source if not exists T (WATERMARK FOR a, A timestamp)",
        CreateSource(
            name="T",
            schema=Schema.of(A="TIMESTAMP"),
            watermark=WatermarkSpec("A", timedelta(0)),
            if_not_exists=True,
        ),
    ),
    (
        (
            "CREATE SOURCE s (a INT) WITH (Buffer_Size = 1024, backpressure = 'block', x.y = TRUE, "
            "'q' = -0.5, \"r\" = 1e3, f = false, partition = 'it''s \\\\')"
        ),
        CreateSource(
            name="s",
            schema=Schema.of(a="INT"),
            options={
                "buffer_size": Option(1024),
                "backpressure": Option("block"),
                "x.y": Option(True),
                "q": Option(-0.5),
                "r": Option(1000.0),
                "f": Option(False),
                "partition": Option("it's \\"),
            },
        ),
    ),
    (
        (
            'CREATE SOURCE s (timestamp TIMESTAMP, "unit price" DECIMAL(10, 2), `order` INT, '
            "key TEXT, watermark DATE, "
            "file ARRAY<STRUCT<a: INT, `b c` MAP<TEXT, BIGINT>>> NOT NULL)"
        ),
        CreateSource(
            name="s",
            schema=Schema.of(
                {
                    "timestamp": "TIMESTAMP",
                    "unit price": "DECIMAL(10, 2)",
                    "order": "INT",
                    "key": "VARCHAR",
                    "watermark": "DATE",
                    "file": "ARRAY<STRUCT<a INT, `b c` MAP<TEXT, BIGINT>>> NOT NULL",
                }
            ),
        ),
    ),
    (
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT) WITH (tenant = 'v')",
        CreateTable(
            name="t",
            schema=Schema.of(key=("id",), id="BIGINT NOT NULL", v="TEXT"),
            options={"tenant": Option("v")},
        ),
    ),
    (
        "CREATE TABLE IF NOT EXISTS t (a INT, PRIMARY KEY (B, a), b INT NOT NULL)",
        CreateTable(
            name="t",
            schema=Schema.of(key=("b", "a"), a="INT NOT NULL", b="INT NOT NULL"),
            if_not_exists=True,
        ),
    ),
    # --- ALTER and DROP ---
    (
        "ALTER SOURCE s ADD COLUMN IF NOT EXISTS c ARRAY<INT>",
        AddColumn(
            kind="source",
            name="s",
            added=Column("c", parse_type("ARRAY<INT>")),
            if_not_exists=True,
        ),
    ),
    (
        "ALTER TABLE t ADD file TEXT NULL",
        AddColumn(kind="table", name="t", added=Column("file", parse_type("TEXT"))),
    ),
    (
        "DROP SOURCE IF EXISTS s CASCADE",
        Drop(kind="source", name="s", if_exists=True, cascade=True),
    ),
    ("DROP TABLE t RESTRICT", Drop(kind="table", name="t")),
    ('DROP SUBSCRIPTION "a-b.c"', Drop(kind="subscription", name="a-b.c")),
    ("DROP MATERIALIZED VIEW v", Drop(kind="view", name="v")),
    ("DROP VIEW v", Drop(kind="view", name="v")),
    ("DROP STREAM v", Drop(kind="stream", name="v")),
    ("DROP SINK v", Drop(kind="sink", name="v")),
    # --- Rows ---
    (
        "INSERT INTO t (a, \"b c\") VALUES (1, 'x''y'), (-1 + 2, NULL)",
        Insert(
            target="t",
            columns=("a", "b c"),
            values=((e("1"), e("'x''y'")), (e("-1 + 2"), e("NULL"))),
        ),
    ),
    (
        "INSERT OR REPLACE INTO TABLE t VALUES (1)",
        Insert(target="t", columns=None, values=((e("1"),),), conflict="replace"),
    ),
    (
        "INSERT OR IGNORE INTO t VALUES (1)",
        Insert(target="t", columns=None, values=((e("1"),),), conflict="ignore"),
    ),
    (
        "INSERT INTO t VALUES (1) ON CONFLICT (a, b) DO NOTHING",
        Insert(target="t", columns=None, values=((e("1"),),), conflict="ignore"),
    ),
    (
        "UPDATE t SET a = a + 1, B = b = 2 WHERE c IS NULL",
        Update(
            target="t",
            assignments=(("a", e("a + 1")), ("B", e("b = 2"))),
            where=e("c IS NULL"),
        ),
    ),
    ("UPDATE t SET a = 1", Update(target="t", assignments=(("a", e("1")),))),
    ("DELETE FROM t", Delete(target="t")),
    ("DELETE FROM t WHERE a = 1 AND b", Delete(target="t", where=e("a = 1 AND b"))),
    # --- SELECT ---
    ("SELECT a FROM t", Select(target="t", items=(e("a"),))),
    (
        "SELECT x.a, price * qty, lower(b) FROM t AS x WHERE a IN (1, 2) LIMIT 5",
        Select(
            target="t",
            items=(e("x.a"), e("price * qty"), e("lower(b)")),
            where=e("a IN (1, 2)"),
            limit=5,
            alias="x",
        ),
    ),
    ("SELECT a FROM t x", Select(target="t", items=(e("a"),), alias="x")),
    ('SELECT a FROM t "my x"', Select(target="t", items=(e("a"),), alias="my x")),
    ("SELECT a FROM t LIMIT 0", Select(target="t", items=(e("a"),), limit=0)),
    ('SELECT a FROM "a-b.c"', Select(target="a-b.c", items=(e("a"),))),
    (
        "LIVE SELECT date FROM t WHERE a",
        Select(target="t", items=(e("date"),), where=e("a"), live=True),
    ),
    ("EXPLAIN SELECT a FROM t", Explain(statement=Select(target="t", items=(e("a"),)))),
    (
        "EXPLAIN LIVE SELECT a FROM t",
        Explain(statement=Select(target="t", items=(e("a"),), live=True)),
    ),
    # --- What there is ---
    *(
        (f"SHOW {kind}", Show(kind=kind.lower()))
        for kind in ("SOURCES", "TABLES", "SUBSCRIPTIONS", "VIEWS", "STREAMS", "SINKS", "CHANNELS")
    ),
    ("SHOW MATERIALIZED VIEWS", Show(kind="views")),
    ("show tables like 'a\\_%'", Show(kind="tables", like="a\\_%")),
    ("SHOW CREATE s", ShowCreate(name="s")),
    ("SHOW CREATE SOURCE s", ShowCreate(name="s", kind="source")),
    ("SHOW CREATE TABLE source", ShowCreate(name="source", kind="table")),
    ("DESCRIBE t", Describe(name="t")),
    ("DESC SOURCE t", Describe(name="t", kind="source")),
    ("DESC source", Describe(name="source")),
    ("SHOW CHANGES", ShowChanges()),
    ("SHOW CHANGES SINCE NOW() - INTERVAL '1 day'", ShowChanges(since=timedelta(days=1))),
    ("SHOW CHANGES FOR t SINCE 42 LIMIT 10", ShowChanges(collection="t", since=42, limit=10)),
    ("SHOW CHANGES SINCE LSN 42", ShowChanges(since=42)),
    ("SHOW CHANGES SINCE '2026-01-01 00:00:00'", ShowChanges(since=MIDNIGHT)),
    ("SHOW CHANGES SINCE DATE '2026-01-01'", ShowChanges(since=MIDNIGHT)),
    ("SHOW CHANGES SINCE TIMESTAMP '2026-01-01T02:00:00+02:00'", ShowChanges(since=MIDNIGHT)),
    ("SHOW CHANGES SINCE INTERVAL '5 minutes' AGO", ShowChanges(since=timedelta(minutes=5))),
    ("SHOW CHANGES SINCE INTERVAL '5' MINUTE", ShowChanges(since=timedelta(minutes=5))),
    (
        "SHOW CHANGES SINCE INTERVAL 1 HOUR 5 MINUTES AGO LIMIT 1",
        ShowChanges(since=timedelta(minutes=65), limit=1),
    ),
    # --- Channels ---
    ("LISTEN ch", Listen(channel="ch")),
    ("UNLISTEN ch", Unlisten(channel="ch")),
    ("UNLISTEN *", Unlisten(channel=None)),
    ("NOTIFY ch", Notify(channel="ch")),
    ('NOTIFY ch, r\'{"a": "\\n"}\'', Notify(channel="ch", payload='{"a": "\\n"}')),
]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("42", 42),
        ("LSN 42", 42),
        ("TIMESTAMP '2026-01-01 00:00:00'", MIDNIGHT),
        ("'2026-01-01T01:00:00+01:00'", MIDNIGHT),
        ("DATE '2026-01-01'", MIDNIGHT),
        ("NOW()", timedelta(0)),
        ("CURRENT_TIMESTAMP - INTERVAL '5 minutes'", timedelta(minutes=5)),
        ("interval '1' day ago", timedelta(days=1)),
    ],
)
def test_as_of(text, moment):
    """It stands after any SELECT, and is no part of it."""
    for query in (
        "SELECT * FROM t",
        "SELECT a AS of FROM t AS of WHERE of.a > 1 LIMIT 3",
        "SELECT a, COUNT(*) AS of FROM t GROUP BY a ORDER BY a LIMIT 3",
        "WITH q AS (SELECT a FROM t) SELECT a FROM q UNION ALL SELECT a FROM u",
    ):
        found, plain = select(f"{query} AS OF {text}"), select(query)
        assert found.as_of == AsOf(moment)
        assert (found.as_of.line, found.as_of.column) == (1, len(query) + 2)
        assert dataclasses.replace(found, as_of=None) == plain
        assert plain.as_of is None


def test_as_of_is_a_parameter():
    assert select("SELECT a FROM t AS OF ?", [7]).as_of == AsOf(7)
    assert select("SELECT a FROM t AS OF :t", {"t": MIDNIGHT}).as_of == AsOf(MIDNIGHT)


def select(text, parameters=None):
    [found] = parse(text, parameters)
    assert isinstance(found, Select | Query)
    return found


@pytest.mark.parametrize(("sql", "statement"), [pytest.param(*case, id=case[0]) for case in CASES])
def test_meaning(sql, statement):
    assert parse(sql) == [statement]


def test_equal_options_are_of_equal_types():
    [created] = parse("CREATE SOURCE s (a INT) WITH (a = 1, b = 1.0, c = TRUE, d = '1')")
    assert [type(each.value) for each in created.options.values()] == [int, float, bool, str]  # type: ignore[attr-defined]


def test_options_know_their_places():
    [created] = parse("CREATE SOURCE s (a INT)\nWITH (size =\n  5)")
    assert (created.options["size"].line, created.options["size"].column) == (3, 3)  # type: ignore[attr-defined]


def test_select_items():
    [select] = parse('SELECT *, t.*, a b, c AS "D d" FROM t')
    star, table_star, first, second = select.items  # type: ignore[attr-defined]
    assert star.is_star
    assert not star.args.get("table")
    assert (table_star.is_star, table_star.table) == (True, "t")
    assert (first.alias, second.alias) == ("b", "D d")


def test_statements_know_their_text_and_place():
    sql = " SHOW  TABLES ;;\n-- c\n  EXPLAIN SELECT a\nFROM t; "
    show, explain = parse(sql)
    assert (show.sql, show.text, show.line, show.column) == (sql, "SHOW  TABLES", 1, 2)
    assert (explain.text, explain.line, explain.column) == ("EXPLAIN SELECT a\nFROM t", 3, 3)
    inner = explain.statement  # type: ignore[attr-defined]
    assert (inner.sql, inner.text, inner.line, inner.column) == (sql, "SELECT a\nFROM t", 3, 11)


def test_statements_are_frozen():
    [show] = parse("SHOW TABLES")
    with pytest.raises(dataclasses.FrozenInstanceError):
        show.kind = "sources"  # type: ignore[attr-defined]
    [created] = parse("CREATE SOURCE s (a INT) WITH (x = 1)")
    with pytest.raises(TypeError):
        created.options["x"] = Option(2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sql", "part", "column"),
    [
        ("a AND (b OR CASE WHEN c THEN d END)", "case", 13),
        ("a = NULL", "null", 5),
        ("a =  TRUE", "boolean", 6),
        ("a > CAST(b AS INT)", "cast", 5),
        ("a AND NOT b", "not", 7),
        ("a - -b", "neg", 5),
        ("a = 'x'", "literal", 5),
        ("a + b * c", "mul", 5),
        ("a = lower(b)", "lower", 5),
        ("a.b.c = d", "eq", 1),
    ],
)
def test_expressions_know_their_places(sql, part, column):
    [node] = [node for node in e(sql).walk() if node.key == part]
    assert place_of(node, sql) == (1, column)


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("'it''s'", "it's"),
        (r"'a\'b'", "a'b"),
        (r"'a\nb\\c'", "a\nb\\c"),
        (r"'50\%'", r"50\%"),
        ("''", ""),
    ],
)
def test_strings_have_the_escapes_of_spark(sql, value):
    assert e(sql).this == value


def test_cast_raises_and_try_cast_does_not():
    assert (e("CAST(a AS INT)").key, e("TRY_CAST(a AS INT)").key) == ("cast", "trycast")


def test_the_dialect_writes_what_it_reads():
    text = "\"a b\" = 'x' AND c LIKE '5%' OR NOT `d` IN (1, 2)"
    written = e(text).sql(dialect=Millstream)
    assert e(written) == e(text)


def test_long_chains_are_no_deep_nesting():
    sql = "SELECT a FROM t WHERE " + " OR ".join(f"a = {n}" for n in range(3000))
    [select] = parse(sql)
    assert len(list(select.where.flatten())) == 3000  # type: ignore[attr-defined]


# --- No text breaks the parser --------------------------------------------------------------------

REFUSED = (Path(__file__).parent / "fixtures" / "refused.sql").read_text()
TEXTS = [sql for sql, _ in CASES] + [block.split("\n")[0] for block in REFUSED.split("\n\n")[1:]]
PIECE = re.compile(r"\s+|\w+|'[^']*'|[^\w\s]")
PIECES = sorted({piece for text in TEXTS for piece in PIECE.findall(text)})


@st.composite
def mutations(draw):
    pieces = PIECE.findall(draw(st.sampled_from(TEXTS)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(pieces)))
        new = draw(st.lists(st.sampled_from(PIECES), max_size=2))
        pieces[place : place + draw(st.integers(0, 2))] = [f" {each} " for each in new]
    return "".join(pieces)


def check(sql):
    try:
        parse(sql)
    except SqlError as error:
        assert error.hint
        assert error.line or error.message == "there is no statement"
        assert error.sql == without_secrets(sql)
        assert str(error)


@settings(max_examples=400)
@given(mutations())
def test_no_change_of_a_statement_breaks_the_parser(sql):
    check(sql)


@given(st.text())
@example("/*")
@example("`")
@example("'\\")
@example("X'0g'")
@example("SELECT \x00")
def test_no_text_breaks_the_parser(sql):
    check(sql)
