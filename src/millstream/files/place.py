"""Where a file is: a path of this machine, or the URL of an object store, and how to reach it."""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from millstream.errors import FileAccessError, InvalidOptionError
from millstream.masking import mask_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_UPLOAD_BYTES: Final = 8 << 20
_SCHEMES: Final = {
    "s3": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "abfs": "azure",
    "abfss": "azure",
}
_TAKEN: Final = {
    "s3": {
        "access_key": "access_key",
        "secret_key": "secret_key",
        "session_token": "session_token",
        "region": "region",
        "endpoint": "endpoint_override",
        "anonymous": "anonymous",
    },
    "gcs": {"endpoint": "endpoint_override", "anonymous": "anonymous"},
    "azure": {
        "account": "account_name",
        "access_key": "account_key",
        "sas_token": "sas_token",
        "endpoint": "blob_storage_authority",
    },
}
"""The options of each store, and what Arrow calls them."""


@dataclass(frozen=True, slots=True)
class Place:
    """A file or a directory.

    Attributes:
        system: the file system that it is on.
        path: its path there.
        is_local: whether that is this machine's.
    """

    system: fs.FileSystem
    path: str
    is_local: bool

    @property
    def name(self) -> str:
        """The last part of its path."""
        return posixpath.basename(self.path)

    def at(self, path: str) -> Place:
        """Another path of the same file system."""
        return replace(self, path=path)

    def child(self, name: str) -> Place:
        """What is so named in this directory."""
        return replace(self, path=posixpath.join(self.path, name))

    def size(self) -> int:
        """The size of the file, in bytes.

        Raises:
            FileAccessError: there is no such file.
        """
        try:
            found = self.system.get_file_info(self.path)
        except (OSError, pa.ArrowException) as error:
            raise access_error("read", self.path, error) from error
        if found.type is not fs.FileType.File:
            what = "is a directory" if found.type is fs.FileType.Directory else "does not exist"
            raise FileAccessError(f"{self.path} {what}", hint="give the path of a file")
        return int(found.size)

    def files(self, *, recursive: bool = False) -> Iterator[fs.FileInfo]:
        """The files in this directory; none when it does not exist.

        Raises:
            FileAccessError: it cannot be read.
        """
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        try:
            found = self.system.get_file_info(selector)
        except (OSError, pa.ArrowException) as error:
            raise access_error("read", self.path, error) from error
        return (each for each in found if each.type is fs.FileType.File)

    def read_bytes(self) -> bytes | None:
        """All of a small file; None when there is none."""
        try:
            with self.system.open_input_stream(self.path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise access_error("read", self.path, error) from error


def is_local(url: str) -> bool:
    """Whether a path or a URL is of this machine.

    >>> is_local("data/x.csv"), is_local("file:///x.csv"), is_local("s3://bucket/x.csv")
    (True, True, False)
    """
    scheme, separator, _ = url.partition("://")
    return not separator or scheme.lower() == "file"


def check_scheme(url: str) -> None:
    """Raise unless a path or a URL is of this machine or of a store that is known.

    Arrow knows other schemes, some of which are other names of this machine.

    Raises:
        InvalidOptionError: it is not.
    """
    scheme, separator, _ = url.partition("://")
    if "\0" in url:
        raise InvalidOptionError("the path has a NUL character", hint="give a path or a URL")
    if separator and scheme.lower() not in {"file", *_SCHEMES}:
        known = ", ".join(f"{each}://" for each in ("file", *_SCHEMES))
        raise InvalidOptionError(f"there is no store {scheme}://", hint=f"there are: {known}")


def open_place(url: str, access: Mapping[str, Any] | None = None) -> Place:
    """The place of a path or a URL: ``s3://``, ``gs://``, ``abfs://``, ``file://``.

    >>> open_place("data/x.csv").is_local
    True

    Args:
        url: the path or URL.
        access: how to reach an object store: ``access_key``, ``secret_key``, ``session_token``,
            ``region``, ``endpoint``, ``anonymous``, ``account``, ``sas_token``; None, and what is
            None: as its own tools find them, in the environment or of the machine.

    Raises:
        InvalidOptionError: an option that this store does not have.
        FileAccessError: no store of that kind, or it cannot be reached.
    """
    if not url:
        raise InvalidOptionError("the path is empty", hint="give a path or a URL")
    check_scheme(url)
    given = {name: value for name, value in (access or {}).items() if value is not None}
    scheme, separator, rest = url.partition("://")
    if is_local(url):
        _check_taken(given, {}, "a file of this machine")
        return Place(fs.LocalFileSystem(), str(Path(rest if separator else url).absolute()), True)
    kind = _SCHEMES[scheme.lower()]
    _check_taken(given, _TAKEN[kind], f"{scheme}://")
    try:
        if not given:
            system, path = fs.FileSystem.from_uri(url)
            return Place(system, path.rstrip("/"), False)
        taken = {_TAKEN[kind][name]: value for name, value in given.items()}
        return _made(kind, rest, taken)
    except (OSError, ValueError, pa.ArrowException, NotImplementedError) as error:
        problem = access_error("reach", f"{scheme}://...", error)
    problem.message = mask_url(problem.message)
    problem.args = (problem.message,)
    raise problem  # without context: Arrow's errors repeat the URL


def _check_taken(given: Mapping[str, Any], taken: Mapping[str, str], what: str) -> None:
    for name in given:
        if name not in taken:
            options = ", ".join(taken) or "none"
            raise InvalidOptionError(f"{what} has no option {name}", hint=f"its options: {options}")


def _made(kind: str, path: str, taken: dict[str, Any]) -> Place:
    """A file system with options of its own; Arrow's URLs would show them in every error."""
    if kind == "s3":
        endpoint = taken.get("endpoint_override", "")
        if endpoint.startswith("http://"):
            taken["scheme"] = "http"
        taken["endpoint_override"] = endpoint.partition("://")[2] or endpoint or None
        return Place(fs.S3FileSystem(**taken), path.rstrip("/"), False)
    if kind == "gcs":
        endpoint = taken.get("endpoint_override", "")
        if endpoint.startswith("http://"):
            taken["scheme"] = "http"
        taken["endpoint_override"] = endpoint.partition("://")[2] or endpoint or None
        return Place(fs.GcsFileSystem(**taken), path.rstrip("/"), False)
    container, _, rest = path.partition("/")
    name, _, host = container.partition("@")
    taken.setdefault("account_name", host.partition(".")[0])
    return Place(fs.AzureFileSystem(**taken), f"{name}/{rest}".rstrip("/"), False)


def access_error(verb: str, path: str, error: Exception) -> FileAccessError:
    """The error of a file that cannot be used."""
    why = getattr(error, "strerror", None) or str(error).partition(" Detail:")[0]
    hint = "see the path, the rights, and the options of the store"
    if isinstance(error, FileNotFoundError):
        why, hint = "it does not exist", "give the path of a file"
    return FileAccessError(f"cannot {verb} {path}: {why[:300]}", hint=hint)


class NewFile:
    """A file that is written aside, and appears under its name when it is finished: whole, or not.

    On this machine it is beside its place under a name that begins with a point, and is renamed
    when it is on the disk. For an object store it is in a temporary directory, and sent when it is
    finished: an object appears when all of it is there.

    Args:
        directory: where it will be.
    """

    def __init__(self, directory: Place) -> None:
        self._directory = directory
        folder = Path(directory.path) if directory.is_local else Path(tempfile.gettempdir())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._path = folder / f".{uuid4().hex}.tmp"
            self.file: IO[bytes] = self._path.open("xb")
        except OSError as error:
            raise access_error("write in", str(folder), error) from error

    @property
    def size(self) -> int:
        """How many bytes it has so far."""
        return self.file.tell() if not self.file.closed else self._path.stat().st_size

    def finish(self, name: str) -> None:
        """Let it appear under a name in its directory, in place of what was there.

        Raises:
            FileAccessError: it cannot be written; nothing appears.
        """
        place = self._directory.child(name)
        try:
            if self._directory.is_local:
                self.file.flush()
                os.fsync(self.file.fileno())
                self.file.close()
                self._path.replace(place.path)
                _sync_directory(Path(self._directory.path))
            else:
                self.file.close()
                self._send(place)
        except (OSError, pa.ArrowException) as error:
            raise access_error("write", place.path, error) from error
        finally:
            self.discard()

    def _send(self, place: Place) -> None:
        out = place.system.open_output_stream(place.path)
        try:
            with self._path.open("rb") as file:
                shutil.copyfileobj(file, out, _UPLOAD_BYTES)
            out.close()
        except BaseException:
            _forget(out, place)
            raise

    def discard(self) -> None:
        """Forget it, unless it was finished."""
        self.file.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _forget(out: Any, place: Place) -> None:  # noqa: ANN401 - a stream of Arrow
    """Remove what was sent in part: Arrow completes an object when its stream is closed."""
    try:
        out.close()
        place.system.delete_file(place.path)
    except (OSError, pa.ArrowException):
        pass  # it was never completed


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
