"""psql, which the tests drive the server with: finds it, or installs it where that can be done.

Run by the Makefile before the tests. Needs nothing but Python itself.
"""

from __future__ import annotations

import shutil
import sys

from debian import install

PACKAGES = ("postgresql-client",)
HOW = (
    "psql is needed for the tests: apt-get install postgresql-client (Debian, Ubuntu), "
    "brew install libpq (macOS)"
)


def main() -> None:
    """Find it, or install it, or say how."""
    if shutil.which("psql") is None and not (install("psql", PACKAGES) and shutil.which("psql")):
        sys.exit(HOW)


if __name__ == "__main__":
    main()
