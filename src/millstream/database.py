"""``Database``: a session without restrictions, which opens and closes the directory."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.catalog import DDL_SECONDS
from millstream.engine.close import close_engine, close_forgotten
from millstream.engine.open import open_engine, start_views
from millstream.engine.permissions import ROLES
from millstream.engine.session import Session
from millstream.engine.show import metrics, topology
from millstream.errors import InvalidOptionError, TenantError
from millstream.model.arguments import check_mapping, check_path, check_paths, check_text
from millstream.model.clock import system_clock
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from millstream.engine.permissions import Role
    from millstream.model.clock import Clock


class Database(Session):
    """A streaming database in a directory. Get one with ``millstream.open(path)``.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR)")
    ...     _ = db.execute("INSERT INTO users VALUES (1, 'Ada'), (2, 'Grace')")
    ...     db.query("SELECT name FROM users WHERE id = 2").fetchall()
    [('Grace',)]

    Args:
        path: the directory, created if it does not exist; None: a temporary one, removed on close.
        sync_interval: maximum number of seconds between writing async rows and syncing them to
            disk; at least 0.
        retention_interval: seconds between two rounds of retention; at least 0.001.
        segment_bytes: size at which the log starts a new file.
        ddl_timeout: seconds that CREATE, DROP and ALTER wait for one another.
        repair: open the database although files of the log are missing or wrong. Readers of the
            lost rows get a damage report. Without ``repair``, LogFilesError is raised.
        spark: your own SparkSession for views; None: the first view starts one.
        master: the Spark master of that session; None: embedded in this process.
        spark_options: further options, as for ``SparkSession.builder.config``.
    """

    _clock: Clock = staticmethod(system_clock)  # ``millstream.testing`` has others

    @uninterrupted
    def __init__(
        self,
        path: str | Path | None = None,
        *,
        sync_interval: float = 0.01,
        retention_interval: float = 60.0,
        segment_bytes: int = 64 << 20,
        ddl_timeout: float = DDL_SECONDS,
        repair: bool = False,
        spark: Any = None,  # noqa: ANN401 - a SparkSession; pyspark is imported with the first view
        master: str | None = None,
        spark_options: Mapping[str, str] | None = None,
    ) -> None:
        check_text(master, "master", optional=True)
        check_mapping(spark_options, "spark_options")
        temporary = None if path is not None else tempfile.mkdtemp(prefix="millstream-")
        self.path: Path = check_path(temporary if path is None else path)
        try:
            engine = open_engine(
                self.path,
                sync_interval=sync_interval,
                retention_interval=retention_interval,
                segment_bytes=segment_bytes,
                ddl_timeout=ddl_timeout,
                repair=repair,
                clock=self._clock,
                spark=spark,
                master=master,
                spark_options=spark_options,
            )
        except BaseException:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._close = partial(close_engine, engine, temporary)
        # Knows nothing of this object, so that one that was forgotten is found and closed.
        self._finalizer = weakref.finalize(self, close_forgotten, engine, temporary)
        super().__init__(engine, None)
        start_views(engine)
        # pyarrow imports pandas, if it is there, at its first conversion: better now than later.
        threading.Thread(target=pa.array, args=([0],), daemon=True).start()

    def session(
        self,
        *,
        tenant: str | None = None,
        role: Role = "admin",
        directories: Sequence[Path] | None = None,
    ) -> Session:
        """Return the database as one tenant or role sees it.

        The restriction applies to every statement and every call that reads or writes. Without
        a tenant, the session sees all rows, and LISTENs to channels of its own.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        ...     db.session(role="read").execute("DELETE FROM t")
        Traceback (most recent call last):
        millstream.errors.RoleError: the role 'read' cannot run DELETE...

        Args:
            tenant: the tenant whose rows the session reads and writes; None: all rows.
            role: what the session may do: ``read``; ``write``: also rows; ``admin``: everything.
            directories: the only directories whose files statements may name; None: any file.

        Raises:
            TenantError: the name of the tenant is not a str.
            InvalidOptionError: there is no such role, or a directory is no path.
        """
        self._check()
        if role not in ROLES:
            raise InvalidOptionError(f"role is {role!r}", hint=f"one of {', '.join(ROLES)}")
        if not isinstance(tenant, str | None):
            raise TenantError(
                f"expected the name of a tenant, got {type(tenant).__name__}",
                hint="db itself is the session that sees everything",
            )
        within = None if directories is None else check_paths(directories)
        return Session(self._engine, tenant, self, role=role, directories=within)

    # ---- looking at it

    def metrics(self) -> dict[str, Any]:
        """Return counters of the database and of each source, view, subscription and connector."""
        self._check()
        return metrics(self._context)

    def topology(self) -> dict[str, Any]:
        """Return the data flow as nodes, and edges between their names."""
        self._check()
        return topology(self._context)

    # ---- the end

    @uninterrupted
    def close(self) -> None:
        """Commit all pushed rows, complete the subscriptions, and close the log.

        A second call does nothing. If the call is interrupted, as by Ctrl-C, closing continues in
        the background; at its end, the program waits for it for a few seconds.

        Raises:
            LogFullError: the disk is full, and async rows that were still waiting are lost. The
                message and ``rows_lost`` have their number.
        """
        if self._finalizer.detach() is not None:
            self._close()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<Database {self.path} {state}>"
