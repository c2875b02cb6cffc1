"""``millstream doctor``: what is wrong with this machine or a directory, and how to mend it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import statistics
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

import millstream
from millstream.errors import Error, JavaNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGES: Final = ("pyarrow", "duckdb", "sqlglot", "numpy")
_SERVER: Final = ("starlette", "uvicorn", "websockets", "httptools")
_SPARK: Final = "4.3."
_LEAST_FREE: Final = 1 << 30
_SLOW_SYNC: Final = 20.0
_COLORS: Final = {"ok": "green", "warning": "yellow", "wrong": "red"}

State = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing, and what to do about it."""

    name: str
    state: State
    found: str
    hint: str = ""


def doctor(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A database to open, too.")
    ] = None,
    port: Annotated[
        list[int] | None, typer.Option(help="A port that must be free; may be repeated.")
    ] = None,
) -> None:
    """Check Java, Spark, the packages, the disk, the ports, and whether a database can be opened.

    Exit code 1 when something is wrong; warnings are none.

    Examples:
        millstream doctor
        millstream doctor market.db --port 8080 --port 5432
    """
    from rich.text import Text  # noqa: PLC0415 - --help is quick

    from millstream.cli.output import console  # noqa: PLC0415 - loads Arrow

    out = console()
    wrong = 0
    for each in findings(directory, port or [8080]):
        wrong += each.state == "wrong"
        line = Text(f"{each.state:<8}", _COLORS[each.state])
        out.print(line.append(f"{each.name:<12}{each.found}", "default"), soft_wrap=True)
        if each.hint:
            out.print(Text(f"{'':20}hint: {each.hint}"), soft_wrap=True)
    out.print("all is well" if not wrong else f"{wrong} things are wrong")
    if wrong:
        raise typer.Exit(1)


def findings(directory: Path | None, ports: list[int]) -> Iterator[Finding]:
    """Look at everything, one after the other."""
    yield Finding(
        "millstream", "ok", f"{millstream.__version__}, Python {platform.python_version()}"
    )
    yield _packages()
    yield _server()
    yield _java()
    yield _spark()
    yield from _disk(directory)
    for port in ports:
        yield _port(port)
    if directory is not None:
        yield _opened(directory)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages() -> Finding:
    found = {each: _version(each) for each in _PACKAGES}
    missing = [name for name, it in found.items() if it is None]
    if missing:
        return Finding(
            "packages", "wrong", f"missing: {', '.join(missing)}", "pip install -U millstream"
        )
    return Finding("packages", "ok", ", ".join(f"{name} {it}" for name, it in found.items()))


def _server() -> Finding:
    missing = [each for each in _SERVER if _version(each) is None]
    if missing:
        hint = "pip install 'millstream[server]', for millstream serve"
        return Finding("server", "warning", f"missing: {', '.join(missing)}", hint)
    return Finding("server", "ok", ", ".join(f"{each} {_version(each)}" for each in _SERVER))


def _java() -> Finding:
    from millstream.spark.java_home import find_java  # noqa: PLC0415 - --help is quick

    try:
        java = find_java()
    except JavaNotFoundError as error:
        return Finding("java", "wrong", f"{error.message}; views do not run without", error.hint)
    return Finding("java", "ok", f"{java.version}: {java.path} ({java.reason})")


def _spark() -> Finding:
    found = _version("pyspark")
    if found is None or not f"{found}.".startswith(_SPARK):
        hint = f"pip install 'pyspark=={_SPARK}*'"
        return Finding("spark", "wrong", f"pyspark is {found or 'not installed'}", hint)
    return Finding("spark", "ok", f"pyspark {found}")


def _disk(directory: Path | None) -> Iterator[Finding]:
    place = Path.cwd() if directory is None else directory.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:,.1f} GB free at {place}"
    yield Finding(
        "disk", *(("ok", text) if free >= _LEAST_FREE else ("warning", text, "make room"))
    )
    try:
        milliseconds = _sync_milliseconds(place)
    except OSError as error:
        hint = "give a directory that you may write to, or change its rights"
        yield Finding("fsync", "wrong", f"cannot write to {place}: {error.strerror}", hint)
        return
    text = f"{milliseconds:.2f} ms for 4 KiB, the median of 20"
    hint = "rows with wal_mode 'sync' wait so long: use a local SSD"
    yield Finding(
        "fsync", *(("ok", text) if milliseconds < _SLOW_SYNC else ("warning", text, hint))
    )


def _sync_milliseconds(place: Path) -> float:
    taken = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(20):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


def _port(port: int) -> Finding:
    with socket.socket() as it:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            it.bind(("127.0.0.1", port))
        except OSError as error:
            hint = (
                f"end what has it, or choose another: millstream serve --http 127.0.0.1:{port + 1}"
            )
            return Finding("port", "warning", f"{port}: {error.strerror}", hint)
    return Finding("port", "ok", f"{port} is free")


def _opened(directory: Path) -> Finding:
    from millstream.engine.consistency import inconsistencies  # noqa: PLC0415 - loads Arrow

    if not directory.exists():
        return Finding("database", "ok", f"{directory} is not there yet; it will be created")
    try:
        with millstream.open(directory) as database:
            problems = inconsistencies(database.context.engine)
            if problems:
                hint = "DROP what cannot be used, and report how it came to this"
                return Finding("database", "wrong", "; ".join(problems), hint)
            return Finding("database", "ok", f"{directory} opens; LSN {database.lsn:,}")
    except Error as error:
        return Finding("database", "wrong", error.message, error.hint)
