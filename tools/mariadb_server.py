"""MariaDB's server, which the tests of mysql-cdc start: finds it, or installs it.

Run by the Makefile before the tests. Needs nothing but Python itself.
"""

from __future__ import annotations

import os
import shutil
import sys

from debian import install

PACKAGES = ("mariadb-server",)
HOW = (
    "MariaDB's server is needed for the tests: apt-get install mariadb-server (Debian, Ubuntu), "
    "brew install mariadb (macOS)"
)


def found() -> bool:
    """Whether it is there; Debian keeps it in /usr/sbin."""
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None


def main() -> None:
    """Find it, or install it, or say how."""
    if not found() and not (install("MariaDB's server", PACKAGES) and found()):
        sys.exit(HOW)


if __name__ == "__main__":
    main()
