"""The allow-list, against all that this Spark has."""

from __future__ import annotations

import pyspark
import pytest

from millstream.errors import Error, SqlError, SqlUnsupportedError
from millstream.model.schema import Schema
from millstream.spark import allowed
from millstream.spark.errors import SparkError, sql_error
from millstream.spark.internals import add_relation, java_session, jvm_of
from millstream.views.lower.analysis import sql_frame
from millstream.views.plan.plan import log_relation
from millstream.views.run.columns import columns_json

QUOTINGS = ("{}", "`{}`", "`SYSTEM`.builtin.`{}`", "builtin.{}")
ARGUMENTS = ("", "`s`", "`s`, `s`", "`n`, 2", "'a', 'b', 'c'", "`s`, 'a STRING', map('a', 'b')")


def functions(session, registry):
    """Spark's own functions of one registry: of each its name, and the class that makes it."""
    found = getattr(java_session(session).sessionState(), registry)()
    names = found.listFunction().iterator()
    made = {}
    while names.hasNext():
        name = names.next()
        if name.database().get() == "builtin":
            made[str(name.funcName())] = str(found.lookupFunction(name).get().getClassName())
    return made


@pytest.fixture(scope="module")
def session(spark_owner):
    """The session of a view that reads one log."""
    made = spark_owner.for_view()
    schema = Schema.of(s="VARCHAR", n="BIGINT").arrow
    add_relation(made, log_relation(0), columns_json(schema))
    return made


@pytest.fixture(scope="module")
def known(session):
    found = functions(session, "functionRegistry")
    rows = functions(session, "tableFunctionRegistry")
    assert len(found) > 500
    assert len(rows) > 10
    return found, rows


def test_every_function_is_allowed_or_refused_for_a_reason(known):
    new = {
        name: of
        for each in known
        for name, of in each.items()
        if of not in allowed.FUNCTIONS and of not in allowed.REFUSED
    }
    assert not new, f"new in Spark {pyspark.__version__}: put each on a list of spark/allowed.py"


def test_every_class_of_the_lists_is_there(session):
    jvm = jvm_of(session)
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    gone = []
    for of in sorted(allowed.NODES | allowed.FUNCTIONS | allowed.REFUSED.keys()):
        names = (of, f"{of}$")
        if not any(loader.getResource(f"{each.replace('.', '/')}.class") for each in names):
            gone.append(of)
    assert not gone, f"not in Spark {pyspark.__version__}"
    assert not (allowed.NODES | allowed.FUNCTIONS) & allowed.REFUSED.keys()


def test_every_function_in_every_quoting(session, known, tmp_path, capfd):
    canary = tmp_path / "canary"
    canary.write_text("canary")
    arguments = (*ARGUMENTS, f"`s`, 's', '{canary}'", f"'java.lang.Runtime', 'exec', '{canary}'")
    taken = 0
    for form, found in zip(("SELECT {} FROM `__log0`", "SELECT * FROM {}"), known, strict=True):
        for name, of in found.items():
            if not name[0].isalpha():
                continue
            for place, given in enumerate(arguments):
                quoted = QUOTINGS[place % len(QUOTINGS)].format(name.upper() if place % 3 else name)
                text = form.format(f"{quoted}({given})")
                is_taken = answer(session, text, of in allowed.REFUSED)
                assert not (is_taken and of in allowed.REFUSED), text
                taken += is_taken
    assert taken > 500
    assert "canary" not in capfd.readouterr().out


def answer(session, text, refused):
    """Whether a text is taken. Its error must be one of ours, or become one."""
    try:
        sql_frame(session, text)
    except SqlUnsupportedError:
        return False
    except Error:
        assert not refused, text
        return False
    except SparkError as error:
        # It is not even a call: Spark's grammar has words for some functions.
        assert isinstance(sql_error(error, text), SqlError)
        assert not refused or "PARSE_SYNTAX_ERROR" in str(error), text
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        "SELECT CURRENT_USER FROM `__log0`",
        "SELECT user FROM `__log0`",
        "SELECT current_catalog FROM `__log0`",
        "SELECT CURRENT_TIMESTAMP FROM `__log0`",
        "SELECT unix_timestamp() FROM `__log0`",
        "SELECT * FROM other",
        "SELECT * FROM `__log0` JOIN (WITH other AS (SELECT 1) SELECT * FROM other) JOIN others",
        "SELECT * FROM `__log0x`",
        "SELECT * FROM parquet.`/etc/passwd`",
        "SELECT * FROM default.`__log0`",
        "SELECT * FROM STREAM(`__log0`) TABLESAMPLE (5 ROWS)",
        "SELECT * FROM `__log0` VERSION AS OF 1",
        "SELECT * FROM IDENTIFIER('o' || 'ther')",
        "FROM `__log0` |> WHERE reflect('a', 'b')",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r",
        "BEGIN SELECT 1; END",
        "DESCRIBE `__log0`",
        "SHOW TABLES",
        "SELECT 1 WHERE reflect('a', 'b') IS NULL",
        "VALUES (reflect('java.lang.System', 'lineSeparator'))",
        "SELECT spark_catalog.default.f(1)",
        "SELECT session.f(1)",
        "SELECT no_such_function(1)",
        "INSERT INTO `__log0` SELECT 1",
        "EXPLAIN SELECT 1",
    ],
)
def test_what_a_text_may_not_be(session, text):
    with pytest.raises(SqlError) as raised:
        try:
            sql_frame(session, text)
        except SparkError as error:
            raise sql_error(error, text) from error
    assert raised.value.hint


def test_a_function_of_the_program_is_taken(session):
    session.udf.register("security_next", lambda n: n + 1, "bigint")
    for each in ("security_next", "SECURITY_NEXT", "session.security_next"):
        assert sql_frame(session, f"SELECT {each}(n) AS x FROM `__log0`").columns == ["x"]
