"""CREATE MATERIALIZED VIEW, CREATE STREAM, and EXPLAIN of these and of queries."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.sql.statements.options import read_options
from millstream.sql.statements.query import (
    QUERY_WORDS,
    read_body,
    read_emit,
    read_live,
    read_query,
)
from millstream.sql.statements.statement import CreateView, Explain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.sql.statements.reader import Reader
    from millstream.sql.statements.statement import ViewKind

_SHAPE = "Write CREATE MATERIALIZED VIEW name AS SELECT ... FROM ..."


def read_create_view(reader: Reader) -> CreateView | None:
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


def read_explain(reader: Reader) -> Explain:
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


def _read_kind(reader: Reader) -> tuple[ViewKind | None, bool]:
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


def _read_tail(reader: Reader, allowed: set[str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    while reader.word in allowed:
        at, (field, clause) = reader.offset, _TAILS[reader.word]
        if field in read:
            raise reader.error(f"{reader.word} appears twice", hint="Write it once.", at=at)
        read[field] = clause(reader)
    return read


def _read_with(reader: Reader) -> Mapping[str, Any]:
    reader.expect("WITH")
    return read_options(reader)


def _read_lateness(reader: Reader) -> timedelta:
    reader.expect("ALLOW", "LATENESS", hint="Write ALLOW LATENESS INTERVAL '1 minute'.")
    at = reader.offset
    lateness = reader.interval()
    if lateness < timedelta(0):
        raise reader.error("the lateness is below zero", hint="Write it without a sign.", at=at)
    return lateness


def _read_late_to(reader: Reader) -> str:
    reader.expect("LATE", "DATA", "TO", hint="Write LATE DATA TO name.")
    return reader.name("stream")


_TAILS: Mapping[str, tuple[str, Callable[[Reader], Any]]] = {
    "EMIT": ("emit", read_emit),
    "ALLOW": ("lateness", _read_lateness),
    "LATE": ("late_to", _read_late_to),
    "WITH": ("options", _read_with),
}
"""The first word of each clause: the field it fills, and what reads it."""
