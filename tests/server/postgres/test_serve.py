import contextlib
import re
import signal
import subprocess
import sys

import psycopg
import pytest

from millstream.server.keys import Keys


@pytest.mark.slow
def test_millstream_serve(tmp_path):
    secret = Keys(tmp_path / "db").create("boss", role="admin")
    serve = [sys.executable, "-m", "millstream", "serve", str(tmp_path / "db"), "--auth"]
    serve += ["--http", "127.0.0.1:0", "--pg", "127.0.0.1:0"]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        line = server.stdout.readline()
        host, port = re.search(r"postgresql://([\d.]+):(\d+)/millstream", line).groups()
        dsn = f"host={host} port={port} user=boss password={secret} dbname=millstream"
        with psycopg.connect(dsn, autocommit=True) as client, client.cursor() as cursor:
            cursor.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (7)")
            cursor.execute("LISTEN a")
            with cursor.copy("SUBSCRIBE t") as copy:
                assert copy.read_row()[4] == "7"
                server.send_signal(signal.SIGTERM)  # in the middle of a stream
                with contextlib.suppress(psycopg.Error):
                    copy.read_row()
        assert server.wait(20) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
