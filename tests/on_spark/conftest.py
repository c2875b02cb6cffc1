"""Views on a real Spark: one session for all tests, a database for each."""

from __future__ import annotations

import json

import pytest

import millstream as ms
from millstream.spark.internals import empty_frame
from millstream.views.run.columns import columns_json

from .exact import plain_session


def pytest_collection_modifyitems(items):
    """All of them start Spark."""
    for item in items:
        if "/tests/on_spark/" in str(item.path):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def spark(spark_owner):
    """The user's own session, as far as the database knows."""
    return spark_owner.session


@pytest.fixture
def db(tmp_path, spark):
    with ms.open(tmp_path / "db", spark=spark) as opened:
        yield opened


@pytest.fixture
def little_memory(spark):
    """Lines keep next to nothing at hand: state is written and read again all the time."""
    system = spark._jvm.java.lang.System
    system.setProperty("millstream.dataflow.memory", "2000")
    yield
    system.clearProperty("millstream.dataflow.memory")


def batch_answer(spark, sql, **tables):
    """What plain Spark gives for a SELECT over tables, each (schema, rows), as a sorted list."""
    clone = plain_session(spark)
    for name, (schema, rows) in tables.items():
        empty = empty_frame(clone, columns_json(schema.arrow))
        frame = clone.createDataFrame(rows, empty.schema) if rows else empty
        frame.createOrReplaceTempView(name)
    return sorted((tuple(row) for row in clone.sql(sql).collect()), key=json_key)


def json_key(row):
    return json.dumps(row, default=str)
