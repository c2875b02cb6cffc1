"""The engine's Java as a jar: where it is, and whether it was made of the sources beside it.

The jar is a part of the package, made when that is built (``tools/compile_java.py``). In a checkout
the sources are there, too, and may have changed since.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable

JAR: Final = Path(__file__).parent / "millstream.jar"

_SOURCES: Final = Path(__file__).parents[3] / "java" / "src" / "main" / "java"
"""Of a checkout; an installed package has none."""

_HINT: Final = "in a checkout, compile it: .venv/bin/python tools/compile_java.py"


def engine_jar() -> Path:
    """Find the jar.

    Raises:
        PipelineError: there is none, or the sources of this checkout are others.
    """
    if not JAR.exists():
        raise PipelineError(f"the engine's jar {JAR} is missing", hint=_HINT)
    if _SOURCES.is_dir() and not is_made_of(JAR, sources_in(_SOURCES)):
        raise PipelineError(
            f"the engine's jar {JAR} is not that of the sources in {_SOURCES}", hint=_HINT
        )
    return JAR


def sources_in(folder: Path) -> list[Path]:
    """List the sources in a folder, in an order that depends on their names alone."""
    return sorted(folder.rglob("*.java"))


def is_made_of(jar: Path, sources: Iterable[Path]) -> bool:
    """Whether a jar was made of these sources, as they are now."""
    with zipfile.ZipFile(jar) as archive:
        return archive.comment == digest_of(sources)


def digest_of(sources: Iterable[Path]) -> bytes:
    """Hash the sources; the jar has it as its comment."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.name}\n{source.stat().st_size}\n".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest().encode()
