"""The one way by which the text of a query reaches Spark: parsed, checked, analysed, checked again.

Spark's analysis may load classes, read files and run commands by itself, so what a text names is
checked before; what its names stand for, after. Both go by ``allowed``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SqlColumnError, SqlUnsupportedError
from millstream.spark import allowed, internals
from millstream.spark.failure import SparkError, spark_message
from millstream.sql.views.plan import is_relation

if TYPE_CHECKING:
    from collections.abc import Iterable

_END: Final = "\x1e"
_FIELD: Final = "\x1f"
_TABLES: Final = "millstream.bridge."
_OURS: Final = "millstream.functions."
_HINT: Final = "docs/sql.md says what a query may have"


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


def _check_function(name: str, made: list[str]) -> None:
    shown = name.rpartition(".")[2].upper()
    if not made:
        raise SqlColumnError(f"there is no function {shown}", hint=f"check its spelling; {_HINT}")
    source, of = made
    if source in allowed.USERS or of.startswith(_OURS) or of in allowed.FUNCTIONS:
        return
    raise _refused(of, shown)


def _check_classes(found: Iterable[list[str]]) -> None:
    for kind, of, *_ in found:
        lists = {"node": allowed.NODES, "expression": allowed.EXPRESSIONS}
        if kind in lists and of not in lists[kind]:
            raise _refused(of, _words(of))


def _refused(of: str, shown: str) -> SqlUnsupportedError:
    name, hint = allowed.REFUSED.get(of, (shown, _HINT))
    return _refusal(name, hint)


def _refusal(what: str, hint: str) -> SqlUnsupportedError:
    return SqlUnsupportedError(f"{what} is not supported in a query", hint=hint)


def _words(of: str) -> str:
    """The name of a class as words.

    >>> _words("org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation")
    'SCRIPT TRANSFORMATION'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", of.rpartition(".")[2]).upper()
