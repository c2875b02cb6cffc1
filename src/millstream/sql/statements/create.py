"""CREATE, ALTER and DROP: what changes what exists."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from millstream.sql.statements.columns import read_column, read_definition
from millstream.sql.statements.create_view import read_create_view
from millstream.sql.statements.cursor import did_you_mean
from millstream.sql.statements.options import read_options
from millstream.sql.statements.statement import (
    AddColumn,
    CreateSource,
    CreateTable,
    CreateView,
    Drop,
    SkipDamage,
)

if TYPE_CHECKING:
    from millstream.sql.statements.reader import Reader
    from millstream.sql.statements.statement import AlterKind, DropKind

_VIEW = "Write CREATE MATERIALIZED VIEW name AS SELECT ..."
_SINK = "Connectors are not there yet; subscribe, and write the changes out in your callback."
_NO_CREATE = {
    "MATERIALIZED": ("MATERIALIZED", _VIEW),
    "VIEW": ("VIEW", _VIEW),
    "CONTINUOUS": ("CONTINUOUS", "Write CREATE CONTINUOUS QUERY name AS SELECT ..."),
    "SINK": ("SINK", _SINK),
    "LOOKUP": ("LOOKUP TABLE", "Use CREATE TABLE."),
    "CHANGE": ("CHANGE STREAM", "Subscribe with a name: db.subscribe(query, name='...')."),
    "SUBSCRIPTION": ("SUBSCRIPTION", "Subscribe with a name: db.subscribe(query, name='...')."),
    "CHANNEL": ("CHANNEL", "A channel is there as soon as someone writes LISTEN."),
    "INDEX": ("INDEX", "Tables are found by their primary key; there are no other indexes."),
    "UNIQUE": ("UNIQUE INDEX", "Only the PRIMARY KEY of a table is unique."),
    "FUNCTION": ("FUNCTION", "Compute the value in your own code."),
    "SCHEMA": ("SCHEMA", "A database has one space of names; open another with ms.open(path)."),
    "DATABASE": ("DATABASE", "A database is a directory: ms.open(path)."),
    "TEMPORARY": ("TEMPORARY objects", "Open a temporary database: ms.open()."),
    "TEMP": ("TEMPORARY objects", "Open a temporary database: ms.open()."),
    "EXTERNAL": ("EXTERNAL TABLE", "Read the file yourself, and db.insert() what it holds."),
    "OR": ("OR REPLACE", "DROP it first, or write IF NOT EXISTS."),
}
_DROP_KINDS = ("SOURCE", "TABLE", "SUBSCRIPTION", "VIEW", "STREAM", "SINK")
_ALTERS = "There are ADD COLUMN, which is NULL in old rows, and SKIP DAMAGE."


def read_create(reader: Reader) -> CreateSource | CreateTable | CreateView:
    """Read what follows CREATE."""
    view = read_create_view(reader)
    if view is not None:
        return view
    at = reader.offset
    kind = reader.skip_any("SOURCE", "TABLE")
    if not kind:
        raise _no_create(reader)
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    name = reader.name(kind.lower())
    if reader.word == "AS":
        raise reader.unsupported(f"CREATE {kind} ... AS SELECT is not supported", hint=_VIEW)
    definition = read_definition(reader)
    options = read_options(reader) if reader.skip("WITH") else MappingProxyType({})
    if kind == "SOURCE":
        if definition.key_place is not None:
            raise reader.unsupported(
                "a source has no primary key",
                hint=f"Every push is a new row. Use CREATE TABLE {name} for rows that change.",
                at=definition.key_place,
            )
        return CreateSource(
            name=name,
            schema=definition.schema(reader, at),
            watermark=definition.watermark_spec(reader),
            options=options,
            if_not_exists=if_not_exists,
        )
    if definition.watermark is not None:
        raise reader.unsupported(
            "a table has no watermark",
            hint="Rows of a table change at any time. Use CREATE SOURCE for events.",
            at=definition.watermark[1],
        )
    if definition.key_place is None:
        raise reader.error(
            "a table needs a primary key",
            hint="Add PRIMARY KEY to a column, or PRIMARY KEY (a, b) to the end; "
            f"rows without an identity belong in CREATE SOURCE {name}.",
            at=at,
        )
    schema = definition.schema(reader, at)
    return CreateTable(name=name, schema=schema, options=options, if_not_exists=if_not_exists)


def _no_create(reader: Reader) -> Exception:
    known = _NO_CREATE.get(reader.word)
    if known:
        return reader.unsupported(f"CREATE {known[0]} is not supported yet", hint=known[1])
    choices = ["SOURCE", "TABLE", *_NO_CREATE]
    return reader.expected(
        "SOURCE or TABLE", hint=did_you_mean(reader.word, choices, "Write CREATE SOURCE s (a INT).")
    )


def read_alter(reader: Reader) -> AddColumn | SkipDamage:
    """Read what follows ALTER."""
    kind = reader.skip_any("SOURCE", "TABLE")
    if not kind:
        raise reader.expected("SOURCE or TABLE", hint=_ALTERS)
    name = reader.name(kind.lower())
    if reader.word in {"DROP", "RENAME", "ALTER", "MODIFY", "CHANGE", "SET", "RESET"}:
        raise reader.unsupported(
            f"ALTER {kind} ... {reader.word} is not supported yet", hint=_ALTERS
        )
    if reader.skip("SKIP"):
        reader.expect("DAMAGE", hint=_ALTERS)
        return SkipDamage(kind=cast("AlterKind", kind.lower()), name=name)
    reader.expect("ADD", hint=_ALTERS)
    reader.skip("COLUMN")
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    at = reader.offset
    column, key_place = read_column(reader)
    if key_place is not None:
        raise reader.unsupported(
            "the primary key cannot be changed", hint="Make a new table.", at=key_place
        )
    if not column.nullable:
        raise reader.unsupported(
            f"column {column.name} cannot be added as NOT NULL",
            hint="The rows there are have no value for it; leave NOT NULL out.",
            at=at,
        )
    return AddColumn(
        kind=cast("AlterKind", kind.lower()), name=name, added=column, if_not_exists=if_not_exists
    )


def read_drop(reader: Reader) -> Drop:
    """Read what follows DROP."""
    if reader.word == "MATERIALIZED" and reader.word_after == "VIEW":
        reader.skip("MATERIALIZED")
    kind = "STREAM" if reader.skip("CONTINUOUS", "QUERY") else reader.skip_any(*_DROP_KINDS)
    if not kind:
        hint = did_you_mean(reader.word, _DROP_KINDS, "Say what it is: DROP SOURCE s.")
        raise reader.expected("SOURCE, TABLE or SUBSCRIPTION", hint=hint)
    if_exists = reader.skip("IF", "EXISTS")
    name = reader.name(kind.lower())
    cascade = reader.skip_any("CASCADE", "RESTRICT") == "CASCADE"
    if reader.word == ",":
        raise reader.unsupported("DROP takes one name", hint="Write one DROP for each.")
    return Drop(
        kind=cast("DropKind", kind.lower()), name=name, if_exists=if_exists, cascade=cascade
    )
