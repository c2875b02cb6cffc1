"""The formats that commands read and write."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
