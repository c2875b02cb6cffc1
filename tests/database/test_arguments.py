"""Every argument of the public API, wrong in every way: refused with an error of ours, or taken."""

from __future__ import annotations

import contextlib
import inspect
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

import millstream as ms
from millstream.errors import InvalidOptionError

from ..sharing import plain_repr  # noqa: TID252 - tests have no name

WRONG = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "a\0b",
    "\ud800",
    "é" * 300,
    b"x",
    [],
    [None],
    {},
    {"a": 1},
    {1: 2},
    (),
    object(),
    datetime(2020, 1, 1, tzinfo=UTC),
    date(2020, 1, 1),
    timedelta(1),
    len,
    Path,
    iter([]),
    1j,
    range(3),
]
WAITS = [each for each in WRONG if each is None or (isinstance(each, int | float) and each > 0)]
RIGHT = {
    "execute": {"sql": "SELECT * FROM s"},
    "query": {"sql": "SELECT * FROM s"},
    "sql": {"sql": "SELECT * FROM s"},
    "explain": {"sql": "SELECT * FROM s"},
    "prepare": {"sql": "SELECT * FROM s"},
    "source": {"name": "s"},
    "writer": {"name": "s"},
    "insert": {"name": "t", "data": []},
    "insert_once": {"name": "s", "data": [], "key": "k"},
    "insert_json": {"name": "s", "data": "[]"},
    "insert_csv": {"name": "s", "data": "n\n1\n"},
    "wait_for": {"view": "s"},
    "subscribe": {"query": "SELECT * FROM s"},
    "subscribe_callback": {"query": "SELECT * FROM s", "on_change": lambda _: None},
    "subscribe_stream": {"query": "SELECT * FROM s"},
    "watch": {"query": "SELECT * FROM s"},
    "notify": {"channel": "c"},
}
NOT_CALLED = {"cancel", "close", "aclose", "clone", "from_arrow", "from_rows"}


@pytest.fixture
def db(db):
    db.execute("CREATE SOURCE s (n BIGINT); CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    return db


def methods(thing):
    for name in dir(thing):
        static = inspect.getattr_static(type(thing), name, None)
        if name not in NOT_CALLED and not isinstance(static, property):
            method = getattr(thing, name)
            if callable(method):
                yield name, method


def finish(made):
    if inspect.iscoroutine(made):
        try:
            made.send(None)
        except StopIteration:
            pass
        finally:
            made.close()
    elif inspect.isgenerator(made):
        next(made, None)
    elif isinstance(made, ms.Source) or hasattr(made, "cancel") or hasattr(made, "stop"):
        made.close()


def try_all(thing, right=MappingProxyType({})):
    """Call each method with each argument wrong; what it raises, unless it is an error of ours."""
    raised = []
    for name, method in methods(thing):
        for parameter in inspect.signature(method).parameters.values():
            for wrong in WRONG:
                if parameter.name == "timeout" and any(wrong is each for each in WAITS):
                    continue
                given = right.get(name, {}) | {parameter.name: wrong}
                positional = parameter.kind is inspect.Parameter.VAR_POSITIONAL
                try:
                    finish(method(wrong) if positional else method(**given))
                except ms.Error:
                    pass
                except OSError:
                    assert name == "to_parquet"
                except Exception as error:
                    raised.append((name, parameter.name, wrong, error))
    return raised


def test_of_a_database(db):
    assert try_all(db, RIGHT) == []


def test_of_a_source_and_a_writer(db):
    with db.source("s") as source:
        assert try_all(source) == []
    writer = db.writer("s")
    assert try_all(writer) == []
    writer.discard()
    writer.close()


def test_of_subscriptions_and_batches(db, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with db.subscribe("SELECT * FROM s", name="mine") as subscription, db.changes() as bus:
        db.insert("s", [(1,), (2,)])
        batch = subscription.recv(timeout=60)
        assert try_all(batch, {"slice": {"start": 0}}) == []
        assert try_all(subscription) == []
        assert try_all(bus) == []
    with db.subscribe_stream("SELECT * FROM s") as stream, db.listen("c") as listener:
        db.insert("s", [(n,) for n in range(100)])
        db.notify("c", "x")
        assert try_all(stream) == []
        assert try_all(listener) == []


def test_of_a_result(db, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    db.insert("s", [(1,)])
    assert try_all(db.query("SELECT * FROM s")) == []


OPTIONS = [name for name in inspect.signature(ms.open).parameters if name != "spark"]


@pytest.mark.parametrize("option", OPTIONS)
def test_of_open(option, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for wrong in WRONG:
        with contextlib.suppress(ms.Error):
            ms.open(**{option: wrong}).close()
    # A temporary database that could not be opened leaves nothing behind.
    assert not list(tmp_path.glob("millstream-*"))


@pytest.mark.parametrize("sql", [None, 5, b"SELECT 1", object()], ids=plain_repr)
def test_sql_is_text(db, sql):
    for call in (db.execute, db.query, db.explain):
        with pytest.raises(InvalidOptionError, match="expected the text of a statement, got"):
            call(sql)
    for call in (db.subscribe, db.subscribe_stream):
        with pytest.raises(InvalidOptionError, match="expected a query or a list of them, got"):
            call(sql)
        with pytest.raises(InvalidOptionError, match="a query in a list: expected a str, got"):
            call([sql])
    for inline in (False, True):
        with pytest.raises(InvalidOptionError, match="expected a query or a list of them, got"):
            db.subscribe_callback(sql, print, inline=inline)


@pytest.mark.parametrize("call", ["execute", "query", "explain", "prepare"])
def test_statements_are_one_at_a_time(db, call):
    with pytest.raises(InvalidOptionError, match="expected the text of a statement, got"):
        getattr(db, call)(["SELECT 1"])


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", b"x", 5, [], object()], ids=plain_repr)
def test_paths_that_no_directory_has(path):
    with pytest.raises(InvalidOptionError):
        ms.open(path)
    with pytest.raises(InvalidOptionError):
        ms.Log(path)
