"""The one way by which the text of a query reaches Spark: parsed, checked, analysed, checked again.

Spark's analysis may load classes, read files and run commands by itself, so what a text names is
checked before; what its names stand for, after. Both go by ``allowed``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SqlColumnError, SqlUnsupportedError
from millstream.spark import allowed, internals
from millstream.spark.errors import FunctionRefused, SparkError, spark_message
from millstream.views.plan.plan import is_relation

if TYPE_CHECKING:
    from collections.abc import Iterable

_END: Final = "\x1e"
_FIELD: Final = "\x1f"
_TABLES: Final = "millstream.bridge."
_LISTS: Final = {"node": allowed.NODES, "expression": allowed.EXPRESSIONS}
_HINT: Final = "docs/sql.md says what a query may have"
_FUNCTIONS: Final = (
    "Views may call the functions of Spark SQL, with few exceptions, and those that you register."
)


def sql_frame(session: Any, text: str) -> Any:  # noqa: ANN401 - a SparkSession, a DataFrame
    """The result of a query.

    Raises:
        SparkError: Spark does not understand it.
        SqlError: it has a part that is not on the allow-list.
    """
    java, attempt = internals.java_session(session), calls(session)
    parts = internals.jvm_of(session).millstream.bridge.PlanParts
    parsed = value(attempt.parse(java, text))
    check_parsed(str(parts.of(java, parsed)))
    rows = value(attempt.rows(java, parsed))
    check_analysed(str(parts.of(java, rows.queryExecution().analyzed())))
    try:
        bounded = value(attempt.bounded(java, rows))
    except SparkError as error:
        message = spark_message(str(error)).rpartition("] ")[2]
        raise SqlUnsupportedError(message, hint="write a smaller number") from error
    return internals.frame_of(session, bounded)


def calls(session: Any) -> Any:  # noqa: ANN401 - Attempt.java
    """Calls of Spark whose errors are values: PySpark prints what it raises to the terminal."""
    return internals.jvm_of(session).millstream.bridge.Attempt


def value(attempt: Any) -> Any:  # noqa: ANN401 - an Attempt of Java; what it gave
    """What a call gave.

    Raises:
        SparkError: it failed.
    """
    error = attempt.error()
    if error is not None:
        raise SparkError(error)
    return attempt.value()


def optimized_plan(frame: Any) -> Any:  # noqa: ANN401 - a DataFrame, and a plan of Java
    """The optimized plan of a result.

    Raises:
        SparkError: a constant has no value, such as a CAST of a text that is no number.
    """
    return value(calls(frame.sparkSession).optimized(internals.java_frame(frame)))


def check_parsed(parts: str) -> None:
    """Refuse what a text names: see ``PlanParts.of``.

    Raises:
        SqlColumnError: it has an unknown function.
        SqlUnsupportedError: it has a part that is not on the allow-list.
    """
    found = [each.split(_FIELD) for each in parts.split(_END)]
    known = {names[0].lower() for kind, *names in found if kind == "with"}
    for kind, name, *made in found:
        if kind == "relation" and not is_relation(name) and name.lower() not in known:
            raise _refusal(f"the relation {name}", "a query reads sources, tables and views only")
        if kind == "function":
            _check_function(name, made)
    _check_classes(found)


def check_analysed(parts: str) -> None:
    """Refuse what the names of a text stand for.

    Raises:
        SqlUnsupportedError: it has a part that is not on the allow-list.
    """
    found = [each.split(_FIELD) for each in parts.split(_END)]
    for kind, name, *_ in found:
        if (kind == "view" and not is_relation(name)) or (
            kind == "table" and not name.startswith(_TABLES)
        ):
            raise _refusal(f"the relation {name}", "a query reads sources, tables and views only")
    _check_classes(found)


def functions(session: Any) -> list[str]:  # noqa: ANN401 - a SparkSession
    """The names of the functions that a query may call."""
    java = internals.java_session(session)
    listed = str(internals.jvm_of(session).millstream.bridge.PlanParts.functions(java))
    known = [each.split(_FIELD) for each in listed.split(_END)]
    return [name.upper() for _, name, *made in known if name[-1:].isalnum() and _is_allowed(*made)]


def _check_function(name: str, made: list[str]) -> None:
    called = name.rpartition(".")[2].upper()
    if not made:
        error = SqlColumnError(f"there is no function {called}", hint=_FUNCTIONS)
        raise error from FunctionRefused(called)
    if not _is_allowed(*made):
        raise _refused(made[1], called) from FunctionRefused(called)


def _is_allowed(source: str, of: str) -> bool:
    """Whether a query may call a function, by where it is from and the class that makes it."""
    return source in allowed.USERS or of in allowed.FUNCTIONS


def _check_classes(found: Iterable[list[str]]) -> None:
    for kind, of, *_ in found:
        if kind in _LISTS and of not in _LISTS[kind]:
            error = _refused(of, _words(of))
            raise error from FunctionRefused(allowed.REFUSED.get(of, ("", ""))[0])


def _refused(of: str, otherwise: str) -> SqlUnsupportedError:
    """The error of a class that is not allowed; otherwise: what to call it when it is not known."""
    name, hint = allowed.REFUSED.get(of, (otherwise, _HINT))
    return _refusal(name, hint)


def _refusal(what: str, hint: str) -> SqlUnsupportedError:
    return SqlUnsupportedError(f"{what} is not supported in a query", hint=hint)


def _words(of: str) -> str:
    """The name of a class as words.

    >>> _words("org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation")
    'SCRIPT TRANSFORMATION'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", of.rpartition(".")[2]).upper()
