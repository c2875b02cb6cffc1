"""A server in a thread of its own, psql, and raw sockets for what no client would send."""

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import threading

import psycopg
import pytest
import uvloop

import millstream as ms
from millstream.server.postgres import serve_postgres
from millstream.server.postgres.server import Limits


class Served:
    """A database that is served."""

    def __init__(self, db, **options):
        self.db = db
        self.user = "tester"
        self.password = None
        self._options = options
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._main()), daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    async def _main(self):
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.server = await serve_postgres(self.db, "127.0.0.1", 0, **self._options)
        self.port = self.server.port
        self._started.set()
        await self._stop.wait()
        self.server.close()
        await self.server.wait_closed()

    def stop(self):
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)
        assert not self._thread.is_alive()

    @property
    def dsn(self):
        secret = "" if self.password is None else f" password={self.password}"
        return f"host=127.0.0.1 port={self.port} user={self.user} dbname=millstream{secret}"

    def connect(self, **options):
        options.setdefault("autocommit", True)
        return psycopg.connect(self.dsn, **options)

    def psql(self, *commands, options=(), stdin=None, check=True, quiet=True):
        arguments = [part for each in commands for part in ("-c", each)]
        env = {**os.environ, "PGCONNECT_TIMEOUT": "10", "PAGER": "cat"}
        done = subprocess.run(
            ["psql", "-X", *(["-q"] if quiet else []), self.dsn, *options, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env=env,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def lines(self, *commands, options=("-A", "-t"), **more):
        return self.psql(*commands, options=options, **more).stdout.splitlines()

    def raw(self):
        return Raw(self.port)


class Raw:
    """A socket that speaks the protocol byte by byte."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._received = self.socket.makefile("rb")

    def send(self, kind, content=b""):
        self.socket.sendall(kind + struct.pack("!i", len(content) + 4) + content)

    def start(self, **parameters):
        given = {"user": "tester", "database": "millstream", **parameters}
        pairs = b"".join(f"{key}\0{value}\0".encode() for key, value in given.items())
        self.send(b"", struct.pack("!i", 3 << 16) + pairs + b"\0")
        return self.until(b"Z")

    def read(self, count):
        data = self._received.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def message(self):
        kind = self.read(1)
        (length,) = struct.unpack("!i", self.read(4))
        return kind, self.read(length - 4)

    def until(self, kind):
        found = []
        while not found or found[-1][0] != kind:
            found.append(self.message())
        return found

    def ended(self):
        """What is sent before the end, which must come."""
        found = []
        try:
            while True:
                found.append(self.message())
        except (EOFError, ConnectionResetError):
            return found
        finally:
            self.close()

    def close(self):
        self._received.close()
        self.socket.close()


def fields(content):
    """The fields of an error."""
    return {part[:1].decode(): part[1:].decode() for part in content.split(b"\0") if part}


@pytest.fixture
def db():
    with ms.open() as made:
        yield made


@pytest.fixture
def serve(db):
    """Starts servers of the database."""
    started = []

    def start(**options):
        started.append(Served(db, **options))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def served(serve):
    return serve(limits=Limits(startup_seconds=10))


@pytest.fixture(autouse=True, scope="session")
def _psql_is_there():
    if shutil.which("psql") is None:
        pytest.fail("psql is missing: make psql, or apt-get install postgresql-client")
