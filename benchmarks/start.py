"""Where the time goes until the first view is ready, in a new process, and what a second one takes.

    python benchmarks/start.py            five starts, with the archive of Java's classes
    python benchmarks/start.py --first    one start with an empty cache, the first after pip install
    python benchmarks/start.py --runs 1   fewer starts

Each start is a process of its own. The functions at which a part ends are wrapped to note the time.
The processor time of Python and of Java is shown besides: it depends less on what else the machine
does (Linux only).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PARTS: Final = {
    "python": "Python starts, imports Millstream and opens the database",
    "plan": "statements, until Java is needed",
    "java": "Java starts; PySpark is imported meanwhile",
    "context": "Spark's context and session",
    "bridge": "Millstream's classes in Java",
    "query": "the view is planned and started",
    "live": "its query reads, and its first result is there",
    "warm-up": "made-up rows, beside the first view; no user waits for that",
    "second": "a second view in the warm process, from CREATE to its first result",
}
GOALS: Final = {"first view": 3.5, "first view, the very first time": 6.0, "second": 0.15}
ANSWER: Final = "start: "

SOURCE: Final = "CREATE SOURCE s (k VARCHAR, n BIGINT)"
FIRST: Final = "CREATE MATERIALIZED VIEW a AS SELECT k, SUM(n) AS total FROM s GROUP BY k"
SECOND: Final = "CREATE MATERIALIZED VIEW b AS SELECT k, MAX(n) AS most FROM s GROUP BY k"


Costs = tuple[float, float, float]
"""Of a part: its seconds, Python's processor time in it, and Java's."""


def processor_seconds_of_java() -> float:
    """Return the processor time of the processes that this one has started (Linux only)."""
    ticks = 0
    for children in Path("/proc/self/task").glob("*/children"):
        for process in children.read_text().split():
            fields = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Parts:
    """Notes when each part ends.

    Args:
        began: when the process was started, by the clock of ``time.monotonic``.
    """

    def __init__(self, began: float) -> None:
        self._last = (began, 0.0, 0.0)
        self.seconds: dict[str, Costs] = {}

    def end(self, part: str) -> None:
        """Note that a part has just ended."""
        now = (time.monotonic(), time.process_time(), processor_seconds_of_java())
        wall, python, java = (after - before for after, before in zip(now, self._last, strict=True))
        self.seconds[part] = (wall, python, java)
        self._last = now

    def wrap(self, owner: Any, name: str, before: str, after: str) -> None:  # noqa: ANN401
        """Have a function end one part when it is called, and another when it returns."""
        wrapped: Callable[..., Any] = getattr(owner, name)

        def noting(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            self.end(before)
            result = wrapped(*arguments, **options)
            self.end(after)
            return result

        setattr(owner, name, noting)


def start(began: float) -> None:
    """Start once, in this process, and print the seconds of each part as JSON."""
    parts = Parts(began)
    import millstream as ms  # noqa: PLC0415 - its time is measured
    from millstream.spark import session  # noqa: PLC0415
    from millstream.spark.bridge import java_side  # noqa: PLC0415

    parts.wrap(session, "start_java", "plan", "java")
    parts.wrap(java_side, "add_to", "context", "bridge")
    warmed_up = end_of_warm_up()
    with ms.open() as db:
        parts.end("python")
        db.execute(SOURCE)
        db.execute(FIRST)
        parts.end("query")
        db.source("s").push(("a", 1))
        db.wait_for("a")
        parts.end("live")
        if not warmed_up.wait(60):
            sys.exit("the warm-up beside the first view did not end")
        parts.end("warm-up")
        db.execute(SECOND)
        db.wait_for("b")
        parts.end("second")
    print(ANSWER + json.dumps(parts.seconds))


def end_of_warm_up() -> threading.Event:
    """Return what is set once the warm-up of this process, which uses both cores, has ended."""
    from millstream.views.run.warm_up import WarmUp  # noqa: PLC0415

    ended, run = threading.Event(), WarmUp._run  # noqa: SLF001

    def running(self: WarmUp) -> None:
        run(self)
        ended.set()

    setattr(WarmUp, "_run", running)  # noqa: B010 - as for the functions that are wrapped
    return ended


def started(environment: Mapping[str, str]) -> dict[str, Costs]:
    """Start once, in a new process; the costs of each part."""
    command = [sys.executable, __file__, "--began", str(time.monotonic())]
    known = {name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    said = subprocess.run(
        command, env={**known, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    (answer,) = (line for line in said.stdout.splitlines() if line.startswith(ANSWER))
    costs: dict[str, Costs] = json.loads(answer.removeprefix(ANSWER))
    return costs


def wait_for_archive(cache: Path) -> None:
    """Wait until nothing is written in the background that would slow the next start down."""
    while list(cache.glob("millstream/*.list")):
        time.sleep(0.5)


def added(parts: list[Costs]) -> Costs:
    """Add up the costs of parts."""
    wall, python, java = (sum(each) for each in zip(*parts, strict=True))
    return wall, python, java


def show(runs: list[dict[str, Costs]], *, first: bool) -> None:
    """Print the medians of each part, and of their sum."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    title = "the very first start" if first else f"the medians of {len(runs)} starts, in seconds"
    table = Table("part", "what happens", "s", "Python", "Java", "goal", title=title)

    def line(name: str, what: str, costs: list[Costs]) -> None:
        middle = [f"{statistics.median(each):.2f}" for each in zip(*costs, strict=True)]
        table.add_row(name, what, *middle, f"{GOALS[name]:.2f}" if name in GOALS else "")

    before = list(PARTS)[: list(PARTS).index("warm-up")]
    for part, what in PARTS.items():
        if part == "warm-up":
            until = [[run[each] for each in before] for run in runs]
            name = "first view, the very first time" if first else "first view"
            line(name, "all of that", [added(each) for each in until])
        line(part, what, [run[part] for run in runs])
    Console(width=110).print(table)


def main() -> None:
    """Start some times, and print a table."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--first", action="store_true", help="with an empty cache, once")
    options.add_argument("--began", type=float, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.began is not None:
        start(chosen.began)
        return
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        # A start before the others makes Python's byte code, which pip makes as it installs, and
        # the archive of Java's classes, which the very first start is without.
        environment = {"XDG_CACHE_HOME": folder, "PYTHONPYCACHEPREFIX": f"{folder}/python"}
        started(environment)
        wait_for_archive(Path(folder))
        if chosen.first:
            environment["XDG_CACHE_HOME"] = f"{folder}/empty"
        runs = [started(environment) for _ in range(1 if chosen.first else chosen.runs)]
    show(runs, first=chosen.first)


if __name__ == "__main__":
    main()
