"""A JDK 17 or newer, which compiles the engine's Java and runs Kafka: finds it, or installs it.

Run by the Makefile before Millstream is installed in a checkout. Needs nothing but Python itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from debian import install

OLDEST = 17
PACKAGES = ("openjdk-17-jdk-headless", "openjdk-21-jdk-headless", "default-jdk-headless")
HOW = (
    "Millstream is built with a JDK 17 or newer: apt-get install openjdk-17-jdk-headless "
    "(Debian, Ubuntu), brew install openjdk@17 (macOS); or set JAVA_HOME"
)


def is_there() -> bool:
    """Whether JAVA_HOME, or PATH, names a JDK that is new enough."""
    return min(map(_version, ("javac", "java"))) >= OLDEST


def find(program: str) -> str | None:
    """Where a program of Java's is: that of JAVA_HOME, or else of PATH."""
    home = os.environ.get("JAVA_HOME")
    of_home = shutil.which(program, path=os.path.join(home, "bin")) if home else None
    return of_home or shutil.which(program)


def _version(program: str) -> int:
    """The version of one of its programs; 0 when there is none."""
    found = find(program)
    if found is None:
        return 0
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'(?:javac |version ")(\d+)', said.stdout + said.stderr)
    return int(version[1]) if version else 0


def main() -> None:
    """Find it, or install it, or say how."""
    if not is_there() and not (install("a JDK (openjdk, headless)", PACKAGES) and is_there()):
        sys.exit(HOW)


if __name__ == "__main__":
    main()
