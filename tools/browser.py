"""Chromium, which shows the tests the console: finds it, or installs it where that can be done.

Run by the Makefile before the tests. Needs nothing but Python itself.
"""

from __future__ import annotations

import shutil
import sys

from debian import install

PACKAGES = ("chromium", "chromium-browser")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = (
    "Chromium is needed for the tests: apt-get install chromium (Debian), "
    "brew install --cask chromium (macOS)"
)


def found() -> str | None:
    """Where it is."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def main() -> None:
    """Find it, or install it, or say how."""
    if found() is None and not (install("Chromium, some hundred megabytes", PACKAGES) and found()):
        sys.exit(HOW)


if __name__ == "__main__":
    main()
