from __future__ import annotations

from datetime import timedelta

import pytest

from millstream.catalog import Options, options_of
from millstream.errors import SqlError, SqlOptionError
from millstream.sql import CreateSource, CreateTable, parse


def options(
    text, *, table=False, columns="a BIGINT, t VARCHAR NOT NULL, u VARCHAR, n INT NOT NULL"
):
    kind = "TABLE" if table else "SOURCE"
    columns = f"{columns}, PRIMARY KEY (a, t)" if table else columns
    (statement,) = parse(f"CREATE {kind} s ({columns}) WITH ({text})")
    assert isinstance(statement, CreateSource | CreateTable)
    return options_of(statement.options, statement.schema, statement.sql, kind.lower())


def test_all_have_defaults():
    assert options_of({}, None, "") == Options()
    assert (Options().buffer_size, Options().backpressure) == (65536, "block")


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("buffer_size = 10", "buffer_size", 10),
        ("backpressure = 'drop_oldest'", "backpressure", "drop_oldest"),
        ("backpressure = 'REJECT'", "backpressure", "reject"),
        ("wal_mode = 'sync'", "wal_mode", "sync"),
        ("retention = '7 days'", "retention", timedelta(days=7)),
        ("retention_bytes = 1000", "retention_bytes", 1000),
        ("retention_bytes = '10 GB'", "retention_bytes", 10 << 30),
        ("retention_bytes = '1.5kb'", "retention_bytes", 1536),
        ("retention_bytes = '2 MiB'", "retention_bytes", 2 << 20),
        ("tenant = 't'", "tenant", "t"),
        ("tenant = 'T'", "tenant", "t"),
    ],
)
def test_are_read(text, name, value):
    assert getattr(options(text), name) == value


@pytest.mark.parametrize(
    "text",
    [
        *("buffer_size = 0", "buffer_size = -1", "buffer_size = 'many'", "buffer_size = 1.5"),
        *("buffer_size = TRUE", "backpressure = 'wait'", "backpressure = 5", "wal_mode = 'often'"),
        *("retention = '0 days'", "retention = 'soon'", "retention = 7", "retention = '-1 day'"),
        *("retention_bytes = 0", "retention_bytes = '0 GB'", "retention_bytes = '0.0001 b'"),
        *("retention_bytes = 'a lot'", "retention_bytes = '-1 kb'", "retention_bytes = '5'"),
        *("tenant = 'a'", "tenant = 'u'", "tenant = 'n'", "tenant = 'zz'", "tenant = 5"),
    ],
)
def test_a_value_that_cannot_be_is_refused_where_it_stands(text):
    with pytest.raises(SqlOptionError) as caught:
        options(text)
    assert isinstance(caught.value, SqlError)
    assert isinstance(caught.value, SqlError)
    assert caught.value.code == "SQL_OPTION"
    assert caught.value.hint
    assert (caught.value.line, caught.value.column > 20) == (1, True)


def test_an_unknown_one_is_refused_with_the_nearest():
    with pytest.raises(SqlError, match="there is no option bufer_size") as caught:
        options("bufer_size = 5")
    assert "did you mean buffer_size?" in caught.value.hint
    assert "retention_bytes" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("wal_mode = 'sync'", {"wal_mode": "sync"}),
        ("tenant = 't'", {"tenant": "t"}),
        ("retention = '1 d'", {"retention": timedelta(days=1)}),
    ],
)
def test_tables_have_some(text, given):
    assert options(text, table=True) == Options(**given)


def test_a_table_is_kept_for_ever():
    kept = options("retention = 'forever'", table=True).retention
    assert kept == options("retention = 'forever'").retention
    assert kept > timedelta(days=365 * 1000)


@pytest.mark.parametrize("text", ["buffer_size = 5", "backpressure = 'block'", "start = 'now'"])
def test_and_not_the_others(text):
    with pytest.raises(SqlError, match="there is no option"):
        options(text, table=True)


def test_who_drops_rows_cannot_promise_them():
    with pytest.raises(SqlError, match="cannot promise"):
        options("wal_mode = 'sync', backpressure = 'drop_oldest'")


def test_say_what_is_kept():
    kept = options("retention = '1 hour', retention_bytes = 5").kept
    assert (kept.max_age, kept.max_bytes) == (3600.0, 5)
