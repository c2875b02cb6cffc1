"""``Database``: a directory, opened: where everything is wired together."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import warnings
import weakref
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.engine.engine import Engine
from millstream.engine.session import Session
from millstream.errors import (
    ClosedError,
    LogError,
    TenantError,
)
from millstream.log import Log
from millstream.model.arguments import check_mapping, check_path, check_text
from millstream.model.lsn import FIRST_LSN
from millstream.spark.session import Spark
from millstream.subscriptions import (
    InlineSubscription,
    Registry,
)
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VIEW_METRICS = ("state", "rows", "changes", "lsn", "lag_rows", "late_rows", "shifts", "restarts")


class Database(Session):
    """A streaming database in a directory. Get one with ``millstream.open(path)``.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR)")
    ...     _ = db.execute("INSERT INTO users VALUES (1, 'Ada'), (2, 'Grace')")
    ...     db.query("SELECT name FROM users WHERE id = 2").fetchall()
    [('Grace',)]

    Args:
        path: the directory, made when it is not there; None: a temporary one, gone when closed.
        sync_interval: for how long, in seconds, async rows may be written but not on the disk;
            from 0 on.
        retention_interval: seconds between two rounds of retention, from 0.001 on.
        segment_bytes: a new file of the log is begun when the last one has this size.
        repair: open it although files of the log are missing or are not the right ones; what was
            in them is reported to its readers as damage. Without, LogFilesError is raised.
        spark: your own SparkSession for the views; None: one is started with the first view.
        master: where that one runs; None: in this machine, embedded.
        spark_options: more of its options, as for ``SparkSession.builder.config``.
    """

    @uninterrupted
    def __init__(
        self,
        path: str | Path | None = None,
        *,
        sync_interval: float = 0.01,
        retention_interval: float = 60.0,
        segment_bytes: int = 64 << 20,
        repair: bool = False,
        spark: Any = None,  # noqa: ANN401 - a SparkSession; pyspark is imported with the first view
        master: str | None = None,
        spark_options: Mapping[str, str] | None = None,
    ) -> None:
        check_text(master, "master", optional=True)
        check_mapping(spark_options, "spark_options")
        temporary = None if path is not None else tempfile.mkdtemp(prefix="millstream-")
        self.path = check_path(temporary if path is None else path)
        try:
            log = Log(
                self.path,
                sync_interval=sync_interval,
                retention_interval=retention_interval,
                segment_bytes=segment_bytes,
                repair=repair,
            )
        except BaseException:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        hold = log.hold(lsn=FIRST_LSN)  # until durable subscriptions hold what they need
        try:
            spark = Spark(self.path / "spark", session=spark, master=master, options=spark_options)
            engine = Engine(log, spark)
        except BaseException:
            log.close()
            raise
        finally:
            hold.release()
        registry = Registry(log, engine.positions)
        self._closer = _Closer(engine, registry, temporary)
        # Knows nothing of this object, so that one that was forgotten is found and closed.
        self._finalizer = weakref.finalize(self, _close_forgotten, self._closer)
        super().__init__(engine, registry, None, engine.dispatcher.check)
        engine.start()
        # pyarrow imports pandas, if it is there, at its first conversion: better now than later.
        threading.Thread(target=pa.array, args=([0],), daemon=True).start()

    def session(self, *, tenant: str) -> Session:
        """The database as one tenant sees it: every statement, and every way to read or write.

        Raises:
            TenantError: the name of the tenant is not a str.
        """
        self._check()
        if not isinstance(tenant, str):
            raise TenantError(
                f"expected the name of a tenant, got {type(tenant).__name__}",
                hint="db itself is the session of those who see everything",
            )
        return Session(self._engine, self._registry, tenant, self._check)

    # ---- looking at it

    def metrics(self) -> dict[str, Any]:
        """Counters of the database, of each source and of each subscription."""
        self._check()
        engine, open_now = self._engine, self._registry.all()
        sources = self.query("SHOW SOURCES").to_pylist()
        counted = ("producers", "pending", "pushed", "dropped")
        return {
            "lsn": engine.dispatcher.lsn,
            "durable_lsn": engine.log.durable_lsn,
            "published": engine.dispatcher.published,
            "subscribers": len(open_now),
            "sources": {each["name"]: {k: each[k] for k in counted} for each in sources},
            "views": {
                each["name"]: {key: each[key] for key in _VIEW_METRICS}
                for kind in ("VIEWS", "STREAMS")
                for each in self.query(f"SHOW {kind}").to_pylist()
            },
            "subscriptions": [
                {"id": each.id, "name": each.name, "query": each.sql, **asdict(each.metrics)}
                for each in open_now
                if not isinstance(each, InlineSubscription)
            ],
        }

    def topology(self) -> dict[str, Any]:
        """What flows where: nodes, and edges between their names."""
        self._check()
        nodes = [{"name": each.name, "kind": each.kind} for each in self._engine.catalog]
        edges = [
            {"from": log, "to": running.view.name}
            for running in self._engine.views
            for log in running.planned.inputs
        ]
        for each in self._registry.all():
            if isinstance(each, InlineSubscription) or not each.target:
                continue
            name = each.name or f"subscription {each.id}"
            nodes.append({"name": name, "kind": "subscription"})
            edges.append({"from": each.target, "to": name})
        return {"nodes": nodes, "edges": edges}

    # ---- the end

    @uninterrupted
    def close(self) -> None:
        """Commit what was pushed, complete the subscriptions, close the log. Twice is fine.

        Interrupted, as by Ctrl-C, it goes on in the background; the end of the program waits for
        it for a few seconds.

        Raises:
            LogFullError: the disk is full, and rows that were pushed without waiting are lost; the
                message and ``rows_lost`` say how many.
        """
        if self._finalizer.detach() is not None:
            self._closer()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<Database {self.path} {state}>"

    def _check(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError("the database is closed", hint="open it again")
        self._check_open()


class _Closer:
    """Closes a database; knows nothing of the ``Database``."""

    def __init__(self, engine: Engine, registry: Registry, temporary: str | None) -> None:
        self._engine = engine
        self._registry = registry
        self._temporary = temporary

    @property
    def path(self) -> Path:
        """The directory."""
        return self._engine.log.path

    def __call__(self) -> None:
        if self._engine.dispatcher.is_forked:
            return
        with contextlib.ExitStack() as steps:  # each of them is taken, whatever the others raise
            if self._temporary is not None:
                self._engine.views.saver.abandon()
                steps.callback(shutil.rmtree, self._temporary, ignore_errors=True)
            steps.push(self._close_log)
            steps.callback(self._registry.end_all)
            self._engine.close()

    def _close_log(
        self, _: type[BaseException] | None, raised: BaseException | None, __: object
    ) -> None:
        """Close the log; rows that are lost here and rows that were before are one number."""
        try:
            self._engine.log.close()
        except LogError as error:
            before = raised.rows_lost if isinstance(raised, LogError) else 0
            if before and isinstance(error.__cause__, LogError):
                raise error.__cause__.with_lost(before + error.rows_lost) from error
            if before:
                raise error.with_lost(before) from error
            raise


def _close_forgotten(closer: _Closer) -> None:
    try:
        warnings.warn(f"the database {closer.path} was not closed", ResourceWarning, stacklevel=2)
    finally:
        # It may be found by one of its own threads, which cannot wait for itself.
        if threading.current_thread() is threading.main_thread():
            closer()
        else:
            threading.Thread(target=closer).start()
