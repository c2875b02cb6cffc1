"""Writing rows to a file, in any of the formats; what is written is read back as it was."""

from __future__ import annotations

import base64
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyarrow import csv as arrow_csv

from millstream.files.formats import check_csv
from millstream.formats.json_output import to_json
from millstream.model.arrow_values import readable_values
from millstream.model.types import type_from_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.files.formats import FileFormat, FileOptions

_AS_TEXT: Final = frozenset({"BINARY", "INTERVAL", "ARRAY", "STRUCT", "MAP"})
"""Types that Arrow's CSV does not write, or not in a form that is read back."""


class RowWriter(Protocol):
    """Writes batches of one schema to an open file."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""

    def close(self) -> None:
        """Write what ends the file; the file itself stays open."""


def open_writer(
    file: IO[bytes], schema: pa.Schema, form: FileFormat, options: FileOptions
) -> RowWriter:
    """A writer of one format.

    >>> import io
    >>> from millstream.files.formats import FileOptions
    >>> batch = pa.RecordBatch.from_pydict({"n": [1, None], "s": ["a", ""]})
    >>> file = io.BytesIO()
    >>> writer = open_writer(file, batch.schema, "csv", FileOptions())
    >>> writer.write_batch(batch)
    >>> writer.close()
    >>> file.getvalue().decode().splitlines()
    ['"n","s"', '1,"a"', ',""']
    """
    return _WRITERS[form](file, schema, options)


def _parquet(file: IO[bytes], schema: pa.Schema, _: FileOptions) -> RowWriter:
    from pyarrow import parquet  # noqa: PLC0415 - takes longer to import than all the rest

    writer: RowWriter = parquet.ParquetWriter(file, schema, compression="zstd")
    return writer


def _arrow(file: IO[bytes], schema: pa.Schema, _: FileOptions) -> RowWriter:
    writer: RowWriter = pa.ipc.new_file(pa.PythonFile(file, "w"), schema)
    return writer


class _Csv:
    """CSV as ``csv_rows`` reads it: NULL is an empty field or a given text, texts are in quotes."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, options: FileOptions) -> None:
        self._types = [type_from_arrow(each.type) for each in schema]
        fields = [
            pa.field(each.name, pa.string() if of.kind in _AS_TEXT else each.type)
            for each, of in zip(schema, self._types, strict=True)
        ]
        self._schema = pa.schema(fields)
        check_csv(options.delimiter, options.null, is_written=True)
        null = {"null_string": options.null} if options.null else {}
        write = arrow_csv.WriteOptions(
            include_header=options.header, delimiter=options.delimiter, **null
        )
        self._writer = arrow_csv.CSVWriter(file, self._schema, write_options=write)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        columns = [
            pa.array(map(_csv_text, readable_values(of, column)), pa.string())
            if of.kind in _AS_TEXT
            else column
            for of, column in zip(self._types, batch.columns, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        """Nothing ends a file of CSV."""
        self._writer.close()


def _csv_text(value: Any) -> str | None:  # noqa: ANN401 - of any column
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    text = to_json(value)
    return text[1:-1] if text.startswith('"') else text


class _Json:
    """One object a line, as ``json_rows`` reads it."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, _: FileOptions) -> None:
        self._file = file
        self._names = schema.names
        self._types = [type_from_arrow(each.type) for each in schema]

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        columns = [
            readable_values(of, column)
            for of, column in zip(self._types, batch.columns, strict=True)
        ]
        names = self._names
        lines = [to_json(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """Nothing ends a file of lines."""


_WRITERS: Final[dict[FileFormat, Callable[[IO[bytes], pa.Schema, FileOptions], RowWriter]]] = {
    "parquet": _parquet,
    "csv": _Csv,
    "json": _Json,
    "arrow": _arrow,
}
