"""Checks: what a view cannot have, each with what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

    from millstream.sql.planner.flow import Flow
    from millstream.sql.planner.relations import Logs
    from millstream.sql.planner.telling import Teller
    from millstream.sql.statements import CreateView


def check_select(tree: exp.Select, teller: Teller) -> None:
    """Refuse the clauses that no view has."""


def check_union(tree: exp.SetOperation, teller: Teller) -> None:
    """Refuse unions other than UNION ALL."""


def check_emit(view: CreateView, flow: Flow, logs: Logs, teller: Teller) -> None:
    """Refuse an EMIT or a lateness that the query has no window for."""
