"""PostgreSQL's server, which the tests of its connectors start: finds it, or installs it.

Run by the Makefile before the tests. Needs nothing but Python itself.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from debian import install

PACKAGES = ("postgresql",)
HOW = (
    "PostgreSQL's server is needed for the tests: apt-get install postgresql (Debian, Ubuntu), "
    "brew install postgresql (macOS)"
)


def binaries() -> Path | None:
    """The folder of ``initdb`` and ``postgres``; Debian keeps them out of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    plain = shutil.which("initdb")
    return Path(plain).resolve().parent if plain else None


def main() -> None:
    """Find it, or install it, or say how."""
    if binaries() is None and not (install("PostgreSQL's server", PACKAGES) and binaries()):
        sys.exit(HOW)


if __name__ == "__main__":
    main()
