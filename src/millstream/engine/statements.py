"""The statements of SQL, each with the function that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.engine import connect, copying, ddl, dml, notifications, show
from millstream.engine.explain import PLAN, explain
from millstream.engine.ways import way_of
from millstream.errors import SqlUnsupportedError
from millstream.model.result import Result
from millstream.sql import (
    AddColumn,
    CopyFrom,
    CopyTo,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Listen,
    Notify,
    Pause,
    Query,
    Select,
    Show,
    ShowChanges,
    ShowCreate,
    SkipDamage,
    Statement,
    Unlisten,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.engine.context import Context
    from millstream.model.schema import Schema

_RUN: Final[dict[type[Statement], Callable[[Context, Any], Result]]] = {
    CreateSource: ddl.create_source,
    CreateTable: ddl.create_table,
    CreateView: ddl.create_view,
    CreateSink: connect.create_sink,
    Pause: connect.pause,
    Drop: ddl.drop,
    AddColumn: ddl.add_column,
    SkipDamage: ddl.skip_damage,
    CopyFrom: copying.copy_from,
    CopyTo: copying.copy_to,
    Insert: dml.insert,
    Update: dml.update,
    Delete: dml.delete,
    Select: dml.query,
    Query: dml.query,
    Notify: notifications.notify,
    Listen: notifications.listen,
    Unlisten: notifications.unlisten,
    Show: show.show,
    ShowCreate: show.show_create,
    ShowChanges: show.show_changes,
    Describe: show.describe,
    Explain: explain,
}
QUERIES: Final = (Select, Query, Show, ShowChanges, ShowCreate, Describe, Explain)


def run(context: Context, statements: Sequence[Statement]) -> Result:
    """Run statements, once all of them are known to be allowed; returns what the last one gives.

    None of them is a LIVE SELECT.

    Raises:
        RoleError: the role is too low for one of them.
        TenantError: one of them is not for tenants.
    """
    context.check_statements(statements)
    result = Result.of_status("")
    for each in statements:
        result = _run(context, each)
    return result


def _run(context: Context, statement: Statement) -> Result:
    if isinstance(statement, Show) and statement.kind == "channels":
        return notifications.show_channels(context)
    with context.filtered_errors():
        return _RUN[type(statement)](context, statement)


def columns_of(context: Context, statement: Statement) -> tuple[Schema, tuple[str, ...]] | None:
    """The columns that a statement gives, and their labels; None if it gives none.

    Nothing is run.

    Raises:
        SqlError: it is refused.
        ObjectNotFoundError: it reads what is not there.
    """
    if isinstance(statement, Select | Query):
        found = way_of(context, statement)
        return found.schema(), found.labels()
    schema = PLAN if isinstance(statement, Explain) else show.columns_of(context, statement)
    return None if schema is None else (schema, schema.names)


def check_not_live(statements: Sequence[Statement], sql: str) -> None:
    """Raise if one of some statements is a LIVE SELECT, whose changes never end.

    Raises:
        SqlUnsupportedError: one is.
    """
    for statement in statements:
        if isinstance(statement, Select | Query) and statement.live:
            raise SqlUnsupportedError(
                "LIVE SELECT is a subscription, and has no result",
                sql=sql,
                line=statement.line,
                column=statement.column,
                hint='db.subscribe("SELECT ...") gives its changes',
            )


def check_query(statement: Statement, sql: str) -> None:
    """Raise unless a statement only reads, and reads once.

    Raises:
        SqlUnsupportedError: it changes something, or it is a LIVE SELECT.
    """
    check_not_live((statement,), sql)
    if not isinstance(statement, QUERIES):
        raise SqlUnsupportedError(
            "query is for SELECT, SHOW, DESCRIBE and EXPLAIN",
            sql=sql,
            line=statement.line,
            column=statement.column,
            hint="use db.execute",
        )
