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
    """The backpressure policy ``sample(n)``: of a backlog that is full, every n-th row is kept.

    >>> Sample(10)
    'sample(10)'

    Args:
        n: one of so many rows is kept.
    """

    __slots__ = ()

    def __new__(cls, n: int) -> Self:
        """The policy for an n of at least 1."""
        if type(n) is not int or n < 1:
            raise InvalidOptionError(f"Sample({n!r})", hint="an integer, at least 1")
        return super().__new__(cls, f"sample({n})")


Backpressure = Literal["block", "drop_oldest", "drop_newest", "conflate", "disconnect"] | Sample
"""What happens when a reader is too slow."""

Ack = Literal["auto", "manual"]
"""Who acknowledges for a durable subscription: its callback's return, or the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """The keyword arguments of ``subscribe``, checked.

    Attributes:
        start: where to begin: ``"now"``, ``"earliest"``, ``"snapshot"``, a token, an LSN, a time;
            None: the default of what is read.
        backpressure: the policy for a reader that is too slow.
        buffer_rows: how many rows wait in memory for it.
        max_rows: at most so many rows in a batch; None: batches as they were committed.
        max_delay: wait so many seconds for ``max_rows`` to come together; None: do not wait.
        demand: hand over only as many rows as ``request`` asks for, and these to begin with;
            None: all rows.
        name: makes the subscription durable.
        reset: of a durable one, ``start`` counts although the name was used before.
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
        """Refuse acknowledgements by the program where there are none.

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
        """The backpressure policy for a query that gives these columns.

        Raises:
            InvalidOptionError: there is no such policy, or it needs a key that the query has not.
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
        sql: its text.
        schema: the columns that it gives.
        target: the source, table or view that it reads; empty: all of them, or none with a name.
        tenant: only the rows of this tenant; None: all rows.
        has_state: whether the target has current rows, with which a subscription begins.
        has_past: whether it begins with the rows of an LSN or a time of the past, if that is where
            it is to start.
        born: the LSN at which the target was created; older tokens are for a dropped target of the
            same name.
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
