"""All tests, in parts that run side by side, three processes at a time.

Tests wait for Spark, for disks and for each other's threads, so three processes keep two cores
busy. What a part says is printed when it has ended. Arguments are handed on to pytest; with ``-x``
the first part that fails ends the others.

    python tools/run_tests.py [--quick] [arguments of pytest]

``--quick`` leaves out what is marked ``slow`` or ``crash``. ``MILLSTREAM_TEST_PROCESSES`` sets how
many processes there are. Files of the tests lie in memory (``/dev/shm``) where there is room: a
process that is killed leaves the same there as on a disk, and no fsync waits for one.
``MILLSTREAM_TEST_FILES`` names another directory for them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

PROCESSES = int(os.environ.get("MILLSTREAM_TEST_PROCESSES", "3"))
QUICK = ["-m", "not crash and not slow"]
ON_SPARK = Path("tests/on_spark")
SERVED = ("server", "client", "cli", "console", "notebook", "test_tutorial.py")
STORED = ("database", "log", "subscriptions")
MEMORY = Path("/dev/shm")
ROOM = 4 << 30


def parts(*, quick: bool = False) -> dict[str, list[str]]:
    """What each part runs, those that take longest first. No test is in none, or in two."""
    spark = sorted(map(str, ON_SPARK.glob("test_*.py")))
    lines = [each for each in spark if "/test_line" in each]
    exact = [each for each in spark if each.split("/")[-1] < "test_line" and each not in lines]
    served = [f"tests/{each}" for each in SERVED]
    stored = [f"tests/{each}" for each in STORED]
    connected, hostile = ["tests/connectors"], ["tests/security"]
    apart = (str(ON_SPARK), *served, *stored, *connected, *hostile)
    others = [f"--ignore={each}" for each in apart]
    found = {
        "on Spark: lines of operators": lines,
        "on Spark: the first half of the others": exact,
        "server, client, command line": served,
        "connectors": connected,
        "security": hostile,
        "log and database": stored,
        "on Spark: the rest": [each for each in spark if each not in lines and each not in exact],
        "everything else": ["src", "tests", *others],
    }
    return {name: paths for name, paths in found.items() if not (quick and paths[0] in spark)}


class Part:
    """A process that runs some of the tests."""

    def __init__(self, name: str, paths: list[str], arguments: list[str], files: Path) -> None:
        self.name = name
        self._began = time.monotonic()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by report
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        command += [f"--basetemp={files / name.replace(' ', '-').replace(':', '')}"]
        command += ["-o", "tmp_path_retention_policy=failed", *arguments, *paths]
        self.process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT)

    def report(self) -> int:
        """Print what it has said; its exit code, of which no tests at all is none of the bad."""
        code = abs(self.process.wait())
        took = time.monotonic() - self._began
        print(f"\n== {self.name}: {took:.0f} s ==", flush=True)
        self._output.seek(0)
        sys.stdout.buffer.write(self._output.read())
        sys.stdout.flush()
        self._output.close()
        return 0 if code == 5 else code


def main(arguments: list[str]) -> int:
    """Run all parts, and give the worst of their exit codes."""
    quick = "--quick" in arguments
    given = [each for each in arguments if each != "--quick"] + (QUICK if quick else [])
    with tempfile.TemporaryDirectory(prefix="millstream-tests-", dir=place()) as files:
        return run(list(parts(quick=quick).items()), given, Path(files))


def place() -> str | None:
    """Where the files of the tests lie; None: where temporary files are."""
    given = os.environ.get("MILLSTREAM_TEST_FILES")
    if given is None and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        return str(MEMORY)
    return given


def run(waiting: list[tuple[str, list[str]]], given: list[str], files: Path) -> int:
    """Run some parts with arguments of pytest; the worst of their exit codes."""
    running, worst = list[Part](), 0
    try:
        while waiting or running:
            while waiting and len(running) < PROCESSES:
                running.append(Part(*waiting.pop(0), given, files))
            time.sleep(0.2)
            for part in [each for each in running if each.process.poll() is not None]:
                running.remove(part)
                worst = max(worst, part.report())
            if worst and "-x" in given:
                break
    except KeyboardInterrupt:
        worst = 130
    for part in running:
        part.process.send_signal(signal.SIGINT)
    return max([worst, *(part.report() for part in running)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
