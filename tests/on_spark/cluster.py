"""A Spark cluster on this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pyspark

from millstream.testing import TIMEOUT, wait_until

_HOME = Path(pyspark.__file__).parent
_ENVIRONMENT = {
    "SPARK_HOME": str(_HOME),
    "SPARK_SCALA_VERSION": "2.13",  # else it looks for the folders of a build
    "SPARK_LOCAL_IP": "127.0.0.1",
}
_SLOTS = 8

QUICK = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""As the other Javas of the tests: an executor ends before compiling its code well has paid."""


class Cluster:
    """A standalone master and its workers, on the loopback address.

    Args:
        folder: where their logs and work files go.
        workers: how many there are.

    Attributes:
        url: what ``ms.open(master=...)`` takes.
        workers: the process ids of the workers.
    """

    def __init__(self, folder, workers=2):
        self._folder = folder
        self._processes = []
        try:
            self._start("master", "master.Master", "--port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            names = [f"worker{number}" for number in range(workers)]
            self.workers = [self._start_worker(name) for name in names]
            for name in names:
                self._said(name, "Successfully registered with master (.*)")
        except BaseException:
            self.close()
            raise

    def close(self):
        """End all processes."""
        for each in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)  # a worker's executors are of its group
            each.wait(TIMEOUT)

    def _start_worker(self, name):
        slots = ("--cores", _SLOTS, "--memory", "1g", "--work-dir", self._folder / name)
        return self._start(name, "worker.Worker", *slots, self.url).pid

    def _start(self, name, main, *arguments):
        java = shutil.which("java") or str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
        words = [java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{_HOME}/jars/*"]
        words += [f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", "--webui-port", "0"]
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                [*words, *map(str, arguments)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **_ENVIRONMENT},
            )
        self._processes.append(process)
        return process

    def _log(self, name):
        return self._folder / f"{name}.log"

    def _said(self, name, pattern):
        """What a process has logged, once it has."""

        def found():
            return re.search(pattern, self._log(name).read_text())

        wait_until(found, lambda: f"{name}: {self._log(name).read_text()}")
        return found()[1]


def executors_of(worker):
    """The executors of a worker: their process ids by the ids that Spark has for them."""
    found = {}
    for children in Path(f"/proc/{worker}/task").glob("*/children"):
        for pid in children.read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if "--executor-id" in words:
                found[words[words.index("--executor-id") + 1]] = int(pid)
    return found


def busy_executors(session):
    """The ids of the executors that have a task to do."""
    status = session.sparkContext._jsc.sc().statusStore().executorList(True)
    each_of = (status.apply(number) for number in range(status.size()))
    return {each.id() for each in each_of if each.activeTasks()}


def kill(*pids):
    """Kill processes."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
