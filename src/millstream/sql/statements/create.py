"""CREATE, ALTER and DROP of sources, tables and views, their WITH options, and EXPLAIN."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from millstream.sql.statements.columns import (
    ColumnDefinitions,
    read_column,
    read_definition,
    read_watermark,
)
from millstream.sql.statements.cursor import did_you_mean
from millstream.sql.statements.query import (
    QUERY_WORDS,
    read_body,
    read_emit,
    read_live,
    read_query,
)
from millstream.sql.statements.statement import (
    AddColumn,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Drop,
    Explain,
    Option,
    Pause,
    SkipDamage,
    WatermarkSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.sql.statements.reader import StatementReader
    from millstream.sql.statements.statement import (
        AlterKind,
        DropKind,
        OptionValue,
        PauseKind,
        ViewKind,
    )


_VIEW = "Write CREATE MATERIALIZED VIEW name AS SELECT ..."
_NO_CREATE = {
    "MATERIALIZED": ("MATERIALIZED", _VIEW),
    "VIEW": ("VIEW", _VIEW),
    "CONTINUOUS": ("CONTINUOUS", "Write CREATE CONTINUOUS QUERY name AS SELECT ..."),
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
_ALTERS = "There are ADD COLUMN, which is NULL in old rows, PAUSE, RESUME and SKIP DAMAGE."


def read_create(
    reader: StatementReader,
) -> CreateSource | CreateTable | CreateView | CreateSink:
    """Read what follows CREATE."""
    view = read_create_view(reader)
    if view is not None:
        return view
    if reader.skip("SINK"):
        return _read_sink(reader)
    at = reader.offset
    kind = _stored_kind(reader)
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    name = reader.name(kind.lower())
    if reader.word == "AS":
        raise reader.unsupported(f"CREATE {kind} ... AS SELECT is not supported", hint=_VIEW)
    definition = ColumnDefinitions() if reader.word == "WITH" else read_definition(reader)
    options = read_options(reader) if reader.skip("WITH") else MappingProxyType({})
    if not definition.columns:
        made = _without_columns(reader, kind, name, options, if_not_exists=if_not_exists, at=at)
        return made if definition.watermark is None else _timed(reader, made, definition.watermark)
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
        raise _no_watermark(reader, definition.watermark[1])
    if definition.key_place is None:
        raise reader.error(
            "a table needs a primary key",
            hint="Add PRIMARY KEY to a column, or PRIMARY KEY (a, b) to the end; "
            f"rows without an identity belong in CREATE SOURCE {name}.",
            at=at,
        )
    schema = definition.schema(reader, at)
    return CreateTable(name=name, schema=schema, options=options, if_not_exists=if_not_exists)


def _stored_kind(reader: StatementReader) -> str:
    """Read SOURCE, TABLE or LOOKUP TABLE, which is LaminarDB's name for a TABLE."""
    if reader.word == "LOOKUP" and reader.word_after == "TABLE":
        reader.skip("LOOKUP")
    kind = reader.skip_any("SOURCE", "TABLE")
    if not kind:
        raise _no_create(reader)
    return kind


def _timed(
    reader: StatementReader, made: CreateSource | CreateTable, mark: tuple[str, int, timedelta]
) -> CreateSource:
    """A source whose event time is a column that its connector finds."""
    column, at, delay = mark
    if isinstance(made, CreateTable):
        raise _no_watermark(reader, at)
    return replace(made, watermark=WatermarkSpec(column, delay, *reader.place_of(at)))


def _no_watermark(reader: StatementReader, at: int) -> Exception:
    return reader.unsupported(
        "a table has no watermark",
        hint="Rows of a table change at any time. Use CREATE SOURCE for events.",
        at=at,
    )


def _without_columns(
    reader: StatementReader,
    kind: str,
    name: str,
    options: Mapping[str, Option],
    *,
    if_not_exists: bool,
    at: int,
) -> CreateSource | CreateTable:
    """A source or table whose columns its connector finds."""
    if "connector" not in options:
        raise reader.error(
            f"the {kind.lower()} has no columns", hint=f"Write CREATE {kind} {name} (a INT).", at=at
        )
    made = CreateSource if kind == "SOURCE" else CreateTable
    return made(name=name, schema=None, options=options, if_not_exists=if_not_exists)


def _read_sink(reader: StatementReader) -> CreateSink:
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    name = reader.name("sink")
    relation, query = None, None
    if reader.skip("FROM"):
        relation = reader.name("view")
    else:
        reader.expect("AS", hint=_SINK_SHAPE)
        query = read_body(reader)
    reader.expect("WITH", hint=_SINK_SHAPE)
    options = read_options(reader)
    return CreateSink(
        name=name, relation=relation, query=query, options=options, if_not_exists=if_not_exists
    )


def _no_create(reader: StatementReader) -> Exception:
    known = _NO_CREATE.get(reader.word)
    if known:
        return reader.unsupported(f"CREATE {known[0]} is not supported yet", hint=known[1])
    choices = ["SOURCE", "TABLE", "SINK", *_NO_CREATE]
    return reader.expected(
        "SOURCE or TABLE", hint=did_you_mean(reader.word, choices, "Write CREATE SOURCE s (a INT).")
    )


def read_alter(reader: StatementReader) -> AddColumn | SkipDamage | Pause:
    """Read what follows ALTER."""
    kind = reader.skip_any("SOURCE", "TABLE", "SINK")
    if not kind:
        raise reader.expected("SOURCE, TABLE or SINK", hint=_ALTERS)
    name = reader.name(kind.lower())
    asked = reader.skip_any("PAUSE", "RESUME")
    if asked:
        return Pause(kind=cast("PauseKind", kind.lower()), name=name, paused=asked == "PAUSE")
    if kind == "SINK":
        raise reader.expected("PAUSE or RESUME", hint="Write ALTER SINK s PAUSE.")
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


def read_drop(reader: StatementReader) -> Drop:
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


# ---- options, in WITH


def read_options(reader: StatementReader) -> Mapping[str, Option]:
    """Read what follows WITH. No error repeats what may be a part of a password."""
    options: dict[str, Option] = {}

    def read_option() -> None:
        at = reader.offset
        key = reader.option_key()
        if key in options:
            raise reader.error(f"the option {key} is given twice", hint="Give it once.", at=at)
        reader.expect("=", hint="Write name = value.")
        place = reader.place
        options[key] = Option(_read_value(reader, key), *place, reader.place_of(at))

    with reader.hiding_tokens():
        reader.wrapped(read_option)
    return MappingProxyType(options)


def _read_value(reader: StatementReader, key: str) -> OptionValue:
    if reader.skip("TRUE"):
        return True
    if reader.skip("FALSE"):
        return False
    value = reader.constant()
    if value is not None:
        return value
    hint = f"Write {key} = '...'." if reader.word.isidentifier() else "Write a number or a '...'."
    raise reader.expected(f"the value of {key}", hint=hint)


# ---- CREATE MATERIALIZED VIEW, CREATE STREAM, EXPLAIN


_SINK_SHAPE = "Write CREATE SINK name FROM view WITH (connector = '...', ...)."
_SHAPE = "Write CREATE MATERIALIZED VIEW name AS SELECT ... FROM ..."


def read_create_view(reader: StatementReader) -> CreateView | None:
    """Read what follows CREATE if it makes a view or a stream; None, with nothing read, if not."""
    kind, or_replace = _read_kind(reader)
    if kind is None:
        return None
    at = reader.offset
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    if if_not_exists and or_replace:
        raise reader.error(
            "OR REPLACE and IF NOT EXISTS say different things", hint="Leave one out.", at=at
        )
    name = reader.name(kind)
    before = _read_tail(reader, {"WITH"})
    reader.expect("AS", hint=_SHAPE)
    body = read_body(reader)
    if reader.word == "AS":
        hint = "Leave it out; SELECT * FROM the view AS OF ... reads what it was."
        raise reader.unsupported("a view follows what it reads, and has no AS OF", hint=hint)
    after = _read_tail(reader, set(_TAILS) - {"WITH"} if before else set(_TAILS))
    return CreateView(
        name=name,
        kind=kind,
        query=body,
        if_not_exists=if_not_exists,
        or_replace=or_replace,
        **before,
        **after,
    )


def read_explain(reader: StatementReader) -> Explain:
    """Read what follows EXPLAIN."""
    if reader.word in {"ANALYZE", "EXTENDED", "FORMATTED", "VERBOSE", "CODEGEN", "COST"}:
        hint = "Write EXPLAIN SELECT ..."
        raise reader.unsupported(f"EXPLAIN {reader.word} is not supported yet", hint=hint)
    begin = reader.offset
    if reader.skip("LIVE"):
        return Explain(statement=reader.located(read_live(reader), begin))
    if reader.word in QUERY_WORDS:
        return Explain(statement=reader.located(read_query(reader), begin))
    reader.refuse_parameters()
    view = read_create_view(reader) if reader.skip("CREATE") else None
    if view is None:
        hint = "Only a SELECT, or the CREATE of a view, can be explained."
        raise reader.expected("SELECT", hint=hint)
    return Explain(statement=reader.located(view, begin))


def _read_kind(reader: StatementReader) -> tuple[ViewKind | None, bool]:
    words = [token.text.upper() for token in reader.tokens_left[:4]]
    or_replace = words[:2] == ["OR", "REPLACE"]
    if or_replace:
        del words[:2]
    for kind, start in _KINDS:
        if words[: len(start)] == list(start):
            reader.pass_over(len(start) + 2 * or_replace)
            return kind, or_replace
    return None, False


_KINDS: tuple[tuple[ViewKind, tuple[str, ...]], ...] = (
    ("view", ("MATERIALIZED", "VIEW")),
    ("stream", ("STREAM",)),
    ("stream", ("CONTINUOUS", "QUERY")),
)


# --- What follows the query -----------------------------------------------------------------------


def _read_tail(reader: StatementReader, allowed: set[str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    while reader.word in allowed:
        at, (field, clause) = reader.offset, _TAILS[reader.word]
        if field in read:
            raise reader.error(f"{reader.word} appears twice", hint="Write it once.", at=at)
        read[field] = clause(reader)
    return read


def _read_with(reader: StatementReader) -> Mapping[str, Any]:
    reader.expect("WITH")
    return read_options(reader)


def _read_lateness(reader: StatementReader) -> timedelta:
    reader.expect("ALLOW", "LATENESS", hint="Write ALLOW LATENESS INTERVAL '1 minute'.")
    at = reader.offset
    lateness = reader.interval()
    if lateness < timedelta(0):
        raise reader.error("the lateness is below zero", hint="Write it without a sign.", at=at)
    return lateness


def _read_late_to(reader: StatementReader) -> str:
    reader.expect("LATE", "DATA", "TO", hint="Write LATE DATA TO name.")
    return reader.name("stream")


def _read_event_time(reader: StatementReader) -> WatermarkSpec:
    column, at, delay = read_watermark(reader)
    return WatermarkSpec(column, delay, *reader.place_of(at))


_TAILS: Mapping[str, tuple[str, Callable[[StatementReader], Any]]] = {
    "EMIT": ("emit", read_emit),
    "ALLOW": ("lateness", _read_lateness),
    "LATE": ("late_to", _read_late_to),
    "WATERMARK": ("watermark", _read_event_time),
    "WITH": ("options", _read_with),
}
"""The first word of each clause: the field it fills, and what reads it."""
