"""What a text can have DuckDB do: ad-hoc queries, and queries of PostgreSQL's catalog."""

from __future__ import annotations

import itertools
import re

import duckdb
import pytest

from millstream.errors import Error, ObjectNotFoundError
from millstream.model import Schema
from millstream.queries.duckdb import AdhocRunner
from millstream.server.postgres.catalog import CatalogQueries
from millstream.server.postgres.catalog.functions import ALLOWED
from millstream.server.postgres.catalog.translate import translate
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.text import statements
from millstream.sql import Input, as_query, parse
from millstream.sql.adhoc import plan_adhoc
from millstream.sql.function_names import AGGREGATES, COUNTS

from ..effort import PROOF  # noqa: TID252 - tests have no name

ARGUMENTS = ("", "s", "s, 1", "'/etc/passwd'")
WORDS = {"as", "exists", "f", "from", "in", "over", "select", "values"}
ROWS = Input("t", "source", Schema.of(s="VARCHAR", n="BIGINT"))
OUTSIDE = (
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('/*')",
    "COPY (SELECT 1) TO '{file}.out'",
    "ATTACH '{file}' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "PRAGMA enable_logging",
    "IMPORT DATABASE '{file}'",
    "EXPORT DATABASE '{file}.out'",
)
REACHING = {
    *("read_csv", "read_text", "read_blob", "read_parquet", "read_json", "glob", "sniff_csv"),
    *("getenv", "getvariable", "current_setting", "duckdb_settings", "duckdb_secrets", "query"),
    *("query_table", "write_log", "sleep_ms", "pg_sleep", "nextval", "setval", "setseed"),
    *(
        "which_secret",
        "json_execute_serialized_sql",
        "enable_logging",
        "checkpoint",
        "parquet_scan",
    ),
    *("arrow_scan", "pandas_scan", "python_map_function", "duckdb_logs", "current_query"),
}


def find(name):
    if name.lower() != "t":
        raise ObjectNotFoundError(f"there is no {name}", hint="Look again.")
    return ROWS


def names():
    with duckdb.connect(":memory:") as database:
        found = database.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    return sorted({name for (name,) in found if re.fullmatch(r"[a-z]\w*", name)} | REACHING)


@pytest.fixture(params=[AdhocRunner, CatalogQueries])
def database(request):
    with request.param()._connect() as opened:
        yield opened


@pytest.mark.parametrize("sql", OUTSIDE)
def test_duckdb_itself_reaches_nothing(database, sql, tmp_path):
    (tmp_path / "file").write_text("a,b\n1,2\n")
    with pytest.raises(duckdb.Error):
        database.cursor().execute(sql.format(file=tmp_path / "file")).fetchall()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["allow_community_extensions", "autoinstall_known_extensions"])
def test_duckdb_takes_no_extensions(database, name):
    assert database.execute("SELECT current_setting(?)", [name]).fetchone() == (False,)


def calls(number, name):
    """Calls of a function: with any arguments, and in all quotings; in the long form, with both."""
    quoted = (name.upper(), f"`{name}`", f"main.{name}", f"`system`.`main`.`{name}`")
    if PROOF:
        return itertools.product((name, *quoted), ARGUMENTS)
    turns = itertools.islice(itertools.cycle(ARGUMENTS), number % len(ARGUMENTS), None)
    return [*((name, given) for given in ARGUMENTS), *zip(quoted, turns, strict=False)]


@pytest.mark.slow
def test_ad_hoc_queries_call_no_other_functions():
    """A plan that is made has functions of ours; the rest is refused, in all quotings."""
    planned = set()
    for number, name in enumerate(names()):
        for quoted, given in calls(number, name):
            for text in (
                f"SELECT {quoted}({given}) AS x, COUNT(*) AS n FROM t GROUP BY 1",
                f"SELECT COUNT(*) AS n FROM {quoted}({given}) JOIN t ON true",
            ):
                try:
                    plan = plan_adhoc(as_query(parse(text)[0]), find)
                except Error:
                    continue
                assert name.upper() in COUNTS.keys() | AGGREGATES.keys(), (text, plan.sql)
                planned.add(name)
    assert {"lower", "len"} <= planned


@pytest.mark.slow
def test_queries_of_the_catalog_call_functions_of_the_list():
    assert not REACHING & ALLOWED
    refused = set()
    for name in names():
        for quoted in (
            name,
            name.upper(),
            f'"{name}"',
            f"main.{name}",
            f'"system"."main"."{name}"',
        ):
            for form in ("SELECT {}('/etc/passwd')", "SELECT * FROM {}('/etc/passwd') AS f"):
                [text] = statements(form.format(quoted))
                try:
                    sql = translate(text, [], lambda _: None, {}).sql
                except PostgresError:
                    refused.add(name)
                    continue
                called = {each.lower() for each in re.findall(r'(\w+)"?\s*\(', sql)}
                assert called <= ALLOWED | WORDS, (text.original, sql)
    assert refused >= REACHING - {"current_setting", "current_query"}
