"""Java's classes in an archive, which the next start maps into memory (class-data sharing).

Spark loads some fifteen thousand classes before the first view is ready. To find each in a jar, to
read and to verify it is more than half of the time of a start. The first Java notes what it loads,
writes it down when the database is closed, and later ones begin with that. The file's name is the
hash of all that it depends on; Java checks that it fits, too, and does without it if it does not.

The file is kept beside the compiled jar, and for the same reason only where no other user can put
one: it is code that we run. Where there is no such folder, or the user has chosen an archive, there
is none of ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from typing import TYPE_CHECKING, Any, Final

from millstream.spark import internals
from millstream.spark.bridge.compiler import kept_folder

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.spark.java_home import Java

_logger = logging.getLogger("millstream.spark")

_KEPT: Final = 2
"""How many archives are kept, the newest: each has some 120 MB."""

_OF_THE_USER: Final = (
    "-Xshare",
    "SharedArchive",
    "ArchiveClassesAtExit",
    "RecordDynamicDumpInfo",
    "AOT",
)


class ClassArchive:
    """The archive for one Java and one Spark.

    Args:
        java: the Java that it is for.
        options: those that Java is started with.

    Attributes:
        path: where it is, or will be; None: there is none of ours.
        is_there: whether this start uses it.
        option: the option for Java that uses it, or that lets it be written; may be empty.
    """

    def __init__(self, java: Java, options: str) -> None:
        self.path: Path | None = None
        self.is_there = False
        self.option = ""
        folder = kept_folder()
        if folder is None or any(each in options for each in _OF_THE_USER):
            return
        digest = hashlib.sha256(repr((str(java.path), java.build, options)).encode())
        for jar in sorted(internals.spark_jars().glob("*.jar")):
            status = jar.stat()
            digest.update(repr((str(jar), status.st_size, status.st_mtime_ns)).encode())
        self.path = folder / f"classes-{digest.hexdigest()[:20]}.jsa"
        self.is_there = self.path.exists()
        if self.is_there:
            self.option = f'"-XX:SharedArchiveFile={self.path}"'
        else:
            self.option = "-XX:+RecordDynamicDumpInfo"

    @property
    def is_wanted(self) -> bool:
        """Whether it is to be written: nobody has yet."""
        return self.path is not None and not self.is_there and not self.path.exists()

    def write(self, jvm: Any) -> None:  # noqa: ANN401 - of a Java that was started with the option
        """Write it; takes some seconds. Should it fail, starts are slower, and nothing else."""
        path = self.path
        if path is None:
            return
        try:
            said = jvm.millstream.bridge.ClassArchive.write(str(path))
        except Exception as error:  # noqa: BLE001 - of a Java without it, or one that has ended
            said = str(error)
        if not path.exists():
            _logger.info("Java's classes were not archived: %s", said)
            return
        there = sorted(path.parent.glob("classes-*.jsa"), key=lambda each: each.stat().st_mtime)
        for each in there[:-_KEPT]:
            with contextlib.suppress(OSError):
                each.unlink()
