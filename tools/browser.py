"""Chromium, which shows the tests the console: finds it, or installs it where that can be done.

Run by the Makefile before the tests. Needs nothing but Python itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGES = ("chromium", "chromium-browser")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = (
    "Chromium is needed for the tests: apt-get install chromium (Debian), "
    "brew install --cask chromium (macOS)"
)


def found() -> str | None:
    """Where it is."""
    return next(filter(None, map(shutil.which, NAMES)), None)


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
    print("installing Chromium, some hundred megabytes ...", flush=True)
    if not run([*root, "apt-get", "update", "-q"]):
        return False
    command = [*root, "apt-get", "install", "-y", "-q", "--no-install-recommends"]
    return any(run([*command, package]) for package in PACKAGES)


def main() -> None:
    """Find it, or install it, or say how."""
    if found() is None and not (install() and found()):
        sys.exit(HOW)


if __name__ == "__main__":
    main()
