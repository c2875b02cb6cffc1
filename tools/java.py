"""Java 17 or newer, which Spark runs on: finds it, or installs it where that can be done.

Run by the Makefile before anything that starts Spark. Needs nothing but Python itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from debian import install

OLDEST = 17
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
HOW = (
    "Java 17 or newer is needed: apt-get install openjdk-17-jre-headless (Debian, Ubuntu), "
    "brew install openjdk@17 (macOS); or set JAVA_HOME"
)


def version() -> int:
    """The version of the Java that Spark would find; 0 when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        return 0
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', printed.stderr + printed.stdout)
    return int(found[1]) if found else 0


def main() -> None:
    """Find it, or install it, or say how."""
    if version() < OLDEST and not (
        install("Java (openjdk, headless)", PACKAGES) and version() >= OLDEST
    ):
        sys.exit(HOW)


if __name__ == "__main__":
    main()
