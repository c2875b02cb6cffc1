"""The Java process that runs Spark: its command line, its start and its end.

Takes a Java and Spark's settings. Gives PySpark's gateway to the process. PySpark's own way runs
spark-submit: a shell, and another Java that only computes this command line.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from millstream.errors import PipelineError, SparkStartError
from millstream.log.storage import PRIVATE_FILE
from millstream.spark import internals
from millstream.spark.engine_jar import engine_jar
from millstream.spark.unsigned_jars import unsigned_jars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.spark.java_home import Java

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_DEFAULT_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_MEMORY: Final = "spark.driver.memory"
_CLASS_PATH: Final = "spark.driver.extraClassPath"
_LIBRARY_PATH: Final = "spark.driver.extraLibraryPath"

_SUBMIT_OPTIONS: Final = {
    "--driver-memory": _MEMORY,
    "--driver-class-path": _CLASS_PATH,
    "--driver-java-options": JAVA_OPTIONS,
    "--driver-library-path": _LIBRARY_PATH,
}
"""Options of spark-submit that belong on the command line of Java itself."""

_MAIN: Final = "millstream.bridge.Launch"
_SHELL: Final = "pyspark-shell"
_POLL_SECONDS: Final = 0.01
_END_SECONDS: Final = 10.0


def start_java(java: Java, settings: Mapping[str, str], log_file: Path, *, umask: int = -1) -> Any:  # noqa: ANN401 - a JavaGateway
    """Start Java, in a thread that Ctrl-C does not reach: a start that is interrupted ends it.

    Args:
        java: the program.
        settings: Spark's.
        log_file: takes its output.
        umask: that of its files; -1: as it is.

    Raises:
        SparkStartError: it ended before it was ready.
    """
    launched: list[Any] = []
    abandoned = threading.Event()

    def launch() -> None:
        launched.append(_launch(java, settings, log_file, umask, abandoned))
        if abandoned.is_set():
            kill_java(launched[0])

    with ThreadPoolExecutor(1, "millstream-java") as thread:
        try:
            launching = thread.submit(launch)
            internals.import_pyspark()  # meanwhile
            launching.result()
        except BaseException:
            abandoned.set()
            for gateway in launched:
                kill_java(gateway)
            raise
    return launched[0]


def _launch(
    java: Java,
    settings: Mapping[str, str],
    log_file: Path,
    umask: int,
    abandoned: threading.Event,
) -> Any:  # noqa: ANN401 - a JavaGateway
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # of this thread, and of the fork
    command = command_line(java.path, settings)
    folder = Path(tempfile.mkdtemp(prefix="millstream-"))
    try:
        with _private_log(log_file) as log:
            log_start = log.tell()
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,  # at whose end Java ends, however this process ends
                stdout=log,
                stderr=log,
                env=_environment(settings) | internals.connection_variables(folder),
                umask=umask,
                process_group=0,  # a Ctrl-C of the terminal does not reach it
            )
        try:
            _wait_until_ready(process, folder, abandoned)
            return internals.connect(folder, process)
        except BaseException as error:
            ended = ended_by(process)
            process.kill()
            process.communicate()
            if ended and isinstance(error, Exception):
                raise start_error(ended, log_file, log_start) from error
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _private_log(path: Path) -> IO[bytes]:
    """Open a log file for appending, which only its owner may read."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    log = os.fdopen(os.open(path, flags, PRIVATE_FILE), "ab")
    log.seek(0, os.SEEK_END)
    return log


def _wait_until_ready(
    process: subprocess.Popen[bytes], folder: Path, abandoned: threading.Event
) -> None:
    while not internals.has_connection(folder):
        if process.poll() is not None:
            raise PipelineError("Java has ended before it was ready")
        if abandoned.wait(_POLL_SECONDS):
            raise PipelineError("the start of Spark was interrupted")


def start_error(what: str, log_file: Path, log_start: int) -> SparkStartError:
    """The error of a start that has failed, with what Java has said last.

    Args:
        what: why it failed.
        log_file: what Java has written.
        log_start: where this start begins in it.
    """
    said = last_words(log_file, log_start)
    return SparkStartError(
        f"Spark did not start: {what}" + (f"; Java's last words: {said}" if said else ""),
        hint=f"{log_file} says more",
    )


def command_line(
    java: Path, settings: Mapping[str, str], submitted: Sequence[str] | None = None
) -> list[str]:
    """Make the command that starts Spark's driver.

    Args:
        java: the program.
        settings: Spark's.
        submitted: the options of spark-submit; None: those of PYSPARK_SUBMIT_ARGS.
    """
    settings = dict(settings)
    if submitted is None:
        submitted = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", _SHELL))
    rest = iter(submitted)
    passed = []
    for each in rest:
        name, equals, value = each.partition("=")
        if name in _SUBMIT_OPTIONS:
            settings[_SUBMIT_OPTIONS[name]] = value if equals else next(rest)
        else:
            passed.append(each)
    words = [str(java), "-cp", _class_path(settings)]
    words.append(f"-Xmx{settings[_MEMORY]}")
    for options in (
        os.environ.get("SPARK_SUBMIT_OPTS", ""),
        settings.get(_DEFAULT_JAVA_OPTIONS, ""),
        settings[JAVA_OPTIONS],
    ):
        words += shlex.split(options)
    words += [*internals.MODULE_OPTIONS, _MAIN]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    return [*words, *passed]


def virtual_machine(java: Path, settings: Mapping[str, str]) -> list[str]:
    """Make the part of the command that is for Java itself, without the program that it runs."""
    command = command_line(java, settings)
    return command[: command.index(_MAIN)]


def _class_path(settings: Mapping[str, str]) -> str:
    """The user's jars, Spark's settings, our jar, Spark's, the settings of Hadoop and YARN.

    Copies of Spark's signed jars come before Spark's own.
    """
    home = internals.spark_home()
    folders = [
        settings.get(_CLASS_PATH),
        os.environ.get("SPARK_CONF_DIR") or str(home / "conf"),
        str(engine_jar()),
        *map(str, unsigned_jars()),
        f"{home / 'jars'}/*",
        *map(os.environ.get, ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")),
    ]
    return os.pathsep.join(filter(None, folders))


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The variables that spark-submit's scripts set."""
    variables = {
        **os.environ,
        "SPARK_HOME": str(internals.spark_home()),
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONHASHSEED": "0",  # the same hash of a text in all of Python's workers
    }
    if _LIBRARY_PATH in settings:
        known = os.environ.get("LD_LIBRARY_PATH")
        paths = filter(None, (settings[_LIBRARY_PATH], known))
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    return variables


def kill_java(gateway: Any) -> None:  # noqa: ANN401 - a JavaGateway
    """Kill the process, and forget it."""
    process = internals.java_process(gateway)
    if process is not None:
        process.kill()
    end_java(gateway)


def end_java(gateway: Any) -> bool:  # noqa: ANN401 - a JavaGateway
    """End the Java process that was started here; PySpark would keep it for another session.

    Returns:
        Whether it ended by itself, without an error.
    """
    process = internals.java_process(gateway)
    with contextlib.suppress(Exception):
        gateway.shutdown()
    if process is not None:
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # at which it ends
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    internals.forget_java(gateway)
    return process is not None and process.returncode == 0


_LINES: Final = 3
_LENGTH: Final = 300
_READ: Final = 1 << 14


def ended_by(process: subprocess.Popen[bytes] | None) -> str:
    """What has ended a Java process; empty when it runs, or was not started here."""
    code = None if process is None else process.poll()
    if code is None:
        return ""
    if code >= 0:
        return f"its Java has ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its Java was killed ({name})"


def last_words(log: Path, start: int) -> str:
    """The last lines that were written to a log file since it had so many bytes, as one line."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - _READ))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-_LINES:])[-_LENGTH:]
