"""The tail of some logs: what a view reads."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.delivery.tail import LogTail
from millstream.errors import LsnNotKeptError
from millstream.testing import engine_of


def test_rows_that_retention_has_taken_end_it():
    with ms.open() as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.insert("s", [(1,)])
        db.insert("s", [(2,)])
        db.flush()
        engine = engine_of(db)
        engine.log.trim("s", db.lsn)
        tail = LogTail(engine.log, engine.dispatcher, ("s",), engine.select_all, 0)
        with pytest.raises(LsnNotKeptError) as raised:
            tail.take()
        assert raised.value.oldest == db.lsn
        tail.close()
