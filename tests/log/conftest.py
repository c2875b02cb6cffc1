"""A small schema and rows that say where they belong."""

from __future__ import annotations

import pytest

from millstream.log import Log
from millstream.model import Schema

SCHEMA = Schema.of(n="BIGINT NOT NULL", s="VARCHAR")


@pytest.fixture
def schema():
    return SCHEMA


@pytest.fixture
def rows():
    """rows(3) -> three numbered rows; rows(3, 10) -> three from number 10 on."""

    def make(count, start=0):
        return [(n, f"row {n}") for n in range(start, start + count)]

    return make


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log") as opened:
        opened.create_topic("t", SCHEMA)
        yield opened


@pytest.fixture
def read():
    """All rows of a topic, or of several in LSN order."""

    def all_rows(log, *topics, **options):
        return [row for batch in log.read(*topics, **options) for row in batch.rows]

    return all_rows
