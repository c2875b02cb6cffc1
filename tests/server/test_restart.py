from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest
import websockets

from millstream.testing import TIMEOUT

CLIENTS = 100
LAST = 89


class Process:
    """``millstream serve`` in a process of its own, at an address that outlives it."""

    def __init__(self, path):
        self._path = path
        self.port = 0
        self._child = None

    def start(self):
        address = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "millstream", "serve", str(self._path), "--http", address]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self._child.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        self.port = int(found[1])

    def end(self, number):
        self._child.send_signal(number)
        code = self._child.wait(TIMEOUT)
        self._child.stdout.close()
        return code

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def process(tmp_path):
    process = Process(tmp_path / "db")
    process.start()
    yield process
    if process._child.poll() is None:
        process.end(signal.SIGKILL)


class Copy:
    """A client that keeps a copy of the result, and reconnects by its token."""

    def __init__(self, process, number):
        self.process = process
        self.uses_sse = number % 2
        self.rows = []
        self.token = None
        self.resets = self.connects = 0

    def apply(self, frame):
        self.token = frame.get("token") or self.token
        if frame["type"] == "reset":
            self.rows.clear()
            self.resets += 1
        self.rows += [each["row"][0] for each in frame.get("changes", ())]

    async def run(self, last):
        deadline = time.monotonic() + TIMEOUT
        while last not in self.rows:
            assert time.monotonic() < deadline
            try:
                self.connects += 1
                await (self.over_sse(last) if self.uses_sse else self.over_websocket(last))
            except (OSError, httpx.HTTPError, websockets.WebSocketException):
                await asyncio.sleep(0.02)

    async def over_websocket(self, last):
        address = f"ws://127.0.0.1:{self.process.port}/v1/ws"
        async with websockets.connect(address, compression=None) as socket:
            wanted = {"type": "subscribe", "id": 1, "sql": "SELECT n FROM s"}
            await socket.send(json.dumps(wanted | {"start": self.token or "earliest"}))
            async for message in socket:
                self.apply(json.loads(message))
                if last in self.rows:
                    return

    async def over_sse(self, last):
        params = {"sql": "SELECT n FROM s", "start": "earliest"}
        headers = {"Last-Event-ID": self.token} if self.token else {}
        async with (
            httpx.AsyncClient(base_url=self.process.url, timeout=TIMEOUT, verify=False) as client,
            client.stream("GET", "/v1/subscribe", params=params, headers=headers) as answer,
        ):
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    self.apply(json.loads(line[6:]))
                if last in self.rows:
                    return


async def push(process, first, last):
    """Push numbers one by one, each until it is answered, by its key."""
    async with httpx.AsyncClient(timeout=TIMEOUT) as client:
        for n in range(first, last):
            for _ in range(1000):
                try:
                    answer = await client.post(
                        f"{process.url}/v1/sources/s",
                        json=[{"n": n}],
                        headers={"Idempotency-Key": str(n)},
                    )
                    if answer.status_code == 200:
                        break
                except httpx.HTTPError:
                    pass
                await asyncio.sleep(0.02)


@pytest.mark.crash
def test_a_server_that_is_killed_under_its_subscribers(process):
    sql = "CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')"
    assert httpx.post(f"{process.url}/v1/sql", json={"sql": sql}).status_code == 200
    copies = [Copy(process, each) for each in range(CLIENTS)]

    async def main():
        readers = [asyncio.create_task(each.run(last=LAST)) for each in copies]
        pusher = asyncio.create_task(push(process, 0, LAST + 1))
        for count, number in ((30, signal.SIGKILL), (60, signal.SIGTERM)):
            while not all(len(each.rows) >= count for each in copies):
                await asyncio.sleep(0.01)
            await asyncio.to_thread(process.end, number)
            await asyncio.to_thread(process.start)
        await asyncio.gather(pusher, *readers)

    asyncio.run(main())
    for each in copies:
        assert each.rows == list(range(LAST + 1))  # nothing lost, nothing doubled, in order
        assert each.connects >= 3
        assert each.resets == 0  # rows of a sync source were never seen before they were safe
    found = httpx.post(f"{process.url}/v1/sql", json={"sql": "SELECT n FROM s"}).json()
    assert [n for (n,) in found["rows"]] == list(range(LAST + 1))
    assert process.end(signal.SIGTERM) == 0
