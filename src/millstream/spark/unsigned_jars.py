"""Copies of Spark's signed jars without their signatures, which an archive of classes can have.

Java puts no class of a signed jar into an archive (see ``class_archive``): it would load it from
the jar at each start, check its digest and verify it. Spark compiles expressions with Janino, whose
jars are signed, and a first view needs four hundred of its classes.

The copies are kept where no other user can put a file, and come before the originals on the class
path. They say what they were made of, and are always the same bytes with the same time: Java
compares these with what its archive was made of.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from millstream.spark import internals
from millstream.spark.kept_folder import kept_folder

_SIGNED: Final = ("commons-compiler-*.jar", "janino-*.jar")
_SIGNATURE: Final = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)", re.IGNORECASE)
_MANIFEST: Final = "META-INF/MANIFEST.MF"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def unsigned_jars() -> list[Path]:
    """Find the copies, made when they are first needed; none where no folder is kept for them."""
    kept = kept_folder()
    if kept is None:
        return []
    jars = internals.spark_jars()
    try:
        return [_copy_of(jar, kept) for name in _SIGNED for jar in sorted(jars.glob(name))]
    except (OSError, zipfile.BadZipFile):  # the originals serve as well, more slowly
        return []


def _copy_of(jar: Path, folder: Path) -> Path:
    status = jar.stat()
    made_of = repr((str(jar), status.st_size, status.st_mtime_ns))
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    copy = folder / f"{jar.stem}-{digest}.jar"
    if not copy.exists():
        for each in folder.glob(f"{jar.stem}-*.jar"):  # of another Spark, which makes it again
            each.unlink(missing_ok=True)
        part = Path(tempfile.mkdtemp(prefix="jar-", dir=folder), copy.name)
        try:
            write_unsigned(jar, part)
            os.utime(part, ns=(status.st_mtime_ns, status.st_mtime_ns))
            part.replace(copy)
        finally:
            part.unlink(missing_ok=True)
            part.parent.rmdir()
    return copy


def write_unsigned(jar: Path, copy: Path) -> None:
    """Write a jar without its signature: the signature's files, and the digests of its classes."""
    with zipfile.ZipFile(jar) as signed, zipfile.ZipFile(copy, "w") as unsigned:
        for each in signed.infolist():
            if _SIGNATURE.fullmatch(each.filename) or each.is_dir():
                continue
            data = signed.read(each)
            if each.filename == _MANIFEST:
                data = re.split(rb"\r?\n\r?\n", data, maxsplit=1)[0] + b"\r\n\r\n"
            unsigned.writestr(zipfile.ZipInfo(each.filename, _EPOCH), data)
