"""Compiles the engine's Java, against PySpark's own jars, into the jar that the package carries.

Run by the build of the package (``hatch_build.py``), and by ``make``, with a Python that has
PySpark. The same sources and the same compiler give the same jar, byte for byte.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from java import HOW, find

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "java" / "src" / "main" / "java"
sys.path.insert(0, str(ROOT / "src"))

from millstream.spark.engine_jar import JAR, digest_of, is_made_of, sources_in  # noqa: E402

OPTIONS = (
    # The first compiler of Java (C1) alone: javac ends before the second one would pay.
    *("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"),
    *("--release", "17", "-proc:none", "-encoding", "UTF-8", "-g"),
    # Warnings are errors in java/pom.xml; a newer javac has more of them, and must build it, too.
    "-Xlint:none",
)


def is_done() -> bool:
    """Whether the jar that is there was made of the sources."""
    return JAR.exists() and is_made_of(JAR, sources_in(SOURCES))


def compile_java() -> None:
    """Make the jar, if need be."""
    if is_done():
        return
    sources = sources_in(SOURCES)
    digest = digest_of(sources)
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        listed, classes = Path(folder, "sources"), Path(folder, "classes")
        listed.write_text("".join(f'"{source}"\n' for source in sources))
        places = ["-cp", f"{spark_jars()}/*", "-d", str(classes)]
        command = [compiler(), *OPTIONS, *places, f"@{listed}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"the engine's Java was not compiled:\n{done.stdout}{done.stderr}")
        _pack(classes, digest)


def compiler() -> str:
    """Find javac, or say how to get it."""
    return find("javac") or sys.exit(HOW)


def spark_jars() -> Path:
    """Find the folder of PySpark's jars, or say how to get it."""
    package = importlib.util.find_spec("pyspark")
    if package is None or not package.submodule_search_locations:
        sys.exit("Millstream is built with PySpark: pip install 'pyspark==4.3.*'")
    return Path(package.submodule_search_locations[0], "jars")


def _pack(classes: Path, digest: bytes) -> None:
    """Written beside and renamed, so that nobody ever sees half a jar.

    Not compressed: a wheel is, and Java reads it faster.
    """
    with (
        tempfile.NamedTemporaryFile(dir=JAR.parent, suffix=".part", delete=False) as part,
        zipfile.ZipFile(part, "w") as archive,
    ):
        for each in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(each.relative_to(classes).as_posix())  # of 1980-01-01
            archive.writestr(entry, each.read_bytes())
        archive.comment = digest
    os.chmod(part.name, 0o644)
    os.replace(part.name, JAR)


if __name__ == "__main__":
    compile_java()
