from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import millstream as ms
from millstream.server.keys import Keys
from millstream.server.run import Server
from millstream.server.settings import Settings
from millstream.testing import TIMEOUT, wait_until


@pytest.fixture
def db():
    with ms.open() as db:
        db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
        db.execute("CREATE TABLE quotes (symbol VARCHAR PRIMARY KEY, bid DECIMAL(9, 2))")
        yield db


@pytest.fixture
def remote(db):
    ready = threading.Event()
    server = Server(db, Settings(http=("127.0.0.1", 0)), Keys(db.path))
    thread = threading.Thread(target=server.run, args=(lambda _: ready.set(),))
    thread.start()
    assert ready.wait(TIMEOUT)
    with ms.connect(server.http) as client:
        yield client
    server.stop()
    thread.join(TIMEOUT)


def shows(table, rows):
    wait_until(lambda: [row[1:] for row in table.rows] == rows, f"the table shows {rows}")


def test_a_table_follows_the_result(db):
    table = db.watch("SELECT symbol, bid FROM quotes WHERE bid > ?", [100])
    assert table.columns == [
        {"name": "symbol", "type": "VARCHAR", "number": False},
        {"name": "bid", "type": "DECIMAL(9, 2)", "number": True},
    ]
    db.execute("INSERT INTO quotes VALUES ('AAPL', 187.1), ('F', 11)")
    shows(table, [["AAPL", "187.10"]])
    db.execute("UPDATE quotes SET bid = bid + 100")
    shows(table, [["AAPL", "287.10"], ["F", "111.00"]])
    db.execute("DELETE FROM quotes WHERE symbol = 'AAPL'")
    shows(table, [["F", "111.00"]])
    wait_until(lambda: table.status["total"] == 1, "the status is that of the rows")
    assert table.status["state"] == "live"
    table.stop()
    table.stop()
    assert table.status["state"] == "stopped"
    assert [row[1:] for row in table.rows] == [["F", "111.00"]]


def test_a_source_is_shown_by_its_newest_rows_with_the_rate(db):
    table = db.watch("SELECT * FROM trades", limit=2)
    db.insert("trades", [("A", 1.0), ("B", 2.0), ("C", None)])
    shows(table, [["C", None], ["B", "2.0"]])
    assert table.status["total"] == 3
    wait_until(
        lambda: db.insert("trades", [("D", 4.0)]) and table.status["rate"] > 0,
        "there is a rate while rows come",
    )
    wait_until(lambda: table.status["rate"] == 0, "the rate falls when nothing comes")
    table.close()


def test_a_served_database_is_watched_alike(db, remote):
    table = remote.watch("SELECT symbol, price FROM trades WHERE price > ?", [5])
    db.insert("trades", [("A", 1.0), ("B", 20.0)])
    shows(table, [["B", "20.0"]])
    table.stop()
    assert table.status["state"] == "stopped"


def test_the_button_stops_it(db):
    table = db.watch("SELECT * FROM trades")
    table._handle_custom_msg({"type": "nonsense"}, [])
    assert table.status["state"] == "live"
    table._handle_custom_msg({"type": "stop"}, [])
    assert table.status["state"] == "stopped"


def test_the_end_of_the_database_ends_it(db):
    table = db.watch("SELECT * FROM quotes")
    db.close()
    wait_until(lambda: table.status["state"] == "stopped", "it has ended")


def test_an_error_of_the_query_is_shown(db):
    table = db.watch("SELECT symbol, 1 / CAST(price AS BIGINT) AS x FROM trades")
    db.insert("trades", [("A", 0.0)])
    wait_until(lambda: table.status["state"] == "failed", "it has failed")
    assert "zero" in table.status["error"]


def test_what_is_refused_leaves_nothing_behind(db):
    with pytest.raises(ms.errors.InvalidOptionError, match="limit"):
        db.watch("SELECT * FROM trades", limit=0)
    with pytest.raises(ms.errors.SqlColumnError):
        db.watch("SELECT prise FROM trades")
    assert db.metrics()["subscribers"] == 0


def test_without_the_extra_an_error_says_what_to_install():
    code = """
import sys
sys.modules["anywidget"] = None
import millstream as ms
with ms.open() as db:
    db.execute("CREATE SOURCE s (n BIGINT)")
    try:
        db.watch("SELECT * FROM s")
    except ms.errors.MissingExtraError as error:
        print(error, db.metrics()["subscribers"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "anywidget is not installed\n  hint: pip install 'millstream[notebook]' 0\n"
    )
