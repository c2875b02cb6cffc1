"""The Java process of Spark: its command line, and a start that is interrupted or fails."""

import itertools
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import Future
from pathlib import Path

import pytest

from millstream.errors import PipelineError
from millstream.spark import internals, java_process
from millstream.spark.engine_jar import JAR
from millstream.spark.java_home import Java
from millstream.testing import wait_until

JAVA = Java(Path("java"), 17, "", "")
SETTINGS = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": '-XX:+UseX "-Da=b c"'}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in (
        "SPARK_SUBMIT_OPTS",
        "SPARK_CONF_DIR",
        "HADOOP_CONF_DIR",
        "YARN_CONF_DIR",
        "PYSPARK_SUBMIT_ARGS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(internals, "spark_home", lambda: Path("/spark"))
    monkeypatch.setattr(java_process, "unsigned_jars", lambda: [Path("/kept/janino.jar")])


# ---- the command line


def test_settings_are_options_of_java_and_of_spark():
    words = java_process.command_line(JAVA.path, SETTINGS)
    assert words[:6] == [
        "java",
        "-cp",
        f"/spark/conf:{JAR}:/kept/janino.jar:/spark/jars/*",
        "-Xmx1g",
        "-XX:+UseX",
        "-Da=b c",
    ]
    main = words.index("millstream.bridge.Launch")
    assert words[6:main] == list(internals.MODULE_OPTIONS)
    assert words[main + 1 : -1] == [
        *("--conf", "spark.driver.memory=1g"),
        *("--conf", 'spark.driver.extraJavaOptions=-XX:+UseX "-Da=b c"'),
    ]
    assert words[-1] == "pyspark-shell"


def test_what_the_user_submits_reaches_java_or_spark():
    submitted = [
        "--driver-memory",
        "4g",
        "--jars=a.jar",
        "--driver-class-path=b.jar",
        "pyspark-shell",
    ]
    words = java_process.command_line(JAVA.path, SETTINGS, submitted)
    assert words[2:4] == [f"b.jar:/spark/conf:{JAR}:/kept/janino.jar:/spark/jars/*", "-Xmx4g"]
    assert "spark.driver.memory=4g" in words
    assert words[-2:] == ["--jars=a.jar", "pyspark-shell"]


def test_options_and_folders_of_the_environment(monkeypatch):
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dfirst=1 -Dsecond=2")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/hadoop")
    monkeypatch.setenv("SPARK_CONF_DIR", "/conf")
    words = java_process.command_line(JAVA.path, SETTINGS)
    assert words[2:7] == [
        f"/conf:{JAR}:/kept/janino.jar:/spark/jars/*:/hadoop",
        "-Xmx1g",
        "-Dfirst=1",
        "-Dsecond=2",
        "-XX:+UseX",
    ]


def test_a_java_that_ends_at_once_is_reported(tmp_path):
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho no such option\nexit 3\n")
    program.chmod(0o700)
    log_file = tmp_path / "spark.log"
    with pytest.raises(PipelineError, match="exit code 3") as raised:
        java_process.start_java(Java(program, 17, "", ""), SETTINGS, log_file)
    assert str(log_file) in raised.value.hint
    assert log_file.read_text() == "no such option\n"


# ---- a start that takes its time


class Gateway:
    """Stands in for PySpark's gateway to a Java process."""

    def __init__(self):
        self.proc = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)

    def shutdown(self):
        """Nothing to close."""


class Launch:
    """Launching Java begins, goes on when ``answer`` is set, and gives a gateway or fails."""

    def __init__(self):
        self.begun, self.answer = threading.Event(), threading.Event()
        self.fails = None
        self.made = []

    def __call__(self, java, settings, log_file, umask, abandoned):
        self.begun.set()
        assert self.answer.wait(60)
        if self.fails is not None:
            raise self.fails
        self.made.append(Gateway())
        return self.made[-1]


@pytest.fixture
def launch(monkeypatch):
    launching = Launch()
    monkeypatch.setattr(java_process, "_launch", launching)
    yield launching
    for each in launching.made:
        each.proc.kill()
        each.proc.communicate()


def test_java_is_started(tmp_path, launch):
    launch.answer.set()
    assert java_process.start_java(JAVA, {}, tmp_path / "spark.log") is launch.made[0]
    assert launch.made[0].proc.poll() is None


def test_a_start_of_java_that_is_interrupted_leaves_none(tmp_path, launch):
    main = threading.main_thread().ident

    def awaits_java():
        frames = traceback.walk_stack(sys._current_frames()[main])
        first, second = (frame.f_code for frame, _ in itertools.islice(frames, 2))
        return (first, second) == (threading.Condition.wait.__code__, Future.result.__code__)

    def press():
        assert launch.begun.wait(60)
        # Not before: Python ignores what callbacks of weak references raise, as imports have them.
        wait_until(awaits_java)
        signal.pthread_kill(main, signal.SIGINT)
        launch.answer.set()

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        java_process.start_java(JAVA, {}, tmp_path / "spark.log")
    pressing.join()
    wait_until(lambda: [each.proc.returncode for each in launch.made] == [-signal.SIGKILL])


def test_java_that_does_not_start_is_raised(tmp_path, launch):
    launch.fails = RuntimeError("no Java")
    launch.answer.set()
    with pytest.raises(RuntimeError, match="no Java"):
        java_process.start_java(JAVA, {}, tmp_path / "spark.log")
