"""The log's figures: ours, the baseline's in the same run, the ratio.

    python benchmarks/log.py            about a minute; writes 5 GB to a temporary directory
    python benchmarks/log.py --quick    a tenth of the data, for a look

The machine is noisy: each pair is measured in turns, and the median of the ratios is what counts.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from millstream.log import Log
from millstream.model import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

MIB = 1 << 20
SCHEMA = Schema.of(symbol="VARCHAR", price="DOUBLE", qty="BIGINT", ts="TIMESTAMP")


def ticks(rows: int) -> pa.RecordBatch:
    """Trades of four columns."""
    rng = random.Random(7)
    now = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    return SCHEMA.rows_to_arrow(
        [(rng.choice(("AAPL", "MSFT", "GOOG")), rng.random() * 400, n, now) for n in range(rows)]
    )


def timed(work: Callable[[], object]) -> float:
    """The seconds that some work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Bench:
    """One directory for all the data, one table for all the figures."""

    def __init__(self, directory: Path, *, scale: float) -> None:
        self.directory = directory
        self.scale = scale
        self.table = Table(
            "work", "ours", "baseline", "ratio", "must reach", title="benchmarks/log.py"
        )

    def row(self, work: str, ours: str, baseline: str, ratio: str, goal: str) -> None:
        """Add a line to the table."""
        self.table.add_row(work, ours, baseline, ratio, goal)

    def fresh(self, name: str) -> Path:
        """A path at which nothing is."""
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True) if path.is_file() else None
        return path

    # ---- append

    def append(self) -> None:
        """Arrow batches of 10k rows, async, against os.write of the same bytes."""
        batch = ticks(10_000)
        payload = batch.serialize().to_pybytes()
        count = int(1600 * self.scale)
        total = len(payload) * count
        pairs = []
        self._plain_write(payload, count)  # the first touch of memory is not what is measured
        for _ in range(7):
            plain = self._plain_write(payload, count)
            ours = self._log_append(batch, count)
            pairs.append((total / ours, total / plain))
        ratio = statistics.median(ours / plain for ours, plain in pairs)
        ours, plain = (statistics.median(p[i] for p in pairs) / 1e9 for i in (0, 1))
        self.row(
            "append 10k-row Arrow batches, async, until readable",
            f"{ours:.2f} GB/s ({ours * 1e9 / len(payload) * 10_000 / 1e6:.0f}M rows/s)",
            f"os.write {plain:.2f} GB/s",
            f"{ratio:.0%}",
            "60%",
        )

    def _plain_write(self, payload: bytes, count: int) -> float:
        fd = os.open(self.fresh("plain"), os.O_CREAT | os.O_WRONLY)
        try:
            return timed(lambda: [os.write(fd, payload) for _ in range(count)])
        finally:
            os.close(fd)

    def _log_append(self, batch: pa.RecordBatch, count: int) -> float:
        with Log(self.fresh("log")) as log:
            log.create_topic("trades", SCHEMA)

            def work() -> None:
                for _ in range(count):
                    lsn = log.append("trades", batch)
                while log.written_lsn < lsn:
                    time.sleep(0.0001)

            return timed(work)

    # ---- commit

    def commits(self) -> None:
        """Small commits, each durable when it returns: 8 threads against one."""
        rows = SCHEMA.arrow_to_rows(ticks(4))
        pairs = []
        for _ in range(5):
            with Log(self.fresh("log"), wal_mode="sync") as log:
                log.create_topic("trades", SCHEMA)
                one = self._commit_rate(log, rows, 1)
                eight = self._commit_rate(log, rows, 8)
            pairs.append((eight, one))
        eight, one = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        ratio = statistics.median(a / b for a, b in pairs)
        self.row(
            "sync commits of 4 rows, 8 threads against 1",
            f"{eight:,.0f}/s",
            f"{one:,.0f}/s",
            f"{ratio:.1f}x",
            "4x",
        )

    def _commit_rate(self, log: Log, rows: list[tuple[object, ...]], threads: int) -> float:
        count = int(4000 * self.scale)

        def work() -> None:
            for _ in range(count // threads):
                log.append("trades", rows)

        workers = [threading.Thread(target=work) for _ in range(threads)]

        def run() -> None:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

        return count / timed(run)

    # ---- open

    def opens(self) -> Path:
        """Opening a log of 2 GiB against one of 200 MiB: after a close, and after kill -9."""
        sizes = [int(200 * MIB * self.scale), int(2048 * MIB * self.scale)]
        paths = [self._filled(f"filled-{size}", size) for size in sizes]
        for kind, spoil in (("clean close", close_cleanly), ("kill -9", kill_hard)):
            times: list[list[float]] = [[], []]
            for _ in range(9):
                for path, seconds in zip(paths, times, strict=True):
                    spoil(path)
                    seconds.append(self._open_time(path))
            small, large = (statistics.median(t) for t in times)
            self.row(
                f"open after {kind}, {sizes[1] // MIB} MiB against {sizes[0] // MIB} MiB",
                f"{large * 1e3:.1f} ms",
                f"{small * 1e3:.1f} ms",
                f"{large / small:.2f}x",
                "1.5x",
            )
        return paths[1]

    def _open_time(self, path: Path) -> float:
        began = time.perf_counter()
        log = Log(path)
        took = time.perf_counter() - began
        log.close()
        return took

    def _filled(self, name: str, size: int) -> Path:
        """A log of about that size, with its last segment half full: that part takes its time."""
        batch, path = ticks(10_000), self.fresh(name)
        half = int(32 * MIB * self.scale)
        with Log(path, segment_bytes=2 * half) as log:
            log.create_topic("trades", SCHEMA)
            count = 0
            while count * batch.nbytes < size or not half <= self._last_size(path) < 2 * half:
                log.append("trades", batch)
                count += 1
                if count % 10 == 0:
                    log.flush()
        return path

    def _last_size(self, path: Path) -> int:
        return max(path.glob("*.seg")).stat().st_size

    # ---- read

    def read(self, path: Path) -> None:
        """Reading everything against cat, in processes of their own; resident memory."""
        files = sorted(str(f) for f in path.glob("*.seg"))
        total = sum(os.path.getsize(f) for f in files)  # noqa: PTH202 - paths as text for cat
        ratios, ours, cats, peak = [], [], [], 0.0
        for _ in range(5):
            cat = timed(
                lambda: subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
            )
            out = subprocess.run(
                [sys.executable, __file__, "--read", str(path)],
                capture_output=True,
                check=True,
                text=True,
            )
            seconds, resident = map(float, out.stdout.split())
            ours.append(total / seconds / 1e9)
            cats.append(total / cat / 1e9)
            ratios.append(cat / seconds)
            peak = max(peak, resident)
        self.row(
            f"read {total // MIB} MiB from end to end, every byte checked",
            f"{statistics.median(ours):.2f} GB/s",
            f"cat {statistics.median(cats):.2f} GB/s",
            f"{statistics.median(ratios):.0%}",
            "50%",
        )
        self.row("the same: resident memory at its peak", f"{peak:.0f} MiB", "", "", "300 MiB")

    def seek(self, path: Path) -> None:
        """Random seeks: how long to the first row, and how many segments are opened for it."""
        opened: list[str] = []

        def audit(event: str, args: tuple[object, ...]) -> None:
            if event == "open" and str(args[0]).endswith(".seg"):
                opened.append(str(args[0]))

        rng, seconds, most = random.Random(7), [], 0
        with Log(path) as log:
            sys.addaudithook(audit)
            for _ in range(200):
                lsn = rng.randint(1, log.lsn)
                opened.clear()
                with log.read("trades", start=lsn) as reader:
                    began = time.perf_counter()
                    batch = reader.next_nowait()
                    seconds.append(time.perf_counter() - began)
                if batch is None or batch.first_lsn != lsn:
                    raise SystemExit(f"seek to {lsn} gave {batch}")
                most = max(most, len(set(opened)))
        self.row(
            "seek to a random LSN: segments touched, at most",
            f"{most} ({statistics.median(seconds) * 1e3:.2f} ms)",
            "",
            "",
            "1",
        )


def close_cleanly(path: Path) -> None:
    """Leave a log as a run that closes it does."""
    Log(path).close()


def kill_hard(path: Path) -> None:
    """Leave a log as a run that is killed does."""
    script = (
        "import os, signal, sys; from millstream.log import Log; log = Log(sys.argv[1]); "
        "log.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    if done.returncode != -signal.SIGKILL:
        raise SystemExit("the writer was not killed")


def read_all(path: str) -> None:
    """Read a log once; print the seconds and the peak of resident memory in MiB."""
    with Log(path) as log:
        began = time.perf_counter()
        rows = sum(len(batch) for batch in log.read("trades"))
        seconds = time.perf_counter() - began
        if rows != log.lsn:
            raise SystemExit(f"{rows} rows read, {log.lsn} written")
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    print(seconds, int(peak) / 1024)


def main() -> None:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_all(options.read)
        return
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        bench = Bench(Path(directory), scale=0.1 if options.quick else 1.0)
        with console.status("append"):
            bench.append()
        with console.status("commit"):
            bench.commits()
        with console.status("open"):
            path = bench.opens()
        with console.status("read"):
            bench.read(path)
            bench.seek(path)
    console.print(bench.table)


if __name__ == "__main__":
    main()
