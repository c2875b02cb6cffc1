"""Java's classes in an archive, which the next start maps into memory (class-data sharing).

Spark loads some fifteen thousand classes before the first view is ready. To find each in a jar, to
read and to verify it is more than half of the time of a start. The first Java lists what it loads.
When the database is closed, another process makes an archive of that list, in the background, and
later starts begin with it. The file's name is the hash of all that it depends on; Java checks that
it fits, too, and does without it if it does not.

The file is kept only where no other user can put one: it is code that we run. Where there is no
such folder, or the user has chosen an archive, there is none of ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.spark import internals
from millstream.spark.engine_jar import engine_jar
from millstream.spark.java_process import JAVA_OPTIONS, virtual_machine
from millstream.spark.kept_folder import kept_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.spark.java_home import Java

_KEPT: Final = 2
"""How many archives are kept, the newest: each has some 170 MB."""

_WRITING_SECONDS: Final = 1800.0
"""A list or a part of an archive that is older was left by a process that has been killed."""

_OF_THE_USER: Final = ("-Xshare", "SharedArchive", "ArchiveClassesAtExit", "ClassList", "AOT")

_LINKED_SINCE: Final = 24
"""The first Java whose archives can have classes that are linked already."""

_IN_BACKGROUND: Final = """
part=$1 archive=$2 list=$3
shift 3
(nice "$@" && mv "$part" "$archive"; rm -f "$part" "$list") </dev/null >/dev/null 2>&1 &
"""


class ClassArchive:
    """The archive for one Java and one Spark.

    Args:
        java: the Java that it is for.
        settings: Spark's, which Java is started with.

    Attributes:
        path: where it is, or will be; None: there is none of ours.
        is_there: whether this start uses it.
        option: the option for Java that uses it, or that lists the classes for it; may be empty.
    """

    def __init__(self, java: Java, settings: Mapping[str, str]) -> None:
        self.path: Path | None = None
        self.is_there = False
        self.option = ""
        self._java, self._settings = java, dict(settings)
        self._list: Path | None = None
        kept = kept_folder()
        if kept is None or any(each in settings[JAVA_OPTIONS] for each in _OF_THE_USER):
            return
        words = virtual_machine(java.path, self._settings)
        digest = hashlib.sha256(repr((java.build, words)).encode())
        for jar in (engine_jar(), *sorted(internals.spark_jars().glob("*.jar"))):
            status = jar.stat()
            digest.update(repr((str(jar), status.st_size, status.st_mtime_ns)).encode())
        self.path = kept / f"classes-{digest.hexdigest()[:20]}.jsa"
        self.is_there = self.path.exists()
        if self.is_there:
            self.option = f'"-XX:SharedArchiveFile={self.path}"'
        else:
            # In no database's directory: the database that closes last may be another.
            file, name = tempfile.mkstemp(prefix="millstream-", suffix=".list")
            os.close(file)
            self._list = Path(name)
            weakref.finalize(self, self._list.unlink, missing_ok=True)
            self.option = f'"-XX:DumpLoadedClassList={self._list}"'

    @property
    def is_wanted(self) -> bool:
        """Whether it is to be written: nobody has yet, and nobody does at the moment."""
        if self.path is None or self.is_there or self.path.exists():
            return False
        return all(map(_is_left_over, self.path.parent.glob(f"{self.path.stem}.*.list")))

    def write(self) -> None:
        """Write it, once Java has ended, in a process that goes on when this one ends.

        It takes ten seconds or so of one core. Should it fail, starts are slower, and nothing else.
        """
        path = self.path
        if path is None or self._list is None or not _size(self._list):
            return
        _make_room(path.parent)
        part = path.with_suffix(f".{os.getpid()}.part")
        listed = path.with_suffix(f".{os.getpid()}.list")
        shutil.copyfile(self._list, listed)
        words = virtual_machine(self._java.path, self._settings)
        words += ["-Xshare:dump", f"-XX:SharedClassListFile={listed}"]
        words.append(f"-XX:SharedArchiveFile={part}")
        if self._java.version >= _LINKED_SINCE:
            words.append("-XX:+AOTClassLinking")
        files = map(str, (part, path, listed))
        command = ["sh", "-c", _IN_BACKGROUND, "sh", *files, *words]
        subprocess.run(command, check=False, start_new_session=True)  # noqa: S603


def _make_room(folder: Path) -> None:
    """Remove all archives but the newest, for one more, and what killed writers have left."""
    there = sorted(folder.glob("classes-*.jsa"), key=lambda each: each.stat().st_mtime)
    halves = [*folder.glob("classes-*.part"), *folder.glob("classes-*.list")]
    for each in [*there[: 1 - _KEPT], *filter(_is_left_over, halves)]:
        with contextlib.suppress(OSError):
            each.unlink()


def _size(listed: Path) -> int:
    """How long a list is; 0 once it is removed, as at the exit of a program that closes nothing."""
    try:
        return listed.stat().st_size
    except FileNotFoundError:
        return 0


def _is_left_over(half: Path) -> bool:
    """Whether nobody works on a list, or on a part of an archive, any more."""
    try:
        return time.time() - half.stat().st_mtime > _WRITING_SECONDS
    except FileNotFoundError:  # just now, by its own writer
        return True
