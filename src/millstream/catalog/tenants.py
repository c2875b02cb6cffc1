"""Tenants: which relations a tenant may see, and which of their rows.

A relation with a tenant column is visible to every tenant; each tenant sees the rows whose tenant
column has its name, and writes no others. All other relations are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ObjectNotFoundError, TenantError
from millstream.sql import plan_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.catalog.catalog import Catalog, Definition
    from millstream.model.weighted_rows import Row
    from millstream.sql import SelectPlan

_PLANS: Final = 4096


class OwnRows:
    """The rows of one tenant in one relation.

    Args:
        definition: the relation.
        column: its tenant column.
        tenant: the value of that column in the tenant's rows.

    Attributes:
        equality: the column and its value, as planners take them.
    """

    __slots__ = ("_place", "equality")

    def __init__(self, definition: Definition, column: str, tenant: str) -> None:
        self.equality = (column, tenant)
        self._place = definition.schema.names.index(column)

    def places(self, rows: Sequence[Row]) -> list[int]:
        """The places of the tenant's rows among others."""
        place, tenant = self._place, self.equality[1]
        return [n for n, row in enumerate(rows) if row[place] == tenant]

    def check(self, rows: Sequence[Row]) -> None:
        """Raise unless all rows are the tenant's.

        Raises:
            TenantError: one is not; the message names its tenant.
        """
        place, (column, tenant) = self._place, self.equality
        for row in rows:
            if row[place] != tenant:
                raise TenantError(
                    f"tenant {tenant!r} cannot write a row of {row[place]!r}",
                    hint=f"set {column} to {tenant!r}",
                )


def own_rows(definition: Definition, tenant: str | None) -> OwnRows | None:
    """The rows of a relation that a tenant may see; None, without a tenant: all of them.

    Raises:
        TenantError: the relation has no tenant column, so no tenant may see it.
    """
    if tenant is None:
        return None
    if not isinstance(tenant, str):
        raise TenantError(
            f"expected the name of a tenant, got {type(tenant).__name__}",
            hint="tenant= takes a str",
        )
    column = definition.options.tenant
    if column is None:
        raise TenantError(
            f"the {definition.kind} {definition.name} has no tenant column",
            hint="CREATE it WITH (tenant = 'column') to let each tenant see its own rows",
        )
    return OwnRows(definition, column, tenant)


def find(catalog: Catalog, name: str, tenant: str | None) -> tuple[Definition, OwnRows | None]:
    """A source, table or view that a tenant may see, and its rows in it; None: of any, all rows.

    Raises:
        ObjectNotFoundError: there is none of that name.
        TenantError: it has no tenant column, so no tenant may see it.
    """
    if tenant is None:
        return catalog[name], None
    definition = catalog.get(name)
    if definition is None:  # the catalog's own hint has names that tenants may not see
        names = ", ".join(visible_names(catalog, tenant))
        raise ObjectNotFoundError(
            f"there is no source, table or view {name!r}",
            hint=f"available to tenants: {names}" if names else "",
        )
    return definition, own_rows(definition, tenant)


def visible_names(catalog: Catalog, tenant: str | None) -> tuple[str, ...]:
    """The names of all relations; for a tenant, of those with a tenant column."""
    return tuple(each.name for each in catalog if tenant is None or each.options.tenant is not None)


class SelectAll:
    """Plans of all rows of a topic, or of those of one tenant; each is made once.

    Args:
        definition_of: the relation that a topic is of; None when it is the database's own.
    """

    def __init__(self, definition_of: Callable[[str], Definition | None]) -> None:
        self._definition_of = definition_of
        self._plans: dict[tuple[str, str | None], tuple[Definition, SelectPlan]] = {}

    def __call__(self, topic: str, tenant: str | None = None) -> SelectPlan | None:
        """The plan of all rows that a tenant may see of a topic; None when it may see none."""
        definition = self._definition_of(topic)
        if definition is None or (tenant is not None and definition.options.tenant is None):
            return None
        known, plan = self._plans.get((topic, tenant), (None, None))
        if plan is None or known is not definition:
            own = own_rows(definition, tenant)
            extra = None if own is None else own.equality
            plan = plan_all(definition.name, definition.schema, extra)
            if len(self._plans) >= _PLANS:  # those of tenants that are gone; made again on demand
                self._plans.clear()
            self._plans[topic, tenant] = (definition, plan)
        return plan
