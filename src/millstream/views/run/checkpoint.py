"""Spark's checkpoint of a view: the offset it stands at, read without Spark.

Takes a checkpoint's folder; gives the place in the feed up to which Spark's state counts.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Offset:
    """Everything up to an LSN was read.

    Attributes:
        lsn: that LSN.
        watermarks: of each of the feed's logs, as they stood there: what is late after it depends
            on them, and a replay must decide the same.
        late: how many rows came too late up to there.
    """

    lsn: int
    watermarks: tuple[int | None, ...]
    late: int = 0

    @property
    def json(self) -> str:
        """The text in the checkpoint.

        >>> Offset(7, (None, 5)).json
        '{"lsn": 7, "watermarks": [null, 5], "late": 0}'
        """
        return offset_text(self.lsn, self.watermarks, self.late)

    @classmethod
    def of(cls, text: str) -> Self:
        """The offset that a text stands for."""
        parts = json.loads(text)
        return cls(parts["lsn"], tuple(parts["watermarks"]), parts["late"])


def offset_text(lsn: int, watermarks: Sequence[int | None], late: int) -> str:
    """The text of an offset, as it is in the checkpoint; see ``Offset``."""
    if len(watermarks) == 1:  # made for every commit
        (only,) = watermarks
        marks = "null" if only is None else str(only)
    else:
        marks = ", ".join(["null" if each is None else str(each) for each in watermarks])
    return f'{{"lsn": {lsn}, "watermarks": [{marks}], "late": {late}}}'


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


def offset_within(checkpoint: Path, lsn: int) -> Offset | None:
    """The offset of a checkpoint, made ready for Spark to go on from.

    What is ahead of a log that ends with an LSN is removed, and the checkpoint may have been
    written while the database's directory had another path.
    """
    forget_beyond(checkpoint, lsn)
    _note_paths(checkpoint, checkpoint)
    place = offset_in(checkpoint)
    if place is not None and place.lsn > lsn:
        shutil.rmtree(checkpoint)
        return None
    return place


def forget_beyond(checkpoint: Path, lsn: int) -> None:
    """Forget a batch that was begun, not committed, and reads what the log has not.

    A batch begins when its rows can be read, and is committed when they are on disk; between
    the two a loss of power takes them, and their LSNs are given to others.
    """
    folder = checkpoint / "offsets"
    for number in _numbers(folder) - _numbers(checkpoint / "commits"):
        lines = (folder / str(number)).read_text().splitlines()
        if len(lines) < 3 or Offset.of(lines[2]).lsn > lsn:
            _unlink(folder, number)


def roll_back(checkpoint: Path, lsn: int) -> None:
    """Forget the batches that end after an LSN, and one that was begun and not committed.

    The state goes back to where the first of them began: Spark keeps those of some batches before
    the last one, and which of them a commit stands for is in the file of that commit.
    """
    while (place := offset_in(checkpoint)) is not None and place.lsn > lsn:
        done = _numbers(checkpoint / "commits")
        _unlink(checkpoint / "commits", max(done & _numbers(checkpoint / "offsets")))
    done = _numbers(checkpoint / "commits")
    for number in _numbers(checkpoint / "offsets") - done:
        _unlink(checkpoint / "offsets", number)


def _unlink(folder: Path, number: int) -> None:
    (folder / str(number)).unlink()
    (folder / f".{number}.crc").unlink(missing_ok=True)


def move(checkpoint: Path, target: Path) -> None:
    """Give a checkpoint another name in its folder; until then it can be used by neither."""
    _note_paths(checkpoint, target)
    checkpoint.rename(target)


def _note_paths(checkpoint: Path, target: Path) -> None:
    """Note where the schemas of state are once a checkpoint is at ``target``.

    Spark has written that down with the full path, in ``state/<operator>/_metadata/v2``, also if
    the database's directory has another path now.
    """
    for noted in checkpoint.glob("**/state/*/_metadata/v2/*"):
        if noted.name.isdigit():
            operator = noted.parents[2].relative_to(checkpoint)
            with suppress(ValueError, LookupError, TypeError):  # damaged: Spark will say how
                _note_path(noted, target.absolute() / operator)


def _note_path(noted: Path, operator: Path) -> None:
    version, _, text = noted.read_text().partition("\n")
    metadata = json.loads(text)
    for store in metadata["stateStoreInfo"]:
        paths = [_below(operator, each) for each in store["stateSchemaFilePaths"]]
        store["stateSchemaFilePaths"] = paths
    if metadata != json.loads(text):
        changed = noted.with_name(f".{noted.name}.changed")
        changed.write_text(f"{version}\n{json.dumps(metadata)}")
        noted.with_name(f".{noted.name}.crc").unlink(missing_ok=True)
        changed.replace(noted)


def _below(operator: Path, path: str) -> str:
    """The path of a schema's file, such as ``file:/tmp/db/...``, in the folder of its operator."""
    scheme = path[: path.index("/")]
    return f"{scheme}{operator}/_stateSchema/{path.rpartition('/_stateSchema/')[2]}"


def _numbers(folder: Path) -> set[int]:
    if not folder.is_dir():
        return set()
    return {int(each.name) for each in folder.iterdir() if each.name.isdigit()}
