"""A database, and the things in it that tests of the way in look at."""

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
def rows(db):
    """rows("s") -> all rows of a source, in the order of the log."""
    return lambda name: db.query(f"SELECT * FROM {name}").fetchall()
