from __future__ import annotations

import pytest

from millstream.errors import InvalidOptionError
from millstream.server.settings import Settings, parse_address


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.com"])
def test_other_machines_need_keys(host):
    for address in ({"http": (host, 1)}, {"postgres": (host, 1)}):
        with pytest.raises(InvalidOptionError, match="no keys"):
            Settings(**address)
        Settings(**address, auth=True)
        Settings(**address, insecure=True)


@pytest.mark.parametrize("text", ["", "8080", ":80", "a:", "a:b", "a:99999", "a:-1", "[::1]"])
def test_what_is_no_address(text):
    with pytest.raises(InvalidOptionError, match="HOST:PORT"):
        parse_address(text)
