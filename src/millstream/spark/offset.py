"""Offsets: places in a view's feed, as they stand in Spark's checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self


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
        marks = ", ".join("null" if each is None else str(each) for each in self.watermarks)
        return f'{{"lsn": {self.lsn}, "watermarks": [{marks}], "late": {self.late}}}'

    @classmethod
    def of(cls, text: str) -> Self:
        """The offset that a text stands for."""
        parts = json.loads(text)
        return cls(parts["lsn"], tuple(parts["watermarks"]), parts["late"])
