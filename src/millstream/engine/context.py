"""``Context``: what a statement runs in: the engine, the tenant, the role, the channels."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.catalog import tenants
from millstream.engine import permissions
from millstream.engine.functions import FUNCTIONS, SessionFunctions
from millstream.errors import FileRefusedError, ViewFailedError
from millstream.files.place import check_scheme, is_local
from millstream.model.clock import to_datetime
from millstream.model.result import Result
from millstream.sql import plan_select
from millstream.views.readiness import READ_OPTIONS, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.catalog import Definition
    from millstream.catalog.tenants import OwnRows
    from millstream.engine.engine import Engine
    from millstream.engine.permissions import Role
    from millstream.sql import Select, SelectPlan, Statement
    from millstream.subscriptions import Channels
    from millstream.views.planning import Inputs


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
        role: what it may do, as ``permissions.TABLE`` says.
        directories: the only directories whose files a statement may name; None: any file.
        reads: whether reads wait for views that are late.
        functions: the functions whose values are the session's.
    """

    engine: Engine
    tenant: str | None = None
    channels: Channels | None = None
    progress: Callable[[CopyProgress], None] | None = None
    role: Role = "admin"
    directories: tuple[Path, ...] | None = None
    reads: ReadOptions = READ_OPTIONS
    functions: SessionFunctions = FUNCTIONS

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

    def started(self, sql: str, *, calls: bool = True) -> SessionFunctions | None:
        """The functions that a statement can call that begins now: see ``SessionFunctions``."""
        return self.functions.started(sql, to_datetime(self.engine.log.clock()), calls=calls)

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

    def inputs(self) -> Inputs:
        """What planners ask for a relation by name; raises when the tenant may not see it."""
        return self.engine.views.planner.inputs(self.find)

    # ---- what may be done

    def check(self, action: str) -> None:
        """Raise unless the role, and the tenant, may do something; see ``permissions.TABLE``.

        Raises:
            RoleError: the role is too low.
            TenantError: tenants may not.
        """
        permissions.check(action, self.role, self.tenant)

    def check_statements(self, statements: Iterable[Statement]) -> None:
        """Raise unless the role, and the tenant, may run statements.

        Raises:
            RoleError: the role is too low for one of them.
            TenantError: tenants may not run one of them.
        """
        for each in statements:
            permissions.check(permissions.action_of(each), self.role, self.tenant, each.text)

    def path(self, url: str) -> str:
        """A path or URL that a statement names, if it may; a relative one is in the directory.

        Raises:
            FileRefusedError: a file outside of the directories.
        """
        check_scheme(url)
        if self.directories is None or not is_local(url):
            return url
        given = Path(url.partition("://")[2] if "://" in url else url)
        for each in self.directories:
            directory = each.resolve()
            found = (directory / given).resolve()  # of an absolute path, that path
            if found.is_relative_to(directory):
                return str(found)
        where = ", ".join(map(str, self.directories))
        raise FileRefusedError(
            "the server does not give access to this file",
            hint=f"name a file in {where}" if where else "start the server with --files-dir DIR",
        )

    def directory_of(self, path: str) -> Path | None:
        """The directory that a path is in, of those whose files statements may name."""
        resolved = (each.resolve() for each in self.directories or ())
        return next((each for each in resolved if Path(path).is_relative_to(each)), None)

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
