"""A real PostgreSQL on a free port, in a temporary folder; a schema of its own for each test."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from millstream.testing import wait_until

SETTINGS = {
    "wal_level": "logical",
    "fsync": "off",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "wal_sender_timeout": "10s",
}


def binaries():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    plain = shutil.which("initdb")
    return found[-1].parent if found else plain and Path(plain).resolve().parent


class PostgresServer:
    """PostgreSQL in a folder, which is started, stopped and killed."""

    def __init__(self, folder, programs):
        self.folder, self._programs = folder, programs
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(folder, "postgres")
        who = ("-U", "postgres", "-A", "scram-sha-256", "--pwfile", self._password())
        self._run("initdb", "-D", f"{folder}/data", *who, "--no-sync", "-E", "UTF8", "--locale=C")
        self._process = None

    def _password(self):
        path = Path(self.folder) / "password"
        path.write_text("hunter2")
        path.chmod(0o644)
        return str(path)

    def _run(self, program, *arguments):
        command = [*self._as, str(self._programs / program), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def start(self):
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with open(f"{self.folder}/server.log", "a") as log:
            self._process = subprocess.Popen(
                [*self._as, str(self._programs / "postgres"), "-D", f"{self.folder}/data",
                 "-p", str(self.port), *options], stdout=log, stderr=log)  # fmt: skip
        wait_until(self._answers, "PostgreSQL answers")

    def _answers(self):
        try:
            self.connect().close()
        except psycopg.OperationalError:
            time.sleep(0.02)
            return False
        return True

    def stop(self, how=signal.SIGINT, timeout=30):
        pid = int(Path(f"{self.folder}/data/postmaster.pid").read_text().split()[0])
        os.kill(pid, how)
        self._process.wait(timeout)

    def restart(self):
        self.stop()
        self.start()

    @property
    def url(self):
        return f"postgresql://postgres:hunter2@127.0.0.1:{self.port}/postgres"

    def connect(self):
        return psycopg.connect(self.url, autocommit=True)


@pytest.fixture(scope="session")
def postgres():
    programs = binaries()
    if programs is None:
        pytest.skip("there is no PostgreSQL: make postgres")
    folder = tempfile.mkdtemp(prefix="millstream-postgres-")
    server = PostgresServer(folder, programs)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def pg(postgres):
    """A connection, with an empty schema ``public``, and no slots."""
    with postgres.connect() as connection:
        wait_until(
            lambda: (
                not connection.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchall()
            ),
            "slots of earlier tests are free",
        )
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        for (name,) in connection.execute("SELECT pubname FROM pg_publication").fetchall():
            connection.execute(f'DROP PUBLICATION "{name}"')
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        yield connection
