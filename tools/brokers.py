"""Redis, Mosquitto and NATS, for the tests of their connectors: found, or installed.

Run by the Makefile before the tests. Needs nothing but Python itself.
"""

from __future__ import annotations

import os
import shutil
import sys

from debian import install

SERVERS = {"redis-server": "redis-server", "mosquitto": "mosquitto", "nats-server": "nats-server"}
HOW = (
    "Redis, Mosquitto and NATS are needed for the tests: apt-get install redis-server mosquitto "
    "nats-server (Debian), brew install redis mosquitto nats-server (macOS)"
)
PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


def find(name: str) -> str | None:
    """Where the program of a server is; Debian has some where only root looks."""
    return shutil.which(name, path=PLACES)


def main() -> None:
    """Find them, or install them, or say how."""
    for program, package in SERVERS.items():
        if find(program) is None and not (install(package, (package,)) and find(program)):
            sys.exit(HOW)


if __name__ == "__main__":
    main()
