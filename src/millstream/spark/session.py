"""The Spark session: started on the first view, tuned for it, quiet, and stopped cleanly."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import (
    ClosedError,
    JavaDiedError,
    PipelineError,
    SparkStartError,
)
from millstream.log.storage import make_private
from millstream.spark import internals
from millstream.spark.bridge import java_side
from millstream.spark.bridge.server import BridgeServer
from millstream.spark.class_archive import ClassArchive
from millstream.spark.errors import spark_message
from millstream.spark.java_home import find_java
from millstream.spark.java_process import (
    JAVA_OPTIONS,
    end_java,
    ended_by,
    kill_java,
    start_error,
    start_java,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.spark.bridge.connection import Together
    from millstream.spark.java_home import Java

_logger = logging.getLogger("millstream.spark")

MASTER: Final = "local[256]"
"""Each view holds a task slot for good: slots, not cores."""

_START_ONLY: Final = Path(__file__).parent / "start_only.json"

_SECOND_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000 "
    "-XX:CompileCommand=quiet "
    "-XX:CompileCommand=CompileThresholdScaling,millstream.dataflow.*::*,0.25 "
    "-XX:CompileCommand=CompileThresholdScaling,millstream.bridge.*::*,0.25"
)
"""Java's second compiler (C2) begins with what has run four times as often as by default.

A start calls so much so often that it would use half of the processor time, for code that is not
called again. What runs for each row is compiled as early as by default.
"""

_START: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.maxResultSize": "256m",  # of one query, held by Java as a whole
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.scheduler.mode": "FAIR",  # a batch query must not keep a view from its next batch
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    "spark.default.parallelism": str(os.cpu_count() or 2),  # else as many as there are slots
    "spark.cleaner.referenceTracking.blocking": "false",
    # A query without room fails; Java, which all views share, goes on (see Setup.java).
    "spark.executor.killOnFatalError.depth": "0",
    internals.EXTENSIONS_OF_JARS: "false",
    # A heap that grows by and by is searched as a whole each time; what is not used costs nothing.
    JAVA_OPTIONS: (
        "-XX:+UseParallelGC -XX:InitialRAMPercentage=100 -XX:-UsePerfData "
        f'-XX:+UnlockDiagnosticVMOptions "-XX:CompilerDirectivesFile={_START_ONLY}" '
        f"{_SECOND_COMPILER} "
        "-XX:MetaspaceSize=128m "  # else classes that are loaded lead to a search of the whole heap
        # Frames are our own: Arrow need not check each place that is read in them.
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false "
        "-Dio.netty.jfr.enabled=false"  # of whose events nobody makes a recording
    ),
}
"""What can be set only before Spark starts."""

_END_SECONDS: Final = 10.0

_UMASK: Final = 0o077
"""What Spark writes, checkpoints and state, only its owner may read."""
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
"""Where Spark keeps tables of its own; it makes the folder when a function is not found."""

_JARS: Final = ("spark.jars", "spark.driver.extraClassPath")
_STREAMING: Final = "spark.sql.streaming."
_CHECKPOINTS: Final = "org.apache.spark.sql.execution.streaming.checkpointing."

TUNING: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    _STREAMING + "stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    _STREAMING + "stateStore.checkpointFormatVersion": "2",
    _STREAMING + "stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    _STREAMING + "checkpointFileManagerClass": (
        _CHECKPOINTS + "FileSystemBasedCheckpointFileManager"
    ),
    # Hadoop's own class runs chmod for every file. It is in Hadoop's cache before ours is loaded.
    "fs.file.impl": "millstream.bridge.LocalFiles",
    "fs.file.impl.disable.cache": "true",
    _STREAMING + "realTimeMode.minBatchDuration": "1000",
    # Real-time mode's list of operators lacks coalesce, which works; our lowering keeps the list.
    internals.ALLOW_LIST_CHECK: "false",
    # For queries without state Spark would write its progress later than the sink has rows.
    internals.ASYNC_PROGRESS: "false",
    _STREAMING + "noDataMicroBatches.enabled": "false",
    _STREAMING + "minBatchesToRetain": "4",
    # A text is a query and nothing more: no files by their names, no ${env:...}, no scripts.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.scripting.enabled": "false",
    # Each dataflow has a RocksDB of its own; they share one cache.
    _STREAMING + "stateStore.rocksdb.boundedMemoryUsage": "true",
    # Spark would read each key before it writes it, to count them; a dataflow counts its rows.
    _STREAMING + "stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.join.asofJoin.enabled": "true",  # its syntax, which is off by default
}
"""What every view's own session is set to."""

_ONE_TASK: Final = {"spark.sql.shuffle.partitions": "1"}
"""Whatever the options say: a dataflow is one task, without a shuffle."""


class _Users:
    """How many databases of this process use the Spark that one of them has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: Any = None
        self._count = 0
        self.archive: ClassArchive | None = None  # of its Java
        self.has_views = False  # whether it has run one

    def started(self, context: Any, archive: ClassArchive) -> None:  # noqa: ANN401 - a SparkContext
        with self._lock:
            self._context, self._count = context, 1
            self.archive, self.has_views = archive, False

    def use(self, context: Any) -> bool:  # noqa: ANN401
        """One database more uses a context; False: none of ours has started it."""
        with self._lock:
            if context is not self._context:
                return False
            self._count += 1
            return True

    def leave(self) -> bool:
        """One database less uses it; whether none does any more."""
        with self._lock:
            self._count -= 1
            return self._count <= 0


_USERS: Final = _Users()
_LAUNCHING: Final = threading.Lock()
"""One process has one Spark: two databases must not start it at once."""

_WARM: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""The contexts that have run a view."""


class Spark:
    """One Spark session for a database; views run in sessions of their own that share it.

    Args:
        folder: where the log file goes.
        session: the user's own session, or None to start one.
        master: where Spark runs.
        options: more of Spark's options, which win over ours.
    """

    def __init__(
        self,
        folder: Path,
        *,
        session: Any = None,  # noqa: ANN401 - a SparkSession; pyspark is imported only when used
        master: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._session = session
        self._master = master or MASTER
        self._options = dict(options or {})
        self._is_ours = session is None
        self._is_ready = False
        self._is_stopped = False
        self._lock = threading.Lock()
        self._deaths = 0
        self._burying = threading.Lock()
        self._start_error: PipelineError | None = None
        self._failed_starts = 0
        self._log_start = 0  # where the log of this start begins
        self._server: BridgeServer | None = None
        self._serving = threading.Lock()

    @property
    def log_file(self) -> Path:
        """Where Spark and Java write their output."""
        return self._folder / "spark.log"

    @property
    def session(self) -> Any:  # noqa: ANN401
        """The session, started if need be; anew when its Java has died.

        Whoever waits while another thread tries to start it gets the error of that attempt.

        Raises:
            ClosedError: it was stopped.
            JavaNotFoundError: there is no Java for it.
            SparkStartError: it did not start.
            JavaDiedError: the Java of the user's own session has died.
            PipelineError: it cannot run our queries.
        """
        failed_starts = self._failed_starts
        with self._lock:
            self.check()
            if self._start_error is not None and self._failed_starts > failed_starts:
                raise self._start_error.again()
            if self._session is not None and not _is_alive(self._session):
                self._forget()
            if not self._is_ready:
                try:
                    with progress("starting Spark (once per process)"):
                        self._start()
                except PipelineError as error:
                    self._start_error = error
                    self._failed_starts += 1
                    raise
                self._is_ready = True
            return self._session

    @property
    def deaths(self) -> int:
        """How many Javas have died under it so far, with that of now if nobody has noticed yet."""
        with self._burying:
            session, known = self._session, self._deaths
        return known + (session is not None and _has_ended(_process_of(session)))

    def has_died(self, deaths: int, raised: BaseException) -> bool:
        """Whether Java has died, or ended Spark, since there were so many deaths.

        Args:
            deaths: how many there were before a call.
            raised: what the call has raised. The connections to a Java that is killed end a moment
                before its process does, which is waited for.
        """
        session = self._session
        if self.deaths > deaths or session is None or isinstance(raised, JavaDiedError):
            return self.deaths > deaths
        if internals.is_disconnected(raised):
            _await_end(_process_of(session))
        return not _is_alive(session)

    def check(self) -> None:
        """Raise if it was stopped.

        Raises:
            ClosedError: it was stopped.
        """
        if self._is_stopped:
            raise ClosedError("the database is closed", hint="open it again")

    def server(self, together: Together) -> BridgeServer:
        """The bridge that the tasks of all views connect to; made when it is first needed.

        Args:
            together: a block in which results are taken that have come at the same time.
        """
        with self._serving:
            if self._server is None:
                self._server = BridgeServer(self._address(), together)
            return self._server

    def _address(self) -> str:
        """Where tasks find this process: on this machine, or by the driver's address."""
        context = self.session.sparkContext
        if re.fullmatch(r"local(\[[^\]]*\])?", context.master):
            return "127.0.0.1"
        return str(context.getConf().get("spark.driver.host"))

    def _forget(self) -> None:
        """Let go of a Spark that has ended; PySpark would hold on to it.

        Raises:
            JavaDiedError: it is the user's, who alone can start another one.
        """
        if not self._is_ours:
            raise JavaDiedError(
                "the Java of the Spark session that the database was given has ended",
                hint="close the database, and open it again with a new session",
            )
        gateway = internals.gateway_of(self._session)
        internals.forget_context(self._session.sparkContext)
        end_java(gateway)
        with self._burying:
            self._session, self._is_ready = None, False
            self._deaths += 1

    def for_view(self) -> Any:  # noqa: ANN401
        """A session for one view: its own settings and relations, the functions of the user's."""
        _USERS.has_views = True
        settings = {name: self._options.get(name, value) for name, value in TUNING.items()}
        return internals.cloned_session(self.session, settings | _ONE_TASK)

    def is_cold(self) -> bool:
        """Whether this is asked for the first time, of a Spark that is ours.

        In a session of the user's, made-up rows might meet functions of the user's.
        """
        context = self.session.sparkContext
        with _LAUNCHING:
            is_cold = self._is_ours and context not in _WARM
            _WARM.add(context)
        return is_cold

    def _start(self) -> None:
        if self._session is None:
            java = find_java()
            make_private(self._folder)
            self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
            try:
                with _LAUNCHING:
                    self._session = self._launch(java)
            except PipelineError:
                raise
            except Exception as error:
                raise self._unstarted(error) from error
        deaths = self.deaths
        try:
            java_side.add_to(self._session, is_ours=self._is_ours)
            if self._is_ours:
                internals.jvm_of(self._session).millstream.bridge.Setup.guard()
        except PipelineError:
            raise
        except Exception as error:
            if self.has_died(deaths, error):
                raise self._unstarted(error, _process_of(self._session)) from error
            raise PipelineError(
                f"Spark cannot load the bridge: {error}",
                hint="is it Spark 4.3, with classic PySpark?",
            ) from error

    def _launch(self, java: Java) -> Any:  # noqa: ANN401
        internals.forget_ended_context()
        if internals.active_context() is not None:
            # One process has one Spark: another database started it, or the user did.
            session = internals.active_session()
            self._is_ours = _USERS.use(session.sparkContext)
            return session
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for the user's own functions
        settings = {"spark.master": self._master, "spark.app.name": "millstream"}
        settings |= settings_for(self._options)
        settings.setdefault(_WAREHOUSE, str(self._folder.resolve() / "warehouse"))
        is_local = self._master.startswith("local")  # on a cluster, others write files, too
        if is_local:
            settings.setdefault("spark.hadoop.fs.permissions.umask-mode", f"{_UMASK:03o}")
        archive = ClassArchive(java, settings)
        settings[JAVA_OPTIONS] += f" {archive.option}"
        umask = _UMASK if is_local else -1
        gateway = start_java(java, settings, self.log_file, umask=umask)
        from pyspark import SparkContext  # noqa: PLC0415 - heavy: imported while Java starts
        from pyspark.sql import SparkSession  # noqa: PLC0415

        try:
            context = SparkContext(conf=internals.conf_of(gateway), gateway=gateway)
            context.setLogLevel("WARN")
            session = SparkSession(context)
        except BaseException as error:  # Ctrl-C included: PySpark would forget the process
            process = internals.java_process(gateway)
            reason = self._unstarted(error, process)  # which Java says, while it runs
            internals.forget_context()
            kill_java(gateway)
            if isinstance(error, Exception):
                raise reason from None
            raise
        _USERS.started(context, archive)
        return session

    def _unstarted(
        self, error: BaseException, process: subprocess.Popen[bytes] | None = None
    ) -> SparkStartError:
        """The error of a start that has failed, with what Java has said last."""
        if internals.is_disconnected(error):
            _await_end(process)
        what = ended_by(process) or spark_message(str(error)) or type(error).__name__
        return start_error(what, self.log_file, self._log_start)

    def stop(self) -> None:
        """Stop what was started here; the user's own session goes on. All views have ended."""
        if self._server is not None:
            self._server.close()
        with self._lock:
            session, self._is_ready, self._is_stopped = self._session, False, True
            if session is None or not self._is_ours:
                return
            self._session = None
        with _LAUNCHING:  # else another database might begin to use it
            if _USERS.leave():
                gateway = internals.gateway_of(session)
                if _is_alive(session):
                    with contextlib.suppress(Exception):
                        session.stop()
                else:
                    internals.forget_context(session.sparkContext)
                if end_java(gateway):
                    _write_archive()

    def check_room(self, views: int) -> None:
        """Raise unless one more view can have a task slot for good.

        Raises:
            PipelineError: all slots are taken; the view would wait for ever, in silence.
        """
        found = re.fullmatch(r"local(?:\[(\d+|\*).*\])?", self.session.sparkContext.master)
        if found is None:
            return  # a cluster can grow
        slots = (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
        if views + 2 > slots:
            raise PipelineError(
                f"this Spark has {slots} task slots, and {views} views run on it",
                hint=f"a view holds a slot for good: start Spark with master {MASTER!r}",
            )


def settings_for(options: Mapping[str, str]) -> dict[str, str]:
    """What Spark is started with: the user's options, and the defaults for the rest.

    Extensions are looked for in its jars only if some of them are the user's.
    """
    settings = _START | dict(options)
    if any(each.startswith(_JARS) for each in options) or "PYSPARK_SUBMIT_ARGS" in os.environ:
        settings[internals.EXTENSIONS_OF_JARS] = options.get(internals.EXTENSIONS_OF_JARS, "true")
    return settings


def _write_archive() -> None:
    """Save Java's classes, once; not before a view has run, so that what it needs is there."""
    archive = _USERS.archive
    if archive is not None and archive.is_wanted and _USERS.has_views:
        try:
            archive.write()
        except OSError as error:  # a database closes all the same; the next one may write it
            _logger.info("Java's classes were not archived: %s", error)


def _process_of(session: Any) -> subprocess.Popen[bytes] | None:  # noqa: ANN401 - a SparkSession
    """Its Java; None when others have started it."""
    return internals.java_process(internals.gateway_of(session))


def _has_ended(process: subprocess.Popen[bytes] | None) -> bool:
    return process is not None and process.poll() is not None


def _await_end(process: subprocess.Popen[bytes] | None) -> None:
    """Wait for the end of a Java whose connections have ended, should it come soon."""
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)


def _is_alive(session: Any) -> bool:  # noqa: ANN401 - a SparkSession
    """Whether its Java runs and has not ended it; of one that others started, nothing is known."""
    process = _process_of(session)
    if process is None:
        return True
    try:
        return not _has_ended(process) and not internals.is_stopped(session)
    except Exception:  # noqa: BLE001 - py4j's: Java has ended just now
        return False


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Report something that takes seconds.

    Where the main thread waits for it, on a terminal, a line that is gone when it is done. Else an
    INFO line of logging: behind a prompt the terminal belongs to the prompt.
    """
    waits = threading.current_thread() is threading.main_thread()
    if not (waits and sys.stderr.isatty()):
        _logger.info("%s", what)
        yield
        return
    done = threading.Event()

    def show() -> None:
        began = time.monotonic()
        while not done.wait(0.1):
            sys.stderr.write(f"\rmillstream: {what} ... {time.monotonic() - began:4.1f} s")
            sys.stderr.flush()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    shown = threading.Thread(target=show, name="millstream-progress", daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()
