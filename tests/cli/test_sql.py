from __future__ import annotations

import pytest

import millstream as ms

SCHEMA = "CREATE SOURCE trades (symbol VARCHAR, price DOUBLE);"


@pytest.fixture
def trades(tmp_path):
    with ms.open(tmp_path / "market.db") as db:
        db.execute(SCHEMA)
        db.insert("trades", [("AAPL", 187.2), ("MSFT", None)])
    return tmp_path / "market.db"


# ---- from -c and standard input


def test_statements_from_the_command_line(quick, trades):
    done = quick("sql", trades, "-c", "SELECT * FROM trades; SELECT 'a;b' AS x", check=0)
    assert "│ MSFT   │  NULL │" in done.stdout
    assert "│ a;b │" in done.stdout
    assert "(2 rows)" in done.stdout
    assert done.stderr == ""


def test_statements_from_standard_input(cli):
    given = f"-- a comment; with a semicolon\n{SCHEMA}\nINSERT INTO trades VALUES ('A', 1);\n"
    done = cli("sql", given=given + "SELECT symbol FROM trades", check=0)
    assert done.stdout.startswith("CREATE SOURCE\nINSERT 1\n")
    assert "│ A      │" in done.stdout


def test_commands_of_the_shell_from_standard_input(quick, trades):
    given = "-- what there is\n\\d\n  \\dv;\n\\d trades\nSELECT 1 AS one;\n\\q\nSELECT nope;"
    done = quick("sql", trades, given=given, check=0)
    assert "│ trades │ source │" in done.stdout
    assert "(0 rows)" in done.stdout
    assert "│ price  │ DOUBLE  │" in done.stdout
    assert "┃ one ┃" in done.stdout
    assert "unknown command \\x" in quick("sql", given="\\x\n", check=1).stderr


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("json", '{"symbol":"AAPL","price":187.2}\n{"symbol":"MSFT","price":null}\n'),
        ("csv", "symbol,price\nAAPL,187.2\nMSFT,\n"),
    ],
)
def test_formats(quick, trades, form, shown):
    assert quick("sql", trades, "-c", "SELECT * FROM trades", "-f", form).stdout == shown


def test_an_error_names_the_place_in_the_whole_text_and_ends_it(quick):
    done = quick(
        "sql", given=f"{SCHEMA}\nSELECT 1 AS x; SELECT prise FROM trades;\nSELECT 2", check=1
    )
    assert "(1 row)" in done.stdout
    assert "2" not in done.stdout
    assert "error: line 2, column 23: there is no column prise" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_terminal_would_obey_is_shown_as_text(quick):
    given = "CREATE TABLE t (a VARCHAR PRIMARY KEY); INSERT INTO t VALUES ('\x1b[31mred');"
    assert "\\x1b[31mred" in quick("sql", given=given + "SELECT * FROM t").stdout


def test_a_directory_that_is_open_elsewhere(quick, tmp_path):
    with ms.open(tmp_path / "db"):
        done = quick("sql", tmp_path / "db", "-c", "SHOW TABLES", check=1)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_copy(quick, trades, tmp_path):
    path = tmp_path / "x.csv"
    sql = f"COPY trades TO '{path}'; COPY trades FROM '{path}'"
    done = quick("sql", trades, "-c", sql, check=0)
    assert (done.stdout, done.stderr) == ("COPY 2\nCOPY 2\n", "")


# ---- the shell


def test_a_session_on_a_terminal(terminal):
    shell = terminal("sql")
    shell.expect("millstream>")
    shell.type("CREATE TABLE users (id BIGINT PRIMARY KEY,\r")
    shell.expect("...")
    shell.type("name VARCHAR);\r")
    shell.expect("CREATE TABLE")
    shell.expect("millstream>")
    shell.type("INSERT INTO users VALUES (1, 'Ada;'); SELECT * FROM users;\r")
    shell.expect("│  1 │ Ada; │")
    shell.expect("millstream>")
    shell.type("\\d\r")
    shell.expect("│ users │ table │")
    shell.type("\\d users\r")
    shell.expect("│ name   │ VARCHAR │")
    shell.type("SELECT nam FROM users;\r")
    shell.expect("error: line 1, column 8: there is no column nam")
    shell.expect("hint: ")
    shell.type("\\nonsense\r")
    shell.expect("unknown command \\nonsense")
    shell.type("\\?\r")
    shell.expect("Statements end with a semicolon")
    shell.type("\\q\r")
    assert shell.wait() == 0
    assert "Traceback" not in shell.text


def test_completion_and_history(terminal, trades, tmp_path):
    shell = terminal("sql", trades)
    shell.expect("market.db>")
    for word, rest in (("SELECT symb", "ol"), (" FROM trad", "es"), (" LIM", "IT")):
        shell.type(f"{word}\t")  # completed in the background, and given up at the next key
        shell.expect(rest)
    shell.type(" 1;\r")
    shell.expect("│ AAPL   │")
    shell.expect("market.db>")
    shell.type("\x1b[A\r")  # the arrow up
    shell.expect("│ AAPL   │")
    shell.expect("market.db>")
    shell.type("\x04")
    assert shell.wait() == 0
    assert "SELECT symbol FROM trades LIMIT 1;" in (tmp_path / "history").read_text()


@pytest.mark.parametrize("query", ["LIVE SELECT * FROM users", "SUBSCRIBE TO users"])
def test_live_results_scroll_until_ctrl_c(terminal, query):
    shell = terminal("sql")
    shell.expect("millstream>")
    shell.type("CREATE TABLE users (id BIGINT PRIMARY KEY); INSERT INTO users VALUES (7);\r")
    shell.expect("INSERT 1")
    shell.expect("millstream>")
    shell.type(f"{query};\r")
    shell.expect("waiting for changes")
    shell.expect("+ ")
    shell.expect("7\n")
    shell.type("\x03")
    shell.expect("millstream>")
    shell.type("SELECT COUNT(*) AS n FROM users;\r")
    shell.expect("│ 1 │")
    shell.type("\\q\r")
    assert shell.wait() == 0


def test_ctrl_c_drops_what_was_typed(terminal):
    shell = terminal("sql")
    shell.expect("millstream>")
    shell.type("SELECT nonsense\x03")
    shell.expect("millstream>")
    shell.type("SELECT 1 AS one;\r")
    shell.expect("│   1 │")
    shell.type("\\q\r")
    assert shell.wait() == 0
