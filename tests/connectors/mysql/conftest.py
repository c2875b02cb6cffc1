"""A real MariaDB on a free port, in a temporary folder; an empty database for each test."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pymysql
import pytest

from millstream.testing import wait_until


def program(name):
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class MariadbServer:
    """MariaDB in a folder, which is started and stopped."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._as = ["runuser", "-u", "mysql", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(folder, "mysql")
        where = ("--no-defaults", f"--datadir={folder}/data")
        how = ("--auth-root-authentication-method=normal", "--skip-test-db")
        self._options = [*where, "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=16M"]
        made = [*self._as, program("mariadb-install-db"), *where, *how, "--skip-name-resolve"]
        done = subprocess.run(made, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        self._process = None

    def start(self):
        more = ("--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-metadata=FULL")
        where = (f"--port={self.port}", "--bind-address=127.0.0.1", "--server-id=1")
        files = (f"--socket={self.folder}/socket", f"--pid-file={self.folder}/pid")
        command = [*self._as, program("mariadbd"), *self._options, *more, *where, *files]
        with open(f"{self.folder}/log", "a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, lambda: Path(f"{self.folder}/log").read_text()[-2000:])

    def _answers(self):
        if not os.path.exists(f"{self.folder}/socket"):
            return False  # the driver would leave a socket open
        with contextlib.suppress(pymysql.Error):
            root = pymysql.connect(unix_socket=f"{self.folder}/socket", user="root")
            with root, root.cursor() as cursor:
                cursor.execute("CREATE USER IF NOT EXISTS 'me'@'%' IDENTIFIED BY 'hunter2'")
                cursor.execute("GRANT ALL ON *.* TO 'me'@'%'")
            return True
        return False

    def stop(self):
        os.kill(int(Path(f"{self.folder}/pid").read_text()), signal.SIGTERM)
        self._process.wait(30)

    def restart(self):
        self.stop()
        self.start()

    @property
    def url(self):
        return f"mysql://me:hunter2@127.0.0.1:{self.port}/shop"

    def connect(self):
        return Connection(self.port)


class Connection:
    """A connection that answers statements with rows."""

    def __init__(self, port):
        self._real = pymysql.connect(
            host="127.0.0.1", port=port, user="me", password="hunter2", autocommit=True
        )

    def execute(self, *statements):
        with self._real.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            return list(cursor.fetchall())

    def close(self):
        self._real.close()


@pytest.fixture(scope="session")
def mariadb():
    if program("mariadbd") is None:
        pytest.skip("there is no MariaDB: make mariadb")
    folder = tempfile.mkdtemp(prefix="millstream-mariadb-")
    server = MariadbServer(folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def my(mariadb):
    connection = mariadb.connect()
    connection.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "USE shop")
    yield connection
    connection.close()
