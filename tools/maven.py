"""Maven, which checks and tests the engine's Java (``java/pom.xml``): finds it, or installs it.

Run by the Makefile with a Python that has PySpark: ``tools/maven.py test``, ``spotless:check``. The
Java is compiled and tested against PySpark's own jars. A jar that only names them, in its manifest,
is all that Maven has to know.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from urllib.parse import quote

from compile_java import ROOT, spark_jars
from debian import install

PROJECT = ROOT / "java"
SPARK_JAR = ROOT / ".cache" / "java" / "spark.jar"
HOW = (
    "the engine's Java is tested by Maven: "
    "apt-get install maven (Debian, Ubuntu), brew install maven (macOS)"
)


def find() -> str:
    """Find Maven, or install it, or say how."""
    found = shutil.which("mvn")
    if found is None and install("Maven", ("maven",)):
        found = shutil.which("mvn")
    return found or sys.exit(HOW)


def write_spark_jar() -> None:
    """Write a jar whose class path is PySpark's jars."""
    SPARK_JAR.parent.mkdir(parents=True, exist_ok=True)
    jars = (os.path.relpath(each, SPARK_JAR.parent) for each in sorted(spark_jars().glob("*.jar")))
    line = f"Class-Path: {' '.join(map(quote, jars))}"
    # A line of a manifest has 72 bytes; one that begins with a space continues the one before.
    parts = [line[:70], *(" " + line[i : i + 69] for i in range(70, len(line), 69))]
    manifest = "\r\n".join(["Manifest-Version: 1.0", *parts, "", ""])
    with zipfile.ZipFile(SPARK_JAR, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", manifest)


def main(goals: list[str]) -> None:
    """Run goals of the project."""
    write_spark_jar()
    said = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dstyle.color=never"]
    command = [find(), "--batch-mode", *said, f"-Dspark.jar={SPARK_JAR}", *goals]
    sys.exit(subprocess.run(command, cwd=PROJECT, check=False).returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
