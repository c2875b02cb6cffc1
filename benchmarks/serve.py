"""What the server adds: latency, fan-out, memory, ingest, clients that stall.

The server runs in a process of its own (``millstream serve``), the clients in this one, over
loopback.

    python benchmarks/serve.py [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import re
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import websockets
from websockets.sync.client import connect

ROWS = 10_000


class Server:
    """``millstream serve`` on a free port."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "millstream", "serve", "--http", "127.0.0.1:0", *options]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self.child.stdout is None:
            raise RuntimeError("no output")
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.child.stdout.readline())
        if found is None:
            raise RuntimeError("the server did not start")
        self.port = int(found[1])
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def sql(self, sql: str) -> Any:  # noqa: ANN401 - JSON
        """The answer to statements."""
        answer = self.client.post("/v1/sql", json={"sql": sql})
        answer.raise_for_status()
        return answer.json()

    def memory(self) -> int:
        """Resident bytes of the process."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def close(self) -> None:
        """End it."""
        self.client.close()
        self.child.terminate()
        self.child.wait()


def ipc(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


# ---- latency


CALLBACK = """
import statistics, threading, time, millstream as ms
with ms.open() as db:
    db.execute("CREATE SOURCE s (t BIGINT)")
    took, came = [], threading.Event()
    def on_change(batch):
        took.append(time.monotonic_ns() - batch.rows[0][0])
        came.set()
    db.subscribe_callback("SELECT * FROM s", on_change)
    source = db.source("s")
    for _ in range({count}):
        came.clear()
        source.push((time.monotonic_ns(),))
        came.wait()
        time.sleep(0.002)
    print(statistics.median(took[100:]) / 1e6)
"""


def latency(count: int) -> None:
    """From a push in the server's process to a WebSocket client, less that to a callback."""
    code = CALLBACK.replace("{count}", str(count))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    callback = float(done.stdout)
    pusher = f"""
import sys, threading, time
from millstream.server.run import Server
from millstream.server.settings import Settings
import millstream as ms
db = ms.open()
db.execute("CREATE SOURCE s (t BIGINT)")
def push(server):
    print(server.http, flush=True)
    def run():
        source = db.source("s")
        for _ in range({count}):
            sys.stdin.readline()
            source.push((time.monotonic_ns(),))
    threading.Thread(target=run, daemon=True).start()
Server(db, Settings(http=("127.0.0.1", 0))).run(push)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", pusher], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("no pipes")
    address = child.stdout.readline().strip().replace("http", "ws") + "/v1/ws"
    took = []
    with connect(address, compression=None) as client:
        client.send(json.dumps({"type": "subscribe", "id": 1, "sql": "SELECT * FROM s"}))
        while json.loads(client.recv())["type"] != "progress":
            pass
        time.sleep(0.2)
        for _ in range(count):
            child.stdin.write("\n")
            child.stdin.flush()
            message = client.recv()
            now = time.monotonic_ns()
            took.append(now - json.loads(message)["changes"][0]["row"][0])
            time.sleep(0.002)
    child.terminate()
    child.wait()
    median = statistics.median(took[100:]) / 1e6
    print(f"| callback in process, p50 | {callback:.2f} ms |")
    print(f"| WebSocket client in another process, p50 | {median:.2f} ms |")
    print(f"| **added by the server, p50** | **{median - callback:.2f} ms** |")


# ---- fan-out


class Counter(asyncio.Protocol):
    """A WebSocket client that only counts: what many of them cost must not be the client."""

    received = 0
    rows = 0

    def __init__(self, handshake: bytes, message: bytes, opened: asyncio.Event) -> None:
        self._handshake = handshake
        self._message = message
        self._opened = opened
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - asyncio's
        """Send the handshake."""
        self._transport = transport
        transport.write(self._handshake)

    def data_received(self, data: bytes) -> None:
        """Subscribe, once the handshake is answered; then count the rows that come."""
        if self._message:
            self._transport.write(self._message)
            self._message = b""
            return
        Counter.received += len(data)
        Counter.rows += data.count(b'"op":')
        if not self._opened.is_set() and b'"progress"' in data:
            self._opened.set()


def masked(text: str) -> bytes:
    """A text message from a client."""
    body = text.encode()
    return struct.pack(">BB4x", 0x81, 0x80 | len(body)) + body


async def fan_out(server: Server, clients: int, seconds: float) -> None:
    """One view to many WebSockets: rows in all, memory of an idle one, the producer's pace."""
    server.sql("CREATE SOURCE f (symbol VARCHAR, price DOUBLE, qty BIGINT)")
    server.sql("SELECT COUNT(*) AS n FROM f")
    loop = asyncio.get_running_loop()
    handshake = (
        f"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    wanted = masked(
        json.dumps({"type": "subscribe", "id": 1, "sql": "SELECT * FROM f WHERE qty > 0"})
    )
    alone = await produced(server, seconds, 10)
    before = server.memory()
    events, transports = [], []
    for start in range(0, clients, 50):
        for _ in range(start, min(clients, start + 50)):
            opened = asyncio.Event()
            made, _ = await loop.create_connection(
                lambda opened=opened: Counter(handshake, wanted, opened),  # type: ignore[misc]
                "127.0.0.1",
                server.port,
            )
            transports.append(made)
            events.append(opened)
        await asyncio.gather(*(each.wait() for each in events[start:]))
    await asyncio.sleep(1)
    each = (server.memory() - before) / clients
    Counter.rows = 0
    began = time.perf_counter()
    _, rows = await produced(server, seconds, 100)
    expected = clients * rows
    while Counter.rows < expected and time.perf_counter() - began < 120:
        await asyncio.sleep(0.02)
    took = time.perf_counter() - began
    print(f"| memory of an idle WebSocket with a subscription | {each / 1024:.0f} KiB |")
    print(f"| rows delivered to {clients:,} WebSockets | {Counter.rows / took:,.0f} rows/s |")
    print(f"| of {expected:,} rows, delivered | {Counter.rows / expected:.1%} |")
    Counter.rows, spent = 0, server.cpu()
    pace = await produced(server, seconds, 10)
    began = time.perf_counter()
    while Counter.rows < clients * pace[1] and time.perf_counter() - began < 60:
        await asyncio.sleep(0.02)
    spent = (server.cpu() - spent) / (clients * pace[1] / 10)
    print(f"| processor time of the server for each frame of 10 rows | {spent * 1e6:.0f} us |")
    print(f"| producer alone: a body of 10 rows, 20 times a second | {alone[0] * 1e3:.1f} ms |")
    print(f"| the same beside {clients:,} WebSockets that get them | {pace[0] * 1e3:.1f} ms |")
    for made in transports:
        made.abort()


async def produced(server: Server, seconds: float, rows: int) -> tuple[float, int]:
    """Push rows 20 times a second; how long one push takes, and how many rows there were.

    From a third process: the one that counts is busy.
    """
    options = ("--produce", str(server.port), str(rows), str(seconds))
    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, *options, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    median, count = json.loads(out)
    return median, count


def produce(port: int, rows: int, seconds: float) -> None:
    """What ``produced`` runs."""
    table = pa.table({"symbol": ["AAPL"] * rows, "price": [187.2] * rows, "qty": [100] * rows})
    body = ipc(table)
    head = (
        f"POST /v1/sources/f HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        "Content-Type: application/vnd.apache.arrow.stream\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as client:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            client.sendall(head + body)
            answer = client.recv(4096)
            while not answer.endswith(b"}"):  # the head comes before the body
                answer += client.recv(4096)
            took.append(time.perf_counter() - began)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer.decode())
            time.sleep(max(0.0, 0.05 - took[-1]))
    print(json.dumps([statistics.median(took), len(took) * rows]))


# ---- ingest


def ingest(server: Server, requests: int, threads: int = 2) -> None:
    """Arrow bodies of 10,000 rows."""
    server.sql("CREATE SOURCE i (id BIGINT, price DOUBLE, qty BIGINT)")
    numbers = list(range(ROWS))
    body = ipc(pa.table({"id": numbers, "price": [float(n) for n in numbers], "qty": numbers}))
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}

    def push() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
            for _ in range(requests // threads):
                client.post("/v1/sources/i", content=body, headers=headers).raise_for_status()

    push_threads = [threading.Thread(target=push) for _ in range(threads)]
    began = time.perf_counter()
    for each in push_threads:
        each.start()
    for each in push_threads:
        each.join()
    took = time.perf_counter() - began
    print(f"| Arrow over HTTP, bodies of 10,000 rows | {requests * ROWS / took:,.0f} rows/s |")


# ---- clients that stall


def stalled(server: Server, count: int, readers: int = 10) -> None:
    """Clients that never read, beside some that do."""
    server.sql("CREATE SOURCE w (n BIGINT, pad VARCHAR)")
    path = "/v1/subscribe?sql=" + urllib.parse.quote("SELECT * FROM w")
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    quick = asyncio.run(reading(server, readers))
    sockets = []
    before = server.memory()
    for _ in range(count):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.connect(("127.0.0.1", server.port))
        made.sendall(request)
        sockets.append(made)
    asyncio.run(reading(server, readers))  # until what the kernel holds for them is full
    asyncio.run(reading(server, readers))
    slow = asyncio.run(reading(server, readers))
    grown = (server.memory() - before) / count
    for made in sockets:
        made.close()
    print(f"| {readers} readers alone, p50 / p99 | {quick[0]:.1f} / {quick[1]:.1f} ms |")
    print(
        f"| beside {count} SSE clients that stall, p50 / p99 | {slow[0]:.1f} / {slow[1]:.1f} ms |"
    )
    print(f"| memory of one that stalls | {grown / 1024:.0f} KiB |")


async def reading(server: Server, readers: int) -> tuple[float, float]:
    """Push 200 times 50 rows of 200 bytes; how long each takes to all readers, in ms."""
    took: list[float] = []
    address = f"ws://127.0.0.1:{server.port}/v1/ws"
    rows = [{"n": n, "pad": "x" * 200} for n in range(50)]
    clients = [await websockets.connect(address, compression=None) for _ in range(readers)]
    for client in clients:
        await client.send(
            json.dumps({"type": "subscribe", "id": 1, "sql": "SELECT * FROM w WHERE n = 49"})
        )
        while json.loads(await client.recv())["type"] != "progress":
            pass
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as pusher:
        for _ in range(200):
            began = time.perf_counter()
            answer = await pusher.post("/v1/sources/w", json=rows)
            answer.raise_for_status()
            await asyncio.gather(*(client.recv() for client in clients))
            took.append((time.perf_counter() - began) * 1e3)
    for client in clients:
        await client.close()
    took.sort()
    return took[len(took) // 2], took[len(took) * 99 // 100]


def main() -> None:
    """Print all figures as a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--produce", nargs=3, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        port, rows, seconds = options.produce
        produce(int(port), int(rows), seconds)
        return
    quick = options.quick
    print("| work | figure |\n|---|---|")
    latency(300 if quick else 1000)
    server = Server()
    try:
        asyncio.run(fan_out(server, 200 if quick else 1000, 2 if quick else 10))
        ingest(server, 200 if quick else 1000)
        stalled(server, 100 if quick else 500)
    finally:
        server.close()


if __name__ == "__main__":
    main()
