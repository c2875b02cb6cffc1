"""The formats that commands read and write."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class InputFormat(StrEnum):
    """What rows are read from."""

    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
