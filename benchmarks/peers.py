"""One row from its push to a callback: ours beside Pathway's and Bytewax's, in one run.

    python benchmarks/peers.py                 some minutes; installs the peers for this run
    python benchmarks/peers.py --keep ~/peers  keeps their environments there for the next one

The same rows at the same pace: one every 4 ms, each after the answer to the one before. A filter,
and a 1-minute SUM and COUNT for each of 20 symbols, given at each row. Pathway and Bytewax keep
nothing on the disk here; ours writes every row and every change to its log.

Each is measured in a process of its own, one after the other, twice, and the better run counts: the
machine is noisy. A peer that cannot be installed is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from rich.console import Console
from rich.table import Table

import millstream as ms
from peer_pace import Pace, report

HERE = Path(__file__).parent
PEERS = ("pathway", "bytewax")
WORK = {"filter": "filter", "window": "1-minute SUM and COUNT per symbol"}
GOALS = {"window": "p50 0.3 ms, p99 1.5 ms, ahead of both"}
QUERIES = {
    "filter": "SELECT * FROM trades WHERE price > 1.0",
    "window": """SELECT symbol, TUMBLE_START(ts, INTERVAL '1 minute') AS minute,
        SUM(qty) AS volume, COUNT(*) AS n
        FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1 minute')""",
}

Figures = dict[str, dict[str, float]]


def ours(work: str) -> dict[str, float]:
    """The latency of one kind of work."""
    with tempfile.TemporaryDirectory() as folder, ms.open(f"{folder}/db") as db:
        db.execute(
            "CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT,"
            " ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 second')"
        )
        query = QUERIES[work]
        if work == "window":
            db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
            db.wait_for("v")
            query = "SELECT * FROM v"
        pace = Pace(db.source("trades").push)
        db.subscribe_callback(query, lambda _: pace.came(), start="now")
        pace.run()
        return pace.result()


def run(python: Path, script: Path, *arguments: str) -> Figures:
    """What a script prints as its last line, for each kind of work; each in its own process."""
    found: Figures = {}
    for work in WORK:
        command = [str(python), str(script), *arguments, work]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE)
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


def installed(name: str, folder: Path) -> Path:
    """A Python that has a peer, in an environment of its own."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        venv.create(folder / name, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", name]
    subprocess.run([python, *install], check=True, capture_output=True, text=True)
    return python


def measure(folder: Path, console: Console) -> dict[str, Figures]:
    """The figures of each, by work; the better of two runs."""
    runs: dict[str, list[Figures]] = {"ours": []}
    pythons: dict[str, Path] = {}
    for name in PEERS:
        try:
            with console.status(f"installing {name}"):
                pythons[name] = installed(name, folder)
        except (subprocess.CalledProcessError, OSError) as error:
            console.print(f"{name} is left out: it cannot be installed ({error})")
    for turn in ("first", "second"):
        with console.status(f"measuring: {turn} turn"):
            runs["ours"].append(run(Path(sys.executable), Path(__file__), "--only"))
            for name, python in pythons.items():
                try:
                    found = run(python, HERE / f"{name}_peer.py")
                except subprocess.CalledProcessError as error:
                    last = (error.stderr or "").strip().splitlines()[-1:]
                    console.print(f"{name} is left out: it failed ({' '.join(last)})")
                else:
                    runs.setdefault(name, []).append(found)
    return {
        name: {work: min((each[work] for each in found), key=lambda f: f["p50"]) for work in WORK}
        for name, found in runs.items()
        if found
    }


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keep", type=Path, help="a folder for the peers' environments")
    parser.add_argument("--only", choices=WORK, help="ours alone, of one kind of work, as JSON")
    options = parser.parse_args()
    if options.only:
        report(options.only, ours(options.only))
        return
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.keep or Path(folder), console)
    table = Table("work", *found, "must reach", title="benchmarks/peers.py: p50 / p99, ms")
    for work, title in WORK.items():
        figures = [f"{each[work]['p50']:.2f} / {each[work]['p99']:.2f}" for each in found.values()]
        table.add_row(title, *figures, GOALS.get(work, ""))
    console.print(table)


if __name__ == "__main__":
    main()
