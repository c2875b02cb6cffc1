"""Hidden views, shared by identical queries: of subscribed queries that no view was created for."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.errors import ClosedError
from millstream.sql import CreateView, Emit, plan_view
from millstream.views.create import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import Error
    from millstream.sql import Input, Query
    from millstream.views.running import RunningView
    from millstream.views.storage import Storage
    from millstream.views.views import Views


class SharedViews:
    """Creates a hidden view for the first of some identical queries, drops it after the last.

    Args:
        views: where they run.
        storage: where their rows are.
    """

    def __init__(self, views: Views, storage: Storage) -> None:
        self._views = views
        self._storage = storage
        self._sharing = threading.Lock()

    def acquire(
        self, query: Query, inputs: Callable[[str], Input], tenant: str | None
    ) -> RunningView:
        """The hidden view of a query, with one more user.

        Args:
            query: the query.
            inputs: what the query may read; raises when a tenant may not.
            tenant: whose rows the view reads; each tenant has a view of its own. None: all rows.
        """
        with self._sharing:
            statement = CreateView(
                name="", kind="view", query=query, emit=query.emit or Emit(), sql=query.sql
            )
            plan = plan_view(statement, inputs)
            text = f"{plan.fingerprint} {statement.emit} {plan.inputs} {tenant!r}"
            name = HIDDEN + hashlib.sha256(text.encode()).hexdigest()[:16]
            running = self._views.get(name)
            if running is None or running.view.progress.error is not None:
                if running is not None:
                    self._drop(running)
                planned = replace(self._views.plan(statement, name), tenant=tenant)
                self._views.create(planned)
                running = self._views[name]
            running.users += 1
            return running

    def release(self, running: RunningView) -> None:
        """One user less. May be called by any thread, so it is dropped in another one."""

        def end() -> None:
            with self._sharing:
                running.users -= 1
                if running.users or self._views.get(running.view.name) is not running:
                    return
                self._drop(running)

        threading.Thread(target=end, name="millstream-release", daemon=True).start()

    def end(self, name: str, error: Error) -> None:
        """Drop a hidden view whose input was dropped; its subscriptions end with the error."""
        dispatcher = self._storage.dispatcher
        with self._sharing:
            running = self._views.get(name)
            if running is not None:
                dispatcher.call(lambda: dispatcher.fan_out.drop_routes(name, error))
                self._drop(running)

    def _drop(self, running: RunningView) -> None:
        name, log, dispatcher = running.view.name, self._storage.log, self._storage.dispatcher
        with contextlib.suppress(ClosedError):  # the database was closed just now
            self._views.drop(name, lambda: dispatcher.call(lambda: log.drop_topic(name)))
