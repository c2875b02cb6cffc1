"""Installs packages of Debian's for the other tools, where that can be done.

Needs nothing but Python itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess


def install(what: str, packages: tuple[str, ...]) -> bool:
    """Whether one of some packages, the first that there is, could be installed.

    Args:
        what: what they are, for people.
        packages: their names.
    """
    if shutil.which("apt-get") is None:
        return False
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if root and shutil.which("sudo") is None:
        return False
    print(f"installing {what} ...", flush=True)
    if not _run([*root, "apt-get", "update", "-q"]):
        return False
    command = [*root, "apt-get", "install", "-y", "-q", "--no-install-recommends"]
    return any(_run([*command, package]) for package in packages)


def _run(command: list[str]) -> bool:
    """Whether a command went well; what it says is left out."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return not subprocess.run(command, check=False, env=env, capture_output=True).returncode
