"""No value and no pattern of a query keeps the process from all else."""

from __future__ import annotations

import contextlib
import threading

import pytest

import millstream as ms
from millstream.errors import Error, ExpressionError
from millstream.sql.expressions import java_regex
from millstream.sql.expressions.text_values import text_to_decimal, text_to_double
from millstream.testing import TIMEOUT

HELD = "a" * 60 + "b"
LONG = "1" * 1_000_000 + "x"
QUERIES = (
    "SELECT s FROM t WHERE s RLIKE '(a|aa)+$'",
    "SELECT REGEXP_REPLACE(s, '(a|aa)+c', '') AS x FROM t",
    "SELECT REGEXP_COUNT(s, '(a|a)+c') AS x FROM t",
    f"SELECT s FROM t WHERE s LIKE '{'%a' * 30}c'",
    f"SELECT s FROM t WHERE s LIKE '{'%a_' * 20}c'",
    f"SELECT s FROM t WHERE '{HELD}' RLIKE '(a|aa)+$'",
)


@pytest.fixture(autouse=True)
def _matches_are_given_up_soon(monkeypatch):
    monkeypatch.setattr(java_regex, "_SECONDS", 0.1)


@pytest.fixture
def embedded():
    with ms.open() as opened:
        opened.execute("CREATE SOURCE t (s VARCHAR)")
        opened.insert("t", [(HELD,)])
        yield opened


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_ends(embedded, sql):
    with contextlib.suppress(ExpressionError):
        assert embedded.query(sql).fetchall() in ([], [(HELD,)], [(0,)])


@pytest.mark.parametrize("sql", [each for each in QUERIES if "WHERE" in each])
def test_the_filter_of_a_subscription_ends_while_others_are_served(embedded, sql):
    """Filters run where rows are committed, which all wait for."""
    with contextlib.suppress(Error), embedded.subscribe(sql) as subscription:
        embedded.insert("t", [(HELD,)])
        done = threading.Event()

        def ask():
            embedded.query("SELECT 1")
            done.set()

        threading.Thread(target=ask).start()
        assert done.wait(TIMEOUT)
        subscription.recv(timeout=1)


@pytest.mark.parametrize("read", [text_to_double, lambda text: text_to_decimal(text, None, None)])
@pytest.mark.parametrize("text", [LONG, "0x" + LONG, "1." + LONG, "1e" + LONG])
def test_a_long_text_that_is_no_number(read, text):
    with pytest.raises(ExpressionError, match="cannot be read as"):
        read(text)
