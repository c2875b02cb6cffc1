"""psql, which the tests drive the server with: finds it, or installs it where that can be done.

Run by the Makefile before the tests. Needs nothing but Python itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGE = "postgresql-client"
HOW = (
    "psql is needed for the tests: apt-get install postgresql-client (Debian, Ubuntu), "
    "brew install libpq (macOS)"
)


def run(command: list[str]) -> bool:
    """Whether a command went well; what it says is left out."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return not subprocess.run(command, check=False, env=env, capture_output=True).returncode


def install() -> bool:
    """Whether Debian's own package could be installed."""
    if shutil.which("apt-get") is None:
        return False
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if root and shutil.which("sudo") is None:
        return False
    print(f"installing psql ({PACKAGE}) ...", flush=True)
    command = [*root, "apt-get", "install", "-y", "-q", "--no-install-recommends", PACKAGE]
    return run([*root, "apt-get", "update", "-q"]) and run(command)


def main() -> None:
    """Find it, or install it, or say how."""
    if shutil.which("psql") is None and not (install() and shutil.which("psql")):
        sys.exit(HOW)


if __name__ == "__main__":
    main()
