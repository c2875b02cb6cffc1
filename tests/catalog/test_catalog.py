"""What exists, kept in a log."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millstream.catalog import Catalog, Definition, Options
from millstream.catalog import catalog as module
from millstream.errors import (
    InvalidNameError,
    LogFullError,
    ObjectExistsError,
    ObjectNotFoundError,
    WrongObjectError,
)
from millstream.log import Log
from millstream.model import Schema
from millstream.model.schema import Column
from millstream.model.types import parse_type
from millstream.sql import CreateSource, CreateTable, WatermarkSpec, parse

SCHEMA = Schema.of(symbol="VARCHAR NOT NULL", ts="TIMESTAMP")
KEYED = Schema.of(key=("id",), id="BIGINT NOT NULL", name="VARCHAR")
OPTIONS = Options(
    buffer_size=10,
    backpressure="reject",
    retention=timedelta(days=7, microseconds=1),
    retention_bytes=5 << 30,
    tenant="symbol",
)


def source(name="trades", **options):
    mark = WatermarkSpec("ts", timedelta(seconds=1.5))
    return Definition("source", name, SCHEMA, Options(**options), mark, 12345)


def table(name="users"):
    return Definition("table", name, KEYED, Options(wal_mode="sync"), None, 99)


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path) as opened:
        yield opened


@pytest.fixture
def catalog(log):
    return Catalog(log)


class TestWhatThereIs:
    def test_is_found_however_it_is_written(self, catalog):
        catalog.create(source("Trades"))
        assert catalog["TRADES"].name == catalog["trades"].name == "Trades"
        assert "tRades" in catalog
        assert "users" not in catalog

    def test_is_listed_by_name(self, catalog):
        for name in ("b", "a", "c"):
            catalog.create(source(name))
        assert [each.name for each in catalog] == ["a", "b", "c"]

    def test_what_there_is_not_has_a_hint(self, catalog):
        with pytest.raises(ObjectNotFoundError) as caught:
            catalog["trades"]
        assert "CREATE" in caught.value.hint
        catalog.create(source("trades"))
        with pytest.raises(ObjectNotFoundError) as caught:
            catalog["trade"]
        assert caught.value.hint == "did you mean trades?"
        with pytest.raises(ObjectNotFoundError) as caught:
            catalog["zzz"]
        assert caught.value.hint == "available: trades"

    def test_is_of_a_kind(self, catalog):
        catalog.create(source())
        assert catalog.of_kind("source", "TRADES").name == "trades"
        with pytest.raises(WrongObjectError, match="trades is a source, not a table"):
            catalog.of_kind("table", "trades")


class TestCreate:
    def test_makes_a_topic(self, catalog, log):
        catalog.create(source(retention=timedelta(days=1)))
        assert log.topic("trades").schema == SCHEMA
        assert log.topic("trades").retention == Options(retention=timedelta(days=1)).kept

    @pytest.mark.parametrize("name", ["trades", "TRADES"])
    def test_a_name_is_taken_once(self, catalog, name):
        catalog.create(source("trades"))
        with pytest.raises(ObjectExistsError, match="a source trades"):
            catalog.create(table(name))

    @pytest.mark.parametrize("name", ["__catalog", "__x", "", "a\nb"])
    def test_some_names_cannot_be(self, catalog, name):
        with pytest.raises(InvalidNameError):
            catalog.create(source(name))
        assert list(catalog) == []

    def test_what_could_not_be_written_can_be_tried_again(self, catalog, log, monkeypatch):
        def full(*args, **options):
            raise LogFullError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(log.appender, "commit", full)
            with pytest.raises(LogFullError):
                catalog.create(source())
        assert "trades" not in catalog
        catalog.create(source())
        assert "trades" in catalog


class TestDrop:
    def test_removes_it_and_its_topic(self, catalog, log):
        catalog.create(source())
        assert catalog.drop("TRADES").name == "trades"
        assert "trades" not in catalog
        assert "trades" not in log.topics
        with pytest.raises(ObjectNotFoundError):
            catalog.drop("trades")

    def test_the_name_is_free_again(self, catalog, log):
        catalog.create(source("x"))
        catalog.drop("x")
        catalog.create(table("x"))
        assert catalog["x"].kind == "table"
        assert Catalog(log)["x"] == catalog["x"]


class TestReload:
    def test_gives_the_same(self, catalog, log):
        catalog.create(
            Definition(
                "source", "s", SCHEMA, OPTIONS, WatermarkSpec("ts", timedelta(microseconds=7)), 5
            )
        )
        catalog.create(source("gone"))
        catalog.create(table("t"))
        catalog.drop("gone")
        catalog.add_column("t", Column("age", parse_type("INTEGER")))
        again = Catalog(log)
        assert list(again) == list(catalog)
        assert again["t"].schema.names == ("id", "name", "age")
        assert again["t"].schema.key == ("id",)

    def test_a_topic_of_a_create_that_crashed_is_dropped(self, catalog, log):
        catalog.create(source("kept"))
        log.create_topic("half", SCHEMA)
        again = Catalog(log)
        assert [each.name for each in again] == ["kept"]
        assert "half" not in log.topics
        again.create(source("half"))

    def test_a_drop_is_one_step(self, catalog, log, monkeypatch):
        catalog.create(source("x"))

        def full(*args, **options):
            raise LogFullError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(log, "append", full)
            catalog.drop("x")
        assert "x" not in Catalog(log)
        log.create_topic("x", SCHEMA)  # as by a CREATE that crashed: it is not the old one
        assert "x" not in Catalog(log)
        assert "x" not in log.topics
        Catalog(log).create(table("x"))
        assert Catalog(log)["x"].kind == "table"

    def test_leaves_topics_of_its_own(self, catalog, log):
        log.create_topic("__positions", SCHEMA)
        Catalog(log)
        assert "__positions" in log.topics
        assert module.TOPIC in log.topics


@pytest.mark.parametrize(
    "definition",
    [
        source(),
        source("order", buffer_size=7, wal_mode="sync", retention=timedelta(hours=36)),
        Definition("source", "a.b", SCHEMA, OPTIONS),
        table(),
        Definition("table", "t", KEYED, Options(tenant="name")),
    ],
    ids=lambda each: each.name,
)
def test_its_sql_makes_it_again(definition):
    (statement,) = parse(definition.sql)
    kind = {"source": CreateSource, "table": CreateTable}[definition.kind]
    assert isinstance(statement, kind)
    assert statement.name == definition.name  # type: ignore[attr-defined]
    assert statement.schema == definition.schema  # type: ignore[attr-defined]
    if definition.kind == "source":
        assert statement.watermark == definition.watermark  # type: ignore[attr-defined]
