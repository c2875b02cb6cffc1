"""The public API as a type checker sees it in a user's program: mypy --strict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from __future__ import annotations

import asyncio

import millstream as ms


def main(db: ms.Database | ms.Client, policy: ms.Backpressure) -> None:
    rows: list[tuple[object, ...]] = db.execute("SELECT 1").fetchall()
    rows += db.query("SELECT 1", stale_ok=True, timeout=1.0).fetchall()
    print(rows)


def subscribe(db: ms.Database, policy: ms.Backpressure, start: ms.Start) -> None:
    def on_change(batch: ms.ChangeBatch) -> None:
        batch.ack()

    durable = db.subscribe_callback("SELECT 1", on_change, name="n", ack="manual")
    durable.ack()
    held: ms.CallbackSubscription | None = durable
    inline: ms.InlineSubscription = db.subscribe_callback("SELECT 1", print, inline=True)
    db.subscribe("SELECT 1", backpressure=policy, start=start)
    db.subscribe("SELECT 1", backpressure="conflate")
    db.subscribe("SELECT 1", backpressure=ms.Sample(10))
    print(held, inline)


async def follow(db: ms.Database) -> None:
    async for batch in db.subscribe_stream("SELECT 1", name="n"):
        batch.ack()


def remote(client: ms.Client) -> None:
    client.execute("SELECT 1").fetchall()
    client.subscribe_callback("SELECT 1", print, name="n", ack="auto").ack()


with ms.open() as opened:
    asyncio.run(follow(opened))
"""

WRONG = {
    'db.subscribe("SELECT 1", backpressure="drp")': "No overload variant",
    'db.subscribe_callback("SELECT 1", print, name="n", ack="later")': "No overload variant",
    'db.subscribe_callback("SELECT 1", print, inline=True).ack()': '"ack"',
    'db.execute("SELECT 1").recv()': '"recv"',
    'db.changes("t", backpressure="drp")': "incompatible type",
}


def mypy(tmp_path, text):
    program = tmp_path / "program.py"
    program.write_text(text)
    cache = Path(__file__).parents[1] / ".mypy_cache"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(program)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    return done.stdout


def test_a_program_type_checks(tmp_path):
    assert "Success" in mypy(tmp_path, PROGRAM)


def test_mistakes_are_found(tmp_path):
    lines = ["import millstream as ms", "db = ms.open()", *WRONG]
    found = mypy(tmp_path, "\n".join(lines))
    for number, message in enumerate(WRONG.values(), 3):
        [line] = [each for each in found.splitlines() if f"program.py:{number}: error" in each]
        assert message in line, found
