"""INSERT, UPDATE and DELETE: what changes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.statements.statement import Conflict, Delete, Insert, Update

if TYPE_CHECKING:
    from sqlglot import exp

    from millstream.sql.statements.reader import StatementReader

_Row = tuple["exp.Expression", ...]

_FROM_QUERY = "Run the SELECT with db.query(), and give its rows to db.insert()."


def read_insert(reader: StatementReader) -> Insert:
    """Read what follows INSERT."""
    conflict = _read_or(reader)
    if reader.word == "OVERWRITE":
        raise reader.unsupported(
            "INSERT OVERWRITE is not supported", hint="DELETE the rows first, then INSERT."
        )
    reader.expect("INTO", hint="Write INSERT INTO t VALUES (...).")
    reader.skip("TABLE")
    target = reader.name("source or table")
    columns = _read_names(reader) if reader.word == "(" else None
    if reader.word in {"SELECT", "WITH", "FROM", "TABLE"}:
        raise reader.unsupported("INSERT from a query is not supported yet", hint=_FROM_QUERY)
    if reader.word == "DEFAULT":
        raise reader.unsupported(
            "DEFAULT VALUES is not supported", hint="Columns have no defaults; write VALUES (...)."
        )
    reader.expect("VALUES", hint="Write INSERT INTO t (a, b) VALUES (1, 2).")
    values = _read_rows(reader, len(columns) if columns else None)
    if reader.skip("ON"):
        conflict = _read_on_conflict(reader, conflict)
    return Insert(target=target, columns=columns, values=values, conflict=conflict)


def read_update(reader: StatementReader) -> Update:
    """Read what follows UPDATE."""
    target = reader.name("table")
    reader.expect("SET", hint="Write UPDATE t SET column = value WHERE ...")
    assignments: dict[str, tuple[str, exp.Expression]] = {}

    def read_assignment() -> None:
        at = reader.offset
        column = reader.identifier("column")
        if column.lower() in assignments:
            raise reader.error(f"{column} is set twice", hint="Set it once.", at=at)
        reader.expect("=", hint=f"Write {column} = value.")
        _refuse_default(reader)
        assignments[column.lower()] = (column, reader.stored(f"the value of {column}"))

    reader.listed(read_assignment)
    return Update(target=target, assignments=tuple(assignments.values()), where=_read_where(reader))


def read_delete(reader: StatementReader) -> Delete:
    """Read what follows DELETE."""
    reader.expect("FROM", hint="Write DELETE FROM t WHERE ...")
    return Delete(target=reader.name("table"), where=_read_where(reader))


def _read_where(reader: StatementReader) -> exp.Expression | None:
    return reader.condition() if reader.skip("WHERE") else None


def _read_or(reader: StatementReader) -> Conflict:
    if not reader.skip("OR"):
        return "error"
    word = reader.skip_any("REPLACE", "IGNORE")
    if not word:
        raise reader.expected(
            "REPLACE or IGNORE", hint="Without either, a key that is there already is an error."
        )
    return "replace" if word == "REPLACE" else "ignore"


def _read_on_conflict(reader: StatementReader, conflict: Conflict) -> Conflict:
    at = reader.offset
    if reader.word == "DUPLICATE":
        raise reader.unsupported(
            "ON DUPLICATE KEY is not supported", hint="Write INSERT OR REPLACE INTO ..."
        )
    reader.expect("CONFLICT", hint="Write ON CONFLICT DO NOTHING.")
    if reader.word == "(":
        _read_names(reader)
    reader.expect("DO", hint="Write ON CONFLICT DO NOTHING.")
    if reader.word == "UPDATE":
        raise reader.unsupported(
            "ON CONFLICT DO UPDATE is not supported yet", hint="Write INSERT OR REPLACE INTO ..."
        )
    reader.expect("NOTHING", hint="Write ON CONFLICT DO NOTHING.")
    if conflict != "error":
        raise reader.error(
            "OR and ON CONFLICT say the same thing twice", hint="Leave one of them out.", at=at
        )
    return "ignore"


def _read_names(reader: StatementReader) -> tuple[str, ...]:
    names: dict[str, str] = {}

    def read_name() -> None:
        at = reader.offset
        name = reader.identifier("column")
        if name.lower() in names:
            raise reader.error(f"{name} is named twice", hint="Name it once.", at=at)
        names[name.lower()] = name

    reader.wrapped(read_name)
    return tuple(names.values())


def _read_rows(reader: StatementReader, width: int | None) -> tuple[_Row, ...]:
    rows: list[_Row] = []

    def read_row() -> None:
        at = reader.offset
        row = tuple(reader.wrapped(lambda: _read_value(reader)))
        expected = width if width is not None else len(rows[0]) if rows else len(row)
        if len(row) != expected:
            against = "the first row" if width is None else "the list of columns"
            raise reader.error(
                f"row {len(rows)} is {len(row)} long, and {against} is {expected} long",
                hint="Give each row one value for each column; NULL where there is none.",
                at=at,
            )
        rows.append(row)

    reader.listed(read_row)
    return tuple(rows)


def _read_value(reader: StatementReader) -> exp.Expression:
    _refuse_default(reader)
    return reader.stored("a value")


def _refuse_default(reader: StatementReader) -> None:
    if reader.word == "DEFAULT":
        raise reader.unsupported(
            "DEFAULT is not supported", hint="Columns have no defaults; write a value or NULL."
        )
