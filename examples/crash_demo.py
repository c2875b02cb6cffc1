"""The demo of the log: a writer that is killed again and again, and loses nothing it promised.

    make crashdemo
    python examples/crash_demo.py 5

A child process appends trades and says which of them are durable. It is killed with SIGKILL at a
random moment, the log is opened again, and every acknowledged row is looked for: 25 times over, or
as often as the argument says.
"""

from __future__ import annotations

import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from millstream import Log, Schema

KILLS = 25
TRADES = Schema.of(run="BIGINT NOT NULL", n="BIGINT NOT NULL", symbol="VARCHAR", price="DOUBLE")


def write(path: str, run: int) -> None:
    """Append trades for ever; print how many are durable after each commit."""
    rng = random.Random(run)
    log = Log(path, wal_mode="sync")
    if "trades" not in log.topics:
        log.create_topic("trades", TRADES)
    done = 0
    while True:
        count = rng.choice((1, 1, 1, 10, 1000))
        symbol = rng.choice(("AAPL", "MSFT", "GOOG"))
        log.append("trades", [(run, done + i, symbol, rng.random() * 400) for i in range(count)])
        done += count
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()


def kill_a_writer(path: str, run: int, rng: random.Random) -> int:
    """Start a writer, kill it at a random moment; return how many rows it had acknowledged."""
    command = [sys.executable, __file__, path, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        if writer.stdout is None:
            raise SystemExit("no pipe to the writer")
        pipe = writer.stdout.fileno()
        said, deadline = b"", time.monotonic() + 60
        while chunk := _read(pipe, deadline):
            if not said:
                deadline = time.monotonic() + rng.random() * 0.15
            said += chunk
        os.kill(writer.pid, signal.SIGKILL)
        while chunk := os.read(pipe, 1 << 16):
            said += chunk
    whole_lines = said[: said.rfind(b"\n")].split()
    return int(whole_lines[-1]) if whole_lines else 0


def _read(pipe: int, deadline: float) -> bytes:
    ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
    return os.read(pipe, 1 << 16) if ready else b""


def look_for(path: str, run: int) -> tuple[int, float, str]:
    """Open the log; the rows of a run in order, the time opening took, what recovery said."""
    began = time.perf_counter()
    with Log(path) as log:
        opened = time.perf_counter() - began
        found = 0
        for batch in log.read("trades"):
            for row_run, n, _, _ in batch.rows:
                if row_run == run:
                    if n != found:
                        raise SystemExit(f"row {n} where row {found} should be")
                    found += 1
        cut = (
            f"cut {log.recovery.cut_bytes:,} bytes" if log.recovery.cut_bytes else "nothing to cut"
        )
        return found, opened, cut


def main(kills: int) -> None:
    """Kill writers and show what is left, then a summary."""
    console, rng = Console(), random.Random()
    progress = Progress(
        TextColumn("kill -9"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )
    task = progress.add_task("kills", total=kills)
    total = kept = lost = 0
    opens: list[float] = []
    table = Table("run", "acknowledged", "found", "lost", "reopened in", "the end of the log")

    def picture() -> Table:
        grid = Table.grid()
        grid.add_row(table)
        grid.add_row(progress)
        return grid

    with tempfile.TemporaryDirectory(prefix="millstream-demo-") as directory:
        with Live(picture(), console=console, refresh_per_second=10):
            for run in range(kills):
                acknowledged = kill_a_writer(directory, run, rng)
                found, opened, cut = look_for(directory, run)
                missing = max(0, acknowledged - found)
                total, kept, lost = total + acknowledged, kept + found, lost + missing
                opens.append(opened)
                table.add_row(
                    str(run + 1),
                    f"{acknowledged:,}",
                    f"{found:,}",
                    f"[red]{missing}[/]" if missing else "[green]0[/]",
                    f"{opened * 1e3:.1f} ms",
                    cut,
                )
                progress.advance(task)
        with Log(directory) as log:
            damaged = list(log.verify())
    console.print(
        f"\n{kills} kills: {total:,} rows acknowledged, {kept:,} found, "
        f"[bold]{lost} lost[/], {len(damaged)} damaged; reopened in "
        f"{statistics.median(opens) * 1e3:.1f} ms at the median."
    )
    if lost or damaged:
        raise SystemExit(1)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write(sys.argv[1], int(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else KILLS)
