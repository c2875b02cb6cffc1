"""Queries, and the statements that make views of them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SqlError
from millstream.sql import (
    CreateView,
    Drop,
    Emit,
    Explain,
    Option,
    Query,
    Select,
    Show,
    ShowCreate,
    as_query,
    parse,
)

PLAIN = "SELECT a, b AS c FROM t AS u WHERE a > 1"
COUNT = "SELECT a, count(*) AS n FROM t GROUP BY a"


def one(sql):
    [statement] = parse(sql)
    return statement


def query(sql, **more):
    made = one(sql)
    return type(made)(**{name: getattr(made, name) for name in made.__slots__} | more)


# --- Which it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        PLAIN,
        "SELECT * FROM t",
        "SELECT t.* FROM t LIMIT 5",
        "LIVE SELECT a FROM t WHERE a IN (1, 2)",
        "SELECT my_own(a) AS b FROM t",
        'SELECT "emit" FROM emit',
    ],
)
def test_what_filters_and_projects_one_log_is_a_select(sql):
    assert isinstance(one(sql), Select)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        (COUNT, ("t",)),
        ("SELECT DISTINCT a FROM t", ("t",)),
        ("SELECT a FROM t ORDER BY a LIMIT 5 OFFSET 2", ("t",)),
        ("SELECT a FROM t joined JOIN u ON joined.a = u.a", ("t", "u")),
        ("SELECT a FROM t, u", ("t", "u")),
        ("SELECT a FROM (SELECT a FROM t)", ("t",)),
        ("SELECT a FROM t UNION ALL SELECT a FROM T", ("t",)),
        ("(SELECT a FROM t) UNION (SELECT a FROM u)", ("t", "u")),
        ("WITH x AS (SELECT * FROM t) SELECT * FROM x JOIN u", ("t", "u")),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", ("t",)),
        ("WITH x AS (SELECT 1), y AS (SELECT * FROM x) SELECT * FROM y, z", ("z",)),
        ("SELECT a FROM t WHERE a IN (SELECT b FROM u)", ("t", "u")),
        ("SELECT a FROM (WITH u AS (SELECT * FROM v) SELECT * FROM u) JOIN u", ("v", "u")),
        ("SELECT sum(a) OVER (PARTITION BY b) AS s FROM t", ("t",)),
        ("SELECT * EXCEPT (a) FROM t", ("t",)),
        ("SELECT 1", ()),
        ("SELECT a, count(*) FROM \"a.b\" GROUP BY SESSION(ts, INTERVAL '1 minute')", ("a.b",)),
    ],
)
def test_the_rest_is_a_query(sql, tables):
    made = one(sql)
    assert isinstance(made, Query)
    assert made.tables == tables
    assert (made.emit, made.live, made.text) == (None, False, sql)


def test_live_queries():
    assert one(f"LIVE {COUNT}") == query(COUNT, live=True)
    assert one(f"LIVE {PLAIN}") == query(PLAIN, live=True)


def test_a_select_as_a_query():
    made = as_query(one(PLAIN + " LIMIT 3"))
    assert made.tree.sql() == 'SELECT a, b AS c FROM "t" AS "u" WHERE a > 1 LIMIT 3'
    assert made.tables == ("t",)
    assert as_query(made) is made


# --- EMIT -----------------------------------------------------------------------------------------

EMITS = [
    ("EMIT CHANGES", Emit("changes")),
    ("emit on update", Emit("changes")),
    ("EMIT ON WINDOW CLOSE", Emit("close")),
    ("EMIT AFTER WATERMARK", Emit("close")),
    ("EMIT FINAL", Emit("final")),
    ("EMIT EVERY INTERVAL '1 second'", Emit("every", timedelta(seconds=1))),
    ("EMIT EVERY INTERVAL '1 minute 30 seconds'", Emit("every", timedelta(seconds=90))),
    ("EMIT EVERY INTERVAL 5 MINUTES", Emit("every", timedelta(minutes=5))),
    ("EMIT EVERY 1 SECOND", Emit("every", timedelta(seconds=1))),
    ("EMIT EVERY 0.5 seconds", Emit("every", timedelta(milliseconds=500))),
]


@pytest.mark.parametrize(("clause", "emit"), EMITS)
@pytest.mark.parametrize("sql", [COUNT, "SELECT a FROM t WHERE a > 1 ORDER BY a", PLAIN])
def test_emit(sql, clause, emit):
    made = one(f"{sql} {clause}")
    assert isinstance(made, Query)
    assert (made.tree, made.emit) == (as_query(one(sql)).tree, emit)
    view = one(f"CREATE MATERIALIZED VIEW v AS {sql} {clause}")
    assert view == CreateView(name="v", kind="view", query=one(sql), emit=emit)
    assert view.query.text == sql


# --- CREATE ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kind"),
    [("MATERIALIZED VIEW", "view"), ("STREAM", "stream"), ("CONTINUOUS QUERY", "stream")],
)
def test_create(words, kind):
    bare = CreateView(name="v", kind=kind, query=one(COUNT))
    assert one(f"CREATE {words} v AS {COUNT}") == bare
    assert one(f'create {words.lower()} "v" as ({COUNT})').query.tables == ("t",)
    assert one(f"CREATE {words} IF NOT EXISTS v AS {COUNT}").if_not_exists
    assert one(f"CREATE OR REPLACE {words} v AS {COUNT}").or_replace
    plain = one(f"CREATE {words} v AS {PLAIN}")
    assert plain == CreateView(name="v", kind=kind, query=one(PLAIN))


def test_all_clauses_in_any_order():
    clauses = [
        "EMIT ON WINDOW CLOSE",
        "ALLOW LATENESS INTERVAL '1 minute'",
        'LATE DATA TO "late"',
        "WITH (partitions = 4, start = 'earliest')",
    ]
    expected = CreateView(
        name="v",
        kind="view",
        query=one(COUNT),
        emit=Emit("close"),
        lateness=timedelta(minutes=1),
        late_to="late",
        options={"partitions": Option(4), "start": Option("earliest")},
    )
    for begin in range(4):
        turned = " ".join(clauses[begin:] + clauses[:begin])
        assert one(f"CREATE MATERIALIZED VIEW v AS {COUNT} {turned}") == expected
    before = f"CREATE MATERIALIZED VIEW v {clauses[3]} AS {COUNT} {' '.join(clauses[:3])}"
    assert one(before) == expected


def test_a_query_may_begin_with_its_own_with():
    body = "WITH x AS (SELECT * FROM t) SELECT a, count(*) AS n FROM x GROUP BY a"
    made = one(f"CREATE STREAM s AS {body} WITH (a = 1)")
    assert (made.query, dict(made.options)) == (one(body), {"a": Option(1)})


def test_several_statements():
    first, view, last = parse(f"SHOW VIEWS; CREATE STREAM s AS {COUNT} EMIT CHANGES ;\n {COUNT}")
    assert (first, last) == (Show(kind="views"), one(COUNT))
    assert (view.text, view.query.text) == (f"CREATE STREAM s AS {COUNT} EMIT CHANGES", COUNT)  # type: ignore[attr-defined]
    assert (view.column, view.query.column, last.line, last.column) == (13, 32, 2, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("DROP MATERIALIZED VIEW v", Drop(kind="view", name="v")),
        (
            "DROP VIEW IF EXISTS v CASCADE",
            Drop(kind="view", name="v", if_exists=True, cascade=True),
        ),
        ("DROP STREAM s", Drop(kind="stream", name="s")),
        ("DROP CONTINUOUS QUERY s", Drop(kind="stream", name="s")),
        ("SHOW MATERIALIZED VIEWS LIKE 'a%'", Show(kind="views", like="a%")),
        ("SHOW STREAMS", Show(kind="streams")),
        ("SHOW CREATE VIEW v", ShowCreate(kind="view", name="v")),
        ("SHOW CREATE MATERIALIZED VIEW v", ShowCreate(kind="view", name="v")),
        ("SHOW CREATE STREAM v", ShowCreate(kind="stream", name="v")),
        (f"EXPLAIN {COUNT}", Explain(statement=one(COUNT))),
        (f"EXPLAIN LIVE {COUNT}", Explain(statement=query(COUNT, live=True))),
        (
            f"EXPLAIN CREATE STREAM s AS {COUNT}",
            Explain(statement=CreateView(name="s", kind="stream", query=one(COUNT))),
        ),
    ],
)
def test_other_statements(sql, statement):
    assert one(sql) == statement


@given(st.text("ab(),.*'\"` ;=<>", max_size=12), st.integers(0, 60))
def test_noise_in_a_query_is_an_error_of_ours_or_none(noise, place):
    sql = f"CREATE STREAM s AS {COUNT} EMIT EVERY 1 SECOND"
    try:
        parse(sql[:place] + noise + sql[place:])
    except SqlError as error:
        assert error.hint
        assert error.line
