"""The bridge's Java, compiled on first use by Janino, which Spark brings along, into a cached jar.

Takes a running JVM; compiles against the very classes it has. The jar's name is the hash of the
sources and of the versions it was compiled with, so a cached one always fits. A jar is code that we
run: it is kept only where no other user can put one.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import stat
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import PipelineError
from millstream.spark import internals

if TYPE_CHECKING:
    from millstream.spark.bridge.server import BridgeServer

_SOURCES: Final = Path(__file__).parents[4] / "java" / "src" / "main" / "java"
SOURCE_FORMAT: Final = "millstream.bridge.LogSource"
SINK_FORMAT: Final = "millstream.bridge.ChangeSink"


def add_to(session: Any) -> None:  # noqa: ANN401 - a SparkSession
    """Make the bridge's classes known to a session, its executors included."""
    jvm = internals.jvm_of(session)
    versions = (session.version, jvm.System.getProperty("java.version"))
    jar = _jar(jvm, versions)
    internals.add_jar(session, jar)
    jvm.millstream.functions.Functions.register(internals.java_session(session))


def _jar(jvm: Any, versions: tuple[str, ...]) -> Path:  # noqa: ANN401
    sources = sorted(_SOURCES.rglob("*.java"))
    digest = hashlib.sha256(repr(versions).encode())
    for source in sources:
        digest.update(source.read_bytes())
    jar = cache_folder() / f"bridge-{digest.hexdigest()[:20]}.jar"
    if not jar.exists():
        with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
            classes = Path(folder)
            _compile(jvm, sources, classes)
            _pack(classes, jar)
    return jar


def share_secret(session: Any, server: BridgeServer) -> None:  # noqa: ANN401
    """Give the session's Java the secret of a server.

    Options of a query are shown in plans, so it is not among them. Nor does it pass the gateway,
    which a debug log would write down: it goes through a file that only this user can read, for a
    moment.
    """
    place = {"host": server.host, "port": str(server.port)}
    known = {"secret": server.secret.hex(), "certificate": server.certificate.hex()}
    with tempfile.NamedTemporaryFile("w", prefix="millstream-", suffix=".json") as file:
        json.dump(place | known, file)
        file.flush()
        internals.jvm_of(session).millstream.bridge.Address.learn(file.name)


def cache_folder() -> Path:
    """A folder for the jar that only this user can write to: kept, or for this process alone."""
    return kept_folder() or _folder_of_this_process()


def kept_folder() -> Path | None:
    """A folder that only this user can write to, and that is kept; None: there is none."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = Path(base) / "millstream"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_private(folder) else None
    except OSError:
        return None


def _is_private(folder: Path) -> bool:
    """Whether nobody else can put files there, or another folder in its place."""
    folder = folder.resolve()
    if not _is_safe(folder, sticky=False) or not os.access(folder, os.W_OK):
        return False
    return all(_is_safe(each, sticky=True) for each in folder.parents)


def _is_safe(folder: Path, *, sticky: bool) -> bool:
    """Whether it belongs to this user or to root, who alone can write there.

    Args:
        folder: the folder.
        sticky: others may, as in /tmp, if they cannot rename what is not theirs.
    """
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        return False
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not shared or (sticky and bool(status.st_mode & stat.S_ISVTX))


@cache
def _folder_of_this_process() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="millstream-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _compile(jvm: Any, sources: list[Path], classes: Path) -> None:  # noqa: ANN401
    def files(paths: list[Path]) -> Any:  # noqa: ANN401
        array = jvm.__getattr__("java").lang.reflect.Array.newInstance(
            jvm.java.lang.Class.forName("java.io.File"), len(paths)
        )
        for place, path in enumerate(paths):
            array[place] = jvm.java.io.File(str(path))
        return array

    jars = [Path(each) for each in jvm.System.getProperty("java.class.path").split(os.pathsep)]
    found: list[Path] = []
    for each in jars:
        found += sorted(each.parent.glob("*.jar")) if each.name == "*" else [each]
    try:
        compiler = jvm.org.codehaus.janino.Compiler()
        compiler.setClassPath(files(found))
        compiler.setDestinationDirectory(jvm.java.io.File(str(classes)), False)
        compiler.compile(files(sources))
    except Exception as error:
        raise PipelineError(
            f"the Java part could not be compiled: {error}",
            hint="Millstream needs Spark 4.3; is another one in the way?",
        ) from error


def _pack(classes: Path, jar: Path) -> None:
    """Written beside and renamed, so that nobody ever sees half a jar."""
    with (
        tempfile.NamedTemporaryFile(dir=jar.parent, suffix=".part", delete=False) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for each in sorted(classes.rglob("*.class")):
            archive.write(each, str(each.relative_to(classes)))
    Path(part.name).replace(jar)
