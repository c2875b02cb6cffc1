"""``Context``: what a statement runs in: the engine, the tenant, the channels of its session."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.catalog import tenants
from millstream.errors import TenantError, ViewFailedError
from millstream.masking import without_secrets
from millstream.model.result import Result
from millstream.sql import (
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Notify,
    Query,
    Select,
    Show,
    ShowChanges,
    Update,
    plan_select,
)
from millstream.views.readiness import READ_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.catalog import Definition
    from millstream.catalog.tenants import OwnRows
    from millstream.engine.engine import Engine
    from millstream.sql import Input, SelectPlan, Statement
    from millstream.subscriptions import Channels

_FOR_TENANTS = (Insert, Update, Delete, Select, Query, Notify, ShowChanges, Describe, Explain)
_SHOWN_TO_TENANTS = ("sources", "tables", "views", "streams")


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a COPY is.

    Attributes:
        rows: rows that were read or written so far.
        done: how much of all, from 0 to 1.
    """

    rows: int
    done: float


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What a statement runs in. A session has one; a call with ``tenant=`` gets its own.

    Attributes:
        engine: what the statement acts on.
        tenant: whose rows it sees and changes; None: all.
        channels: the channels of SQL's LISTEN; None in the context of one call.
        progress: is told how far a COPY is; None: nobody wants to know.
        reads: whether reads wait for views that are late.
    """

    engine: Engine
    tenant: str | None = None
    channels: Channels | None = None
    progress: Callable[[CopyProgress], None] | None = None
    reads: ReadOptions = READ_OPTIONS

    # ---- what a tenant may see

    def find(self, name: str) -> Definition:
        """The definition of a source, table or view.

        Raises:
            ObjectNotFoundError: there is none of that name.
            TenantError: it has no tenant column, so no tenant may see it.
        """
        return self.find_own(name)[0]

    def find_own(self, name: str) -> tuple[Definition, OwnRows | None]:
        """As ``find``, and the rows that the tenant may see of it; None, without a tenant: all."""
        return tenants.find(self.engine.catalog, name, self.tenant)

    def own_rows(self, definition: Definition) -> OwnRows | None:
        """The rows of a relation that the tenant may see; None, without a tenant: all."""
        return tenants.own_rows(definition, self.tenant)

    def names(self) -> tuple[str, ...]:
        """The names of all relations that the tenant may see."""
        return tenants.visible_names(self.engine.catalog, self.tenant)

    def select_all(self, topic: str) -> SelectPlan | None:
        """The plan of all rows that the tenant may see of a topic; None when it may see none."""
        return self.engine.select_all(topic, self.tenant)

    def tenant_column(self, topic: str) -> str | None:
        """The tenant column of a topic, or None."""
        definition = self.engine.catalog.get(topic)
        return None if definition is None else definition.options.tenant

    def plan(self, definition: Definition, statement: Select) -> SelectPlan:
        """The plan of a SELECT of one relation, over the tenant's rows."""
        own = self.own_rows(definition)
        extra = None if own is None else own.equality
        plan = plan_select(statement, definition.schema, extra=extra)
        # The target is named as in the catalog, however the query wrote it.
        return plan if plan.target == definition.name else replace(plan, target=definition.name)

    def inputs(self) -> Callable[[str], Input]:
        """What planners ask for a relation by name; raises when the tenant may not see it."""
        read = self.engine.views.planner.input
        return read if self.tenant is None else lambda name: read(self.find(name).name)

    # ---- what a tenant may do

    def check_allowed(self, statement: Statement) -> None:
        """Raise unless the tenant may run a statement.

        Raises:
            TenantError: it changes or shows what belongs to all.
        """
        if self.tenant is None or isinstance(statement, _FOR_TENANTS):
            return
        if isinstance(statement, Drop) and statement.kind == "subscription":
            return  # one of its own
        if not (isinstance(statement, Show) and statement.kind in _SHOWN_TO_TENANTS):
            raise TenantError(
                f"a tenant cannot run: {without_secrets(statement.text)}",
                hint="tenants query, insert, update and delete; run it without a tenant",
            )

    @contextlib.contextmanager
    def filtered_errors(self) -> Iterator[None]:
        """Raise errors without the parts that name values of other tenants' rows."""
        try:
            yield
        except ViewFailedError as error:
            if self.tenant is None:
                raise
            raise error.for_tenants() from None

    # ---- what a statement gives

    def done(self, status: str, rowcount: int = 0) -> Result:
        """The result of a statement without rows."""
        return Result.of_status(status, lsn=self.engine.dispatcher.lsn, rowcount=rowcount)
