"""The formats of files: which one a file has, and the options of CSV."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from millstream.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

FileFormat = Literal["parquet", "csv", "json", "arrow"]
FORMATS: Final[tuple[FileFormat, ...]] = get_args(FileFormat)
ENDINGS: Final[Mapping[str, FileFormat]] = {
    "parquet": "parquet",
    "pq": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "arrow",
    "arrows": "arrow",
    "ipc": "arrow",
    "feather": "arrow",
}
_COMPRESSED: Final = ("gz", "zst", "bz2")
_TEXT: Final = ("csv", "json")
_IN_VALUES: Final = " .:+-"
_LIKE_A_VALUE: Final = re.compile(r"(?=.*[0-9])[-+0-9.:TZ eE]+|true|false|-?inf|nan", re.IGNORECASE)


def check_csv(delimiter: str, null: str = "", *, is_written: bool = False) -> None:
    """Raise unless CSV can have this between its fields, and this for NULL.

    >>> check_csv(";", "NULL")

    Raises:
        InvalidOptionError: fields could not be told apart, or not from NULL.
    """
    is_one = len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n\0'
    if not is_one:
        raise InvalidOptionError(
            f"delimiter is {delimiter!r}",
            hint="one character of ASCII, other than quotes and line ends: ',', ';', '|', a tab",
        )
    if is_written and (delimiter.isalnum() or delimiter in _IN_VALUES):
        raise InvalidOptionError(
            f"delimiter is {delimiter!r}, which numbers and times have in them",
            hint="another one, such as ',', ';', '|' or a tab",
        )
    if is_written and _LIKE_A_VALUE.fullmatch(null):
        raise InvalidOptionError(
            f"null is {null!r}, which a value could be", hint="another text, such as 'NULL'"
        )
    if any(each in null for each in ('"', "\n", "\r", delimiter)):
        raise InvalidOptionError(
            f"null is {null!r}", hint="a text without quotes, delimiters and line ends"
        )


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a file is read or written.

    Attributes:
        form: its format; None: by the ending of its name.
        header: of CSV: whether the first line names the columns.
        delimiter: of CSV: what stands between fields.
        null: of CSV: how NULL is written.
    """

    form: FileFormat | None = None
    header: bool = True
    delimiter: str = ","
    null: str = ""

    def __post_init__(self) -> None:
        """Refuse what no file of CSV can have."""
        check_csv(self.delimiter, self.null)

    def of(self, name: str) -> FileFormat:
        """The format of a file.

        >>> FileOptions().of("x.csv.gz"), FileOptions("json").of("x")
        ('csv', 'json')

        Raises:
            InvalidOptionError: no format is given, and the name has no known ending.
        """
        parts = name.rpartition("/")[2].lower().split(".")
        is_compressed = len(parts) > 1 and parts[-1] in _COMPRESSED
        if is_compressed:
            parts.pop()
        form = self.form or (ENDINGS.get(parts[-1]) if len(parts) > 1 else None)
        if form is None:
            raise InvalidOptionError(
                f"the format of {name!r} is not known by its ending",
                hint=f"write WITH (format = 'csv'); formats: {', '.join(FORMATS)}",
            )
        if is_compressed and form not in _TEXT:
            raise InvalidOptionError(
                f"{name!r}: {form} is compressed inside of the file, not around it",
                hint="give a file without .gz, .zst or .bz2 at its end",
            )
        return form
