"""Spark's checkpoint of a view: where it is, read without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.spark.offset import Offset

if TYPE_CHECKING:
    from pathlib import Path


def offset_in(checkpoint: Path) -> Offset | None:
    """The place in the feed up to which the state counts; None when there is no state yet.

    Of a batch that was begun and not committed, Spark has the offset but not the state: the last
    batch that has both is the one.
    """
    done = _numbers(checkpoint / "commits")
    for number in sorted(done & _numbers(checkpoint / "offsets"), reverse=True):
        lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        if len(lines) >= 3:
            return Offset.of(lines[2])
    return None


def forget_beyond(checkpoint: Path, lsn: int) -> None:
    """Forget a batch that was begun, not committed, and reads what the log has not.

    A batch begins when its rows can be read, and is committed when they are on the disk; between
    the two a loss of power takes them, and their LSNs are given to others.
    """
    folder = checkpoint / "offsets"
    for number in _numbers(folder) - _numbers(checkpoint / "commits"):
        lines = (folder / str(number)).read_text().splitlines()
        if len(lines) < 3 or Offset.of(lines[2]).lsn > lsn:
            (folder / str(number)).unlink()
            (folder / f".{number}.crc").unlink(missing_ok=True)


def _numbers(folder: Path) -> set[int]:
    if not folder.is_dir():
        return set()
    return {int(each.name) for each in folder.iterdir() if each.name.isdigit()}
