"""A database, and its dispatcher."""

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
