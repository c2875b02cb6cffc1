"""SUBSCRIBE: the changes of a query as rows, each with its LSN, operation, weight and token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.model.names import quote_name
from millstream.server.postgres.answers import PgColumn, columns_of
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.options import (
    Options,
    check_names,
    duration,
    flag,
    split_options,
)
from millstream.server.postgres.text import Text
from millstream.server.postgres.types import INT8

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.engine.session import Session
    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Schema
    from millstream.server.postgres.answers import Columns
    from millstream.subscriptions import AsyncSubscription, Backpressure

_OPTIONS: Final = ("snapshot", "start", "progress", "timeout", "backpressure", "buffer_rows")
_FIRST: Final = (
    PgColumn("_lsn", INT8, 8),
    PgColumn("_op"),
    PgColumn("_weight", INT8, 8),
    PgColumn("_token"),
)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """``SUBSCRIBE [TO] name | SELECT ... | (SELECT ...) [WITH (...)]``.

    Attributes:
        sql: the query, in Millstream's dialect.
        given: the values of its parameters; None when it has none.
        start: where to begin; None: the default of what is read.
        progress: whether a row says how far it is when there is no change.
        timeout: as a stream, end after so many seconds without a change; None: never.
        backpressure: what happens when the client is too slow.
        buffer_rows: how many rows wait for it in memory.
    """

    sql: str
    given: list[Any] | None
    start: str | int | None
    progress: bool
    timeout: float | None
    backpressure: Backpressure
    buffer_rows: int

    @property
    def is_resumed(self) -> bool:
        """Whether it goes on after what the client has seen."""
        return isinstance(self.start, str) and self.start not in {"now", "earliest", "snapshot"}

    def open(self, session: Session) -> AsyncSubscription:
        """Subscribe; every change that is committed later is given."""
        return session.subscribe_stream(
            self.sql,
            self.given,
            start=self.start,
            backpressure=self.backpressure,
            buffer_rows=self.buffer_rows,
        )


def read_subscribe(text: Text, values: Sequence[Any]) -> Subscribe:
    """What a SUBSCRIBE asks for; the first token is SUBSCRIBE, or LIVE.

    Raises:
        PostgresError: it is written otherwise.
    """
    tokens, options = split_options(text.tail(1).tokens)
    check_names(options, _OPTIONS, text)
    if tokens[0].word == "TO":
        tokens = tokens[1:]
    if len(tokens) > 1 and tokens[0].text == "(" and tokens[-1].text == ")":
        tokens = tokens[1:-1]
    if not tokens:
        raise PostgresError("SUBSCRIBE needs a query", sqlstate="42601", position=text.start + 1)
    if tokens[0].word in {"SELECT", "WITH"}:
        made = Text(text.query, tokens).rewritten
        sql = made.sql
        given = made.given(values)
    else:
        sql, given = f"SELECT * FROM {_name(text, tokens[-1])}", None  # noqa: S608 - a quoted name
    return Subscribe(
        sql=sql,
        given=given,
        start=_start(options),
        progress=flag(options, "progress"),
        timeout=duration(options, "timeout"),
        # Whether there is one of that name is checked later.
        backpressure=cast("Backpressure", options.get("backpressure", "block")),
        buffer_rows=_count(options.get("buffer_rows", "65536")),
    )


def _name(text: Text, token: Any) -> str:  # noqa: ANN401 - a Token
    name = token.text if token.kind == "word" else token.identifier
    if not name or token.kind not in {"word", "name"}:
        raise PostgresError(
            "SUBSCRIBE takes a name or a SELECT", sqlstate="42601", position=text.start + 1
        )
    return quote_name(name)


def _count(value: str) -> int:
    if not value.isdecimal():
        raise PostgresError(f"buffer_rows cannot be {value!r}", sqlstate="22023")
    return int(value)


def _start(options: Options) -> str | int | None:
    start = options.get("start")
    if start is not None:
        return int(start) if start.isdecimal() else start
    if "snapshot" in options:
        return "snapshot" if flag(options, "snapshot") else "now"
    return None


def change_columns(schema: Schema) -> Columns:
    """The columns of changes: four of ours, then those of the query."""
    return (*_FIRST, *columns_of(schema))


class ChangeRows:
    """Converts batches to rows.

    ``_op`` is insert, update (the old row with weight -1, then the new one with +1) or delete;
    snapshot for a row of the state that the changes after it start from. A row without a row of the
    query is a gap (``_weight`` rows were lost), a reset (forget all, a snapshot follows), or
    progress. ``_token`` is set where a client that has handled all rows up to there may resume.

    Args:
        subscribe: what was asked for.
        schema: the columns of the query.
    """

    def __init__(self, subscribe: Subscribe, schema: Schema) -> None:
        self._nothing = (None,) * len(schema.columns)
        self._progress = subscribe.progress
        self._is_later = subscribe.is_resumed  # whether a snapshot would be a new beginning

    def __call__(self, batch: ChangeBatch) -> list[tuple[Any, ...]]:
        """The rows of a batch; the last has its token."""
        rows = list(self._before(batch))
        rows += self._changes(batch)
        if not rows and self._progress:
            rows.append((batch.lsn, "progress", 0, None, *self._nothing))
        if rows:
            lsn, op, weight, _, *rest = rows[-1]
            rows[-1] = (lsn, op, weight, batch.token, *rest)
        return rows

    def _before(self, batch: ChangeBatch) -> Iterator[tuple[Any, ...]]:
        gap = batch.gap
        if gap is not None:
            yield (gap.last_lsn, "gap", gap.count, None, *self._nothing)
        is_snapshot = batch.kind == "snapshot"
        if is_snapshot and self._is_later:
            yield (batch.lsn, "reset", None, None, *self._nothing)
        self._is_later = not is_snapshot

    def _changes(self, batch: ChangeBatch) -> Iterator[tuple[Any, ...]]:
        if not len(batch):
            return
        if batch.kind == "snapshot":
            ops: Sequence[str] = ["snapshot"] * len(batch)
        elif batch.is_insert_only:
            ops = ["insert"] * len(batch)
        else:
            ops = batch.to_arrow().column("_op").to_pylist()
        weights, lsns = batch.weights, batch.lsns
        for row, op, weight, lsn in zip(batch.held_rows, ops, weights, lsns, strict=True):
            yield (lsn, op, weight, None, *row)
