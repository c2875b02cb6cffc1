"""Statements, carried out: one short function for each kind."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.catalog import Definition, options_of
from millstream.engine import show
from millstream.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    SqlError,
    SqlUnsupportedError,
    SubscriptionExistsError,
    TenantError,
    ViewFailedError,
)
from millstream.model.clock import from_datetime, system_clock
from millstream.model.lsn import FIRST_LSN
from millstream.model.result import Result
from millstream.sql import (
    AddColumn,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Emit,
    Explain,
    Insert,
    Notify,
    Query,
    Select,
    Show,
    ShowChanges,
    ShowCreate,
    SkipDamage,
    Statement,
    Update,
    plan_insert,
    plan_select,
    plan_update,
    plan_view,
    plan_where,
)
from millstream.sql.adhoc import plan_adhoc
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.engine.engine import Engine
    from millstream.model.batch import Row
    from millstream.sql import Predicate, Projection, SelectPlan
    from millstream.subscriptions.registry import Registry
    from millstream.views.planning import Planned


T = TypeVar("T")


@contextlib.contextmanager
def shown_to(tenant: str | None) -> Iterator[None]:
    """Raise what a tenant may be shown of an error; everything to those who have no tenant."""
    try:
        yield
    except ViewFailedError as error:
        if tenant is None:
            raise
        raise error.for_tenants() from None


class Executor:
    """Carries out statements for one tenant, or for all.

    Args:
        engine: what they act on.
        registry: the subscriptions that are open.
        tenant: whose rows it sees and changes; None: everybody's.
    """

    def __init__(self, engine: Engine, registry: Registry, tenant: str | None = None) -> None:
        self._engine = engine
        self._registry = registry
        self._tenant = tenant

    def __call__(self, statement: Statement) -> Result:
        """Carry out one statement."""
        self._check_allowed(statement)
        carry_out: Callable[[Executor, Any], Result] | None = _WAYS.get(type(statement))
        if carry_out is None:
            raise SqlUnsupportedError(
                f"this statement cannot be run here: {statement.text}",
                sql=statement.sql,
                line=statement.line,
                column=statement.column,
                hint="use db.subscribe for LIVE SELECT, db.listen for LISTEN",
            )
        with shown_to(self._tenant):
            return carry_out(self, statement)

    def _check_allowed(self, statement: Statement) -> None:
        """Raise unless this tenant, or everybody, may run a statement."""
        if self._tenant is None or isinstance(statement, _FOR_TENANTS):
            return
        if not (isinstance(statement, Show) and statement.kind in _SHOWN_TO_TENANTS):
            raise TenantError(
                f"a tenant cannot run: {statement.text}",
                hint="tenants query, insert, update and delete; run it without a tenant",
            )

    # ---- what exists

    @uninterrupted
    def create_source(self, statement: CreateSource) -> Result:
        """CREATE SOURCE."""
        return self._create(
            statement,
            Definition(
                "source",
                statement.name,
                statement.schema,
                options_of(statement.options, statement.schema, statement.sql),
                statement.watermark,
                system_clock(),
            ),
        )

    @uninterrupted
    def create_table(self, statement: CreateTable) -> Result:
        """CREATE TABLE."""
        options = options_of(statement.options, statement.schema, statement.sql, "table")
        return self._create(
            statement,
            Definition(
                "table", statement.name, statement.schema, options, created_at=system_clock()
            ),
        )

    def _create(self, statement: CreateSource | CreateTable, definition: Definition) -> Result:
        self._engine.create(definition, if_not_exists=statement.if_not_exists)
        return self._done(f"CREATE {definition.kind.upper()}")

    def create_view(self, statement: CreateView) -> Result:
        """CREATE MATERIALIZED VIEW, CREATE STREAM."""
        engine = self._engine
        if statement.name in engine.catalog:
            if statement.if_not_exists:
                return self._done(_created(statement))
            if statement.or_replace and engine.catalog[statement.name].query:
                return self._replace_view(statement)
            known = engine.catalog[statement.name]
            raise ObjectExistsError(
                f"there is a {known.kind} {known.name} already",
                hint="use another name, or IF NOT EXISTS, or DROP it first",
            )
        engine.create_view(engine.views.plan(statement), if_not_exists=statement.if_not_exists)
        return self._done(_created(statement))

    def _replace_view(self, statement: CreateView) -> Result:
        """CREATE OR REPLACE: the old one goes only when the new one can be."""
        engine = self._engine
        planned = engine.views.plan(statement)
        old = engine.catalog[statement.name]
        engine.check_replacement(old, planned)
        uninterrupted(_swap)(engine, old, planned)
        return self._done(_created(statement))

    @uninterrupted
    def drop(self, statement: Drop) -> Result:
        """DROP."""
        if statement.kind == "subscription":
            return self._drop_subscription(statement)
        catalog = self._engine.catalog
        if statement.kind not in {"source", "table", "view", "stream"}:
            if not statement.if_exists:
                raise ObjectNotFoundError(f"there is no {statement.kind} {statement.name!r}")
        elif not (statement.if_exists and statement.name not in catalog):
            definition = catalog.of_kind(statement.kind, statement.name)
            self._engine.drop(definition, cascade=statement.cascade)
        return self._done(f"DROP {statement.kind.upper()}")

    def _drop_subscription(self, statement: Drop) -> Result:
        if self._registry.is_open(statement.name):
            raise SubscriptionExistsError(
                f"the subscription {statement.name!r} is open", hint="cancel it first"
            )
        positions = self._engine.positions
        if not (statement.if_exists and statement.name not in positions):
            positions.drop(statement.name)
        return self._done("DROP SUBSCRIPTION")

    @uninterrupted
    def add_column(self, statement: AddColumn) -> Result:
        """ALTER ... ADD COLUMN."""
        definition = self._engine.catalog.of_kind(statement.kind, statement.name)
        self._engine.add_column(definition, statement.added, if_not_exists=statement.if_not_exists)
        return self._done(f"ALTER {statement.kind.upper()}")

    def skip_damage(self, statement: SkipDamage) -> Result:
        """ALTER ... SKIP DAMAGE."""
        definition = self._engine.catalog.of_kind(statement.kind, statement.name)
        return show.gaps(self._engine.skip_damage(definition))

    # ---- rows

    def insert(self, statement: Insert) -> Result:
        """INSERT."""
        definition = self._engine.find(statement.target, self._tenant)
        rows = plan_insert(statement, definition.schema)
        self.check_tenant(definition, rows)
        count = self._engine.insert_rows(definition, rows, statement.conflict, self._tenant)
        return self._changed("INSERT", count)

    def update(self, statement: Update) -> Result:
        """UPDATE."""
        definition = self._engine.find(statement.target, self._tenant)
        predicate, projection = plan_update(statement, definition.schema)
        mine = self._mine(definition, predicate)
        if self._tenant is not None:
            projection = _Checked(projection, lambda rows: self.check_tenant(definition, rows))  # type: ignore[assignment]
        return self._changed("UPDATE", self._engine.update(definition, mine, projection))

    def delete(self, statement: Delete) -> Result:
        """DELETE."""
        definition = self._engine.find(statement.target, self._tenant)
        predicate = plan_where(statement.where, definition.schema, statement.sql)
        mine = self._mine(definition, predicate)
        return self._changed("DELETE", self._engine.delete(definition, mine))

    def query(self, statement: Query) -> Result:
        """SELECT with joins, groups, order and so on."""
        return self._engine.query_adhoc(statement, self._tenant)

    def select(self, statement: Select) -> Result:
        """SELECT."""
        definition = self._engine.find(statement.target, self._tenant)
        return self._engine.query(definition, self.plan(definition, statement))

    def plan(self, definition: Definition, statement: Select) -> SelectPlan:
        """The plan of a query, for this tenant's rows only."""
        extra = self._engine.tenant_column(definition, self._tenant)
        plan = plan_select(statement, definition.schema, extra=extra)
        return show.targeted(plan, definition.name)

    def check_tenant(self, definition: Definition, rows: Sequence[Row]) -> None:
        """Raise unless all rows are this tenant's own."""
        mine = self._engine.tenant_column(definition, self._tenant)
        if mine is None:
            return
        place = definition.schema.names.index(mine[0])
        for row in rows:
            if row[place] != mine[1]:
                raise TenantError(
                    f"tenant {mine[1]!r} cannot write a row of {row[place]!r}",
                    hint=f"set {mine[0]} to {mine[1]!r}",
                )

    def _mine(self, definition: Definition, predicate: Predicate | None) -> Predicate | None:
        mine = self._engine.tenant_column(definition, self._tenant)
        if mine is None:
            return predicate
        place = definition.schema.names.index(mine[0])
        return _Mine(predicate, place, mine[1])  # type: ignore[return-value]

    def notify(self, statement: Notify) -> Result:
        """NOTIFY."""
        self._engine.notify(statement.channel, statement.payload, self._tenant)
        return self._done("NOTIFY")

    # ---- showing

    def show(self, statement: Show) -> Result:
        """SHOW SOURCES, TABLES, SUBSCRIPTIONS, ..."""
        return show.objects(statement, self._engine, self._registry, self._tenant)

    def show_create(self, statement: ShowCreate) -> Result:
        """SHOW CREATE."""
        return show.create(self._engine.catalog[statement.name])

    def describe(self, statement: Describe) -> Result:
        """DESCRIBE."""
        return show.describe(self._engine.find(statement.name, self._tenant))

    def explain(self, statement: Explain) -> Result:
        """EXPLAIN."""
        inner, engine = statement.statement, self._engine
        if isinstance(inner, CreateView):
            self._check_allowed(inner)
            planned = engine.views.plan(inner)
            if inner.or_replace and inner.name in engine.catalog:
                engine.check_replacement(engine.catalog[inner.name], planned)
            return show.explain_view(planned)
        if isinstance(inner, Query):
            inputs = engine.inputs(self._tenant)
            adhoc = _or_error(lambda: plan_adhoc(inner, inputs))
            view = _or_error(lambda: plan_view(inner, inputs))
            if isinstance(adhoc, SqlError) and isinstance(view, SqlError):
                raise view
            return show.explain_query(adhoc, view, inner.emit or Emit())
        definition = engine.find(inner.target, self._tenant)
        return show.explain(definition, self.plan(definition, inner))

    def show_changes(self, statement: ShowChanges) -> Result:
        """SHOW CHANGES."""
        since, engine = statement.since, self._engine
        if statement.collection is None:
            names = engine.collections(self._tenant)
        else:
            names = (engine.find(statement.collection, self._tenant).name,)
        if since is None or isinstance(since, int):
            start = since or FIRST_LSN
        elif isinstance(since, timedelta):
            time = system_clock() - since // timedelta(microseconds=1)
            start = engine.log.lsn_since(time, *names)
        else:
            start = engine.log.lsn_since(from_datetime(since), *names)
        return show.changes(engine, names, start, statement.limit, self._tenant)

    def _done(self, status: str, rowcount: int = 0) -> Result:
        return Result.of_status(status, lsn=self._engine.dispatcher.lsn, rowcount=rowcount)

    def _changed(self, verb: str, rowcount: int) -> Result:
        return self._done(f"{verb} {rowcount}", rowcount)


def _swap(engine: Engine, old: Definition, new: Planned) -> None:
    engine.drop(old)
    engine.create_view(new)


class _Mine:
    """The rows of one tenant among those that a predicate keeps."""

    def __init__(self, predicate: Predicate | None, place: int, tenant: str) -> None:
        self._predicate = predicate
        self._place = place
        self._tenant = tenant

    def places(self, rows: Sequence[Row]) -> list[int]:
        """The same as a Predicate's; another tenant's rows are not even looked at."""
        mine = [n for n, row in enumerate(rows) if row[self._place] == self._tenant]
        if self._predicate is None:
            return mine
        kept = self._predicate.places([rows[n] for n in mine])
        return [mine[n] for n in kept]


class _Checked:
    """A projection whose rows are looked at."""

    def __init__(self, projection: Projection, check: Callable[[Sequence[Row]], None]) -> None:
        self._projection = projection
        self._check = check

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """The same as a Projection's."""
        made = self._projection.rows(rows)
        self._check(made)
        return made


def _created(statement: CreateView) -> str:
    return "CREATE STREAM" if statement.kind == "stream" else "CREATE MATERIALIZED VIEW"


def _or_error(plan: Callable[[], T]) -> T | SqlError:
    try:
        return plan()
    except SqlError as error:
        return error


_WAYS: dict[type[Statement], Callable[[Executor, Any], Result]] = {
    CreateSource: Executor.create_source,
    CreateTable: Executor.create_table,
    CreateView: Executor.create_view,
    Drop: Executor.drop,
    AddColumn: Executor.add_column,
    SkipDamage: Executor.skip_damage,
    Insert: Executor.insert,
    Update: Executor.update,
    Delete: Executor.delete,
    Select: Executor.select,
    Query: Executor.query,
    Notify: Executor.notify,
    Show: Executor.show,
    ShowCreate: Executor.show_create,
    Describe: Executor.describe,
    Explain: Executor.explain,
    ShowChanges: Executor.show_changes,
}
_FOR_TENANTS = (Insert, Update, Delete, Select, Query, Notify, ShowChanges, Describe, Explain)
_SHOWN_TO_TENANTS = ("sources", "tables", "views", "streams")
