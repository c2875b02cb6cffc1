"""Setbacks: what ended a view's query, how long to wait before the next try, whom to report it to.

Java's death is no failure of a view: the query is started again in a new Java, at once, and again
after a short pause if Java dies again at the same place. A Java that does not start is tried again
a few times before the view has failed. Only what the query itself has raised is its failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    JavaDiedError,
    LogCorruptError,
    LogError,
    LogFailedError,
    LsnNotKeptError,
    RowTooLargeError,
    SparkStartError,
)
from millstream.spark.errors import FULL_DISK

if TYPE_CHECKING:
    from millstream.spark.session import Spark

_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
_JAVA_PAUSES: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
_FULL_PAUSE: Final = 2.0

_HOPELESS: Final = 2
"""After so many failures at the same place subscribers get the error."""

_MOST_STARTS: Final = 5
"""After so many starts of Java in a row that have failed subscribers get the error."""


@dataclass(frozen=True, slots=True)
class Setback:
    """Why a query has ended, and what follows.

    Attributes:
        reason: what ended it.
        pause: seconds until it is started again.
        is_failure: whether the view has failed; else it only restarts.
        is_hopeless: whether the view's subscribers get the error.
    """

    reason: BaseException
    pause: float
    is_failure: bool
    is_hopeless: bool = False

    @property
    def is_of_java(self) -> bool:
        """Whether Java was missing, and the query has nothing to do with it."""
        return not self.is_failure or isinstance(self.reason, SparkStartError)


class Setbacks:
    """Counts the setbacks of one view's query.

    Args:
        spark: where it runs.
    """

    def __init__(self, spark: Spark) -> None:
        self._spark = spark
        self._deaths = 0  # of Java, before the query was started
        self._place = -1
        self._counts = {"failure": 0, "death": 0, "start": 0}

    @property
    def failed(self) -> bool:
        """Whether the next start of the query is one after a failure at the same place."""
        return self._counts["failure"] > 0

    def begin(self) -> None:
        """Note what there is before a query is started."""
        self._deaths = self._spark.deaths

    def clear(self) -> None:
        """Forget all: the query has ended well."""
        self._counts = dict.fromkeys(self._counts, 0)

    def add(self, reason: BaseException, raised: BaseException, place: int) -> Setback:
        """The setback of a query that has ended.

        Args:
            reason: what is known of why it has ended.
            raised: what was raised where it was watched.
            place: the LSN up to which the view counts.
        """
        if place != self._place:
            self._counts["failure"] = self._counts["death"] = 0
        self._place = place
        if isinstance(raised, SparkStartError):
            count = self._count("start")
            is_over = count >= _MOST_STARTS
            return Setback(raised, _pause(_PAUSES, count), is_over, is_over)
        self._counts["start"] = 0
        if self._spark.has_died(self._deaths, raised):
            return Setback(_death(), _pause(_JAVA_PAUSES, self._count("death")), is_failure=False)
        if _is_full(reason):
            self._counts["failure"] = 0
            return Setback(reason, _FULL_PAUSE, is_failure=True)
        count = self._count("failure")
        return Setback(reason, _pause(_PAUSES, count), True, count >= _HOPELESS)

    def _count(self, kind: str) -> int:
        self._counts[kind] += 1
        return self._counts[kind]


def _pause(pauses: tuple[float, ...], count: int) -> float:
    return pauses[min(count, len(pauses)) - 1]


def _death() -> JavaDiedError:
    return JavaDiedError(
        "Spark's Java has ended, and is started again",
        hint="the view goes on by itself; spark.log of the database may say why Java has ended",
    )


def _is_full(raised: BaseException) -> bool:
    """Whether the log, or Spark for its checkpoint, found no room: not the fault of any row."""
    if isinstance(raised, LogError):
        others = LogCorruptError | LogFailedError | LsnNotKeptError | RowTooLargeError
        return not isinstance(raised, others)
    return FULL_DISK in str(raised)
