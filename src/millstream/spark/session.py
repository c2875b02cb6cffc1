"""The Spark session: started on the first view, tuned for it, quiet, and stopped cleanly."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ClosedError, JavaNotFoundError, PipelineError
from millstream.spark.bridge import compiler as bridge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_logger = logging.getLogger("millstream.spark")

_END_SECONDS: Final = 10.0

MASTER: Final = "local[256]"
"""Each live view holds a task slot for good: slots, not cores."""

_JAVA_HINT: Final = (
    "install Java 17 or newer: apt-get install openjdk-17-jre-headless (Debian, Ubuntu), "
    "brew install openjdk@17 (macOS); or set JAVA_HOME"
)

_START: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.scheduler.mode": "FAIR",  # a backfill must not keep a live view from its next batch
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    "spark.default.parallelism": str(os.cpu_count() or 2),  # else as many as there are slots
    "spark.cleaner.referenceTracking.blocking": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:-UsePerfData",
}
"""What can be set only before Spark starts."""

_STREAMING: Final = "spark.sql.streaming."
_CHECKPOINTS: Final = "org.apache.spark.sql.execution.streaming.checkpointing."

TUNING: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    _STREAMING + "stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    _STREAMING + "stateStore.checkpointFormatVersion": "2",
    _STREAMING + "stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    _STREAMING + "checkpointFileManagerClass": (
        _CHECKPOINTS + "FileSystemBasedCheckpointFileManager"
    ),
    _STREAMING + "realTimeMode.minBatchDuration": "1000",
    # Real-time mode's list of operators lacks coalesce, which works; our planner keeps the list.
    _STREAMING + "realTimeMode.allowlistCheck": "false",
    # For queries without state Spark would note progress later than the sink has rows.
    _STREAMING + "realTimeMode.asyncProgressTrackingByDefault.enabled": "false",
    _STREAMING + "noDataMicroBatches.enabled": "false",
    # Else Spark's watermark would begin at withWatermark; the source sets it, for the whole query.
    _STREAMING + "statefulOperator.allowMultiple": "false",
    _STREAMING + "minBatchesToRetain": "4",
}
"""What every view's own session is set to."""


class _Users:
    """How many databases of this process use the Spark that one of them has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: Any = None
        self._count = 0

    def started(self, context: Any) -> None:  # noqa: ANN401 - a SparkContext
        with self._lock:
            self._context, self._count = context, 1

    def use(self, context: Any) -> bool:  # noqa: ANN401
        """Whether it is one of ours, used once more."""
        with self._lock:
            if context is not self._context:
                return False
            self._count += 1
            return True

    def leave(self) -> bool:
        """Whether nobody uses it any more."""
        with self._lock:
            self._count -= 1
            return self._count <= 0


_USERS: Final = _Users()
_LAUNCHING: Final = threading.Lock()
"""One process has one Spark: two databases must not start it at once."""


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

    @property
    def log_file(self) -> Path:
        """Where Spark and Java write what they have to say."""
        return self._folder / "spark.log"

    @property
    def session(self) -> Any:  # noqa: ANN401
        """The session, started if need be.

        Raises:
            ClosedError: it was stopped.
            JavaNotFoundError: there is no Java for it.
            PipelineError: it did not start.
        """
        with self._lock:
            self.check()
            if self._is_ready and self._is_ours and not _is_alive(self._session):
                self._bury()
            if not self._is_ready:
                with progress("starting Spark (once per process)"):
                    self._start()
                self._is_ready = True
            return self._session

    def check(self) -> None:
        """Raise if it was stopped.

        Raises:
            ClosedError: it was.
        """
        if self._is_stopped:
            raise ClosedError("the database is closed", hint="open it again")

    @property
    def address(self) -> str:
        """Where tasks find this process: on this machine, or by the driver's address."""
        context = self.session.sparkContext
        if re.fullmatch(r"local(\[[^\]]*\])?", context.master):
            return "127.0.0.1"
        return str(context.getConf().get("spark.driver.host"))

    def _bury(self) -> None:
        """Forget a Spark whose Java has died; PySpark would hold on to it."""
        from pyspark import SparkContext  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415

        SparkContext._active_spark_context = None  # noqa: SLF001
        _end_java(self._session.sparkContext._gateway)  # noqa: SLF001
        SparkSession._instantiatedSession = None  # noqa: SLF001
        self._session, self._is_ready = None, False

    def for_view(self) -> Any:  # noqa: ANN401
        """A session for one view: its own settings and relations, the functions of the user's."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy, and only for who has views

        base = self.session
        with _quiet():
            clone = base._jsparkSession.cloneSession()  # noqa: SLF001 - newSession forgets UDFs
            view = SparkSession(base.sparkContext, clone)
        for name, value in TUNING.items():
            view.conf.set(name, self._options.get(name, value))
        return view

    def _start(self) -> None:
        # PySpark prints what it also raises.
        for name in ("SQLQueryContextLogger", "py4j"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        logging.getLogger().addFilter(_not_of_py4j)  # where it tells that Java has died
        if self._session is None:
            check_java()
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                with _quiet(), _LAUNCHING, _no_java_left():
                    self._session = self._launch()
            except JavaNotFoundError:
                raise
            except Exception as error:
                raise PipelineError(
                    f"Spark did not start: {error}", hint=f"{self.log_file} says more"
                ) from error
        try:
            bridge.add_to(self._session)
        except PipelineError:
            raise
        except Exception as error:
            raise PipelineError(
                f"Spark cannot load the bridge: {error}",
                hint="is it Spark 4.3, with classic PySpark?",
            ) from error

    def _launch(self) -> Any:  # noqa: ANN401
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415

        if SparkContext._active_spark_context is not None:  # noqa: SLF001
            # One process has one Spark: another database started it, or the user did.
            session = SparkSession.builder.getOrCreate()
            self._is_ours = _USERS.use(session.sparkContext)
            return session
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for the user's own functions
        conf = SparkConf().setMaster(self._master).setAppName("millstream")
        for name, value in (_START | self._options).items():
            conf.set(name, value)
        with self.log_file.open("ab") as log:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("WARN")
        _USERS.started(context)
        return SparkSession(context)

    def stop(self) -> None:
        """Stop what was started here; the user's own session goes on."""
        with self._lock:
            session, self._is_ready, self._is_stopped = self._session, False, True
            if session is None or not self._is_ours:
                return
            self._session = None
        with _LAUNCHING:  # else another database might begin to use it
            if _USERS.leave():
                gateway = session.sparkContext._gateway  # noqa: SLF001
                with _quiet(), contextlib.suppress(Exception):
                    session.stop()
                _end_java(gateway)

    def check_room(self, views: int) -> None:
        """Raise unless one more view can have a task slot for good.

        Raises:
            PipelineError: all slots are taken; it would wait for ever, without a word.
        """
        found = re.fullmatch(r"local(?:\[(\d+|\*).*\])?", self.session.sparkContext.master)
        if found is None:
            return  # a cluster can grow
        slots = (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
        if views + 2 > slots:
            raise PipelineError(
                f"this Spark has {slots} task slots, and {views} views run on it",
                hint=f"a live view holds a slot for good: start Spark with master {MASTER!r}",
            )


@contextlib.contextmanager
def _no_java_left() -> Iterator[None]:
    """A start that fails, or is interrupted, takes its Java with it; PySpark would forget it."""
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    started: list[subprocess.Popen[bytes]] = []
    module: Any = java_gateway
    popen = module.Popen

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - Popen's own
        with _ctrl_c_later():  # else a process could be forgotten that is half made
            started.append(popen(*args, **options))
        return started[-1]

    module.Popen = start
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if started:
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
            SparkContext._active_spark_context = None  # noqa: SLF001
            SparkSession._instantiatedSession = None  # noqa: SLF001
        raise
    finally:
        module.Popen = popen


@contextlib.contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Whoever presses it meanwhile is heard at the end; only the main thread hears it at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    if pressed and callable(before):
        before(signal.SIGINT, None)


def _end_java(gateway: Any) -> None:  # noqa: ANN401 - a JavaGateway
    """End the Java process that was started here; PySpark would keep it for another session."""
    from pyspark import SparkContext  # noqa: PLC0415

    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Exception):
        gateway.shutdown()
    if process is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # at which it ends
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _is_alive(session: Any) -> bool:  # noqa: ANN401 - a SparkSession
    """Whether its Java runs, as far as can be told: of one that others started, nothing can."""
    process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001
    return process is None or process.poll() is None


def check_java() -> None:
    """Raise unless there is a Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise JavaNotFoundError("Spark needs Java, and there is none", hint=_JAVA_HINT)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = re.search(r'version "(\d+)', told.stderr + told.stdout)
    if found is None or int(found[1]) < 17:
        version = found[1] if found else "unknown"
        raise JavaNotFoundError(f"Spark needs Java 17, and {java} is {version}", hint=_JAVA_HINT)


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Report something that takes seconds.

    On a terminal, a line that is gone when it is done; elsewhere, an INFO line of logging.
    """
    if not sys.stderr.isatty():
        _logger.info("%s", what)
        yield
        return
    done = threading.Event()

    def tell() -> None:
        began = time.monotonic()
        while not done.wait(0.1):
            sys.stderr.write(f"\rmillstream: {what} ... {time.monotonic() - began:4.1f} s")
            sys.stderr.flush()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    errors = threading.Thread(target=tell, name="millstream-progress", daemon=True)
    errors.start()
    try:
        yield
    finally:
        done.set()
        errors.join()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PySpark warns of versions that make no difference here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
