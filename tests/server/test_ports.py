"""A server that stops frees its ports last, when what it served is closed."""

import socket
import threading
from urllib.parse import urlsplit

import pytest

import millstream as ms
from millstream.server.run import Server
from millstream.server.settings import Settings


def test_the_ports_are_free_only_once_the_database_is_closed(tmp_path):
    database = ms.open(tmp_path / "db")
    settings = Settings(http=("127.0.0.1", 0), postgres=("127.0.0.1", 0))
    server = Server(database, settings)
    ports, taken = [], []

    def ready(it):
        ports.extend(urlsplit(each).port for each in (it.http, it.postgres))
        threading.Thread(target=it.stop).start()

    def last():
        for port in ports:
            with pytest.raises(OSError, match="in use"), _listen(port):
                pass
            taken.append(port)
        database.close()

    server.run(ready, last)
    assert len(ports) == 2
    assert taken == ports
    for port in ports:
        _listen(port).close()
    ms.open(tmp_path / "db").close()


def _listen(port):
    return socket.create_server(("127.0.0.1", port))
