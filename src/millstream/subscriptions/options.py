"""The options of a subscription as one value, and the query that it is for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Self

from millstream.delivery.backpressure import CONFLATE, Policy
from millstream.errors import InvalidOptionError
from millstream.model.arguments import check_seconds
from millstream.model.names import check_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.schema import Schema

Start = str | int | datetime | None


class Sample(str):
    """The backpressure policy ``sample(n)``: when the buffer is full, keep every n-th row.

    >>> Sample(10)
    'sample(10)'

    Args:
        n: keep one row of this many.
    """

    __slots__ = ()

    def __new__(cls, n: int) -> Self:
        """The policy for an n of at least 1."""
        if type(n) is not int or n < 1:
            raise InvalidOptionError(f"Sample({n!r})", hint="an integer, at least 1")
        return super().__new__(cls, f"sample({n})")


Backpressure = Literal["block", "drop_oldest", "drop_newest", "conflate", "disconnect"] | Sample
"""The policy for a slow reader."""

Ack = Literal["auto", "manual"]
"""Who acknowledges for a durable subscription: its callback's return, or the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """The keyword arguments of ``subscribe``, checked.

    Attributes:
        start: where to start: ``"now"``, ``"earliest"``, ``"snapshot"``, a token, an LSN, a time;
            None: the default for the kind of relation.
        backpressure: the policy for a slow reader.
        buffer_rows: maximum number of rows that wait in memory.
        max_rows: maximum number of rows in a batch; None: batches as they were committed.
        max_delay: seconds that a batch waits for ``max_rows`` rows; None: it does not wait.
        demand: initial credit in rows; further rows are delivered as ``request`` asks. None: no
            limit.
        name: makes the subscription durable.
        reset: of a durable subscription, ``start`` counts although the name was used before.
        ack: of a durable callback, who acknowledges: its return, or the program.
    """

    start: Start = None
    backpressure: str = "block"
    buffer_rows: int = 65536
    max_rows: int | None = None
    max_delay: float | None = None
    demand: int | None = None
    name: str | None = None
    reset: bool = False
    ack: Ack = "auto"

    def __post_init__(self) -> None:
        for name, value, least in (("max_rows", self.max_rows, 1), ("demand", self.demand, 0)):
            if value is not None and (type(value) is not int or value < least):
                raise InvalidOptionError(
                    f"{name} is {value!r}", hint=f"an integer, at least {least}"
                )
        if not isinstance(self.ack, str) or self.ack not in {"auto", "manual"}:
            raise InvalidOptionError(f"ack is {self.ack!r}", hint='"auto" or "manual"')
        if self.max_delay is not None:
            check_seconds(self.max_delay, "max_delay")
        if self.name is not None:
            check_name(self.name, "subscription")
        if type(self.buffer_rows) is not int or self.buffer_rows < 1:
            raise InvalidOptionError(
                f"buffer_rows is {self.buffer_rows!r}", hint="an integer, at least 1"
            )

    def check_ack(self) -> None:
        """Refuse ``ack="manual"`` for a subscription without a name.

        Raises:
            InvalidOptionError: the subscription has no name.
        """
        if self.ack == "manual" and self.name is None:
            raise InvalidOptionError(
                "ack is 'manual', and the subscription has no name",
                hint="give it a name: only what is durable is acknowledged",
            )

    def given(self) -> list[str]:
        """The names of the options that differ from their defaults."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]

    def policy(self, schema: Schema) -> Policy:
        """Return the backpressure policy for a query with these columns.

        Raises:
            InvalidOptionError: the policy is unknown, or needs a key that the result does not have.
        """
        policy = Policy.parse(self.backpressure)
        if policy.kind == CONFLATE and not schema.key:
            raise InvalidOptionError(
                "conflate needs a key, and the result of this query has none",
                hint="select the primary key of a table, or use drop_oldest",
            )
        return policy


@dataclass(frozen=True, slots=True)
class SubscribedQuery:
    """The query of a subscription.

    Attributes:
        sql: the text of the query.
        schema: the columns of its result.
        target: the source, table or view that it reads; empty: all of them, or none with a name.
        tenant: read only this tenant's rows; None: all rows.
        has_state: whether the target has current rows, with which a subscription starts.
        has_past: whether a subscription that starts at an LSN or a time gets the rows of then.
        born: the LSN at which the target was created. Older tokens belong to a dropped target of
            the same name.
        check_exists: raises if the target was dropped since the query was planned.
        is_view: whether the target is a view or a stream, whose changes have a cause.
    """

    sql: str
    schema: Schema
    target: str = ""
    tenant: str | None = None
    has_state: bool = False
    has_past: bool = False
    born: int = 0
    check_exists: Callable[[], None] = lambda: None
    is_view: bool = False
