"""The plan of all rows of a log, without any text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.sql.filter import SelectPlan, plan_select
from millstream.sql.statements.statement import Select

if TYPE_CHECKING:
    from millstream.model.schema import Schema


def plan_all(target: str, schema: Schema, extra: tuple[str, Any] | None = None) -> SelectPlan:
    """The plan of ``SELECT * FROM target``, or of the rows whose column has a value.

    >>> from millstream.model import Schema
    >>> plan_all("trades", Schema.of(symbol="VARCHAR")).predicate is None
    True
    """
    return plan_select(Select(target=target, items=(exp.Star(),)), schema, extra=extra)
