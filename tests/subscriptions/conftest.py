"""A database with a source and a table."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.testing import engine_of


@pytest.fixture
def db():
    with ms.open() as opened:
        yield opened


@pytest.fixture
def dispatcher(db):
    return engine_of(db).dispatcher


@pytest.fixture
def source(db):
    db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR)")
    return db.source("s")


@pytest.fixture
def table(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
    return "t"
