"""The one order of all DDL: statements that change what exists run one after the other."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from millstream.errors import DdlTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

DDL_SECONDS: Final = 30.0
"""How long a statement waits for another one, if ``ddl_timeout`` does not say otherwise."""


class DdlLock:
    """Held while a statement checks what exists, and changes it.

    So what was checked still holds when it is changed. What takes long (planning on Spark, asking a
    connector, building a view beside the one that it replaces) is done before, and its result is
    checked again with this lock held. A thread may take it twice. The dispatcher's thread never
    takes it, since whoever holds it waits for the dispatcher.

    >>> lock = DdlLock(timeout=0.5)
    >>> with lock.held("DROP TABLE t"):
    ...     lock.holder
    'DROP TABLE t'

    Args:
        timeout: how many seconds a statement waits for others.
    """

    def __init__(self, timeout: float = DDL_SECONDS) -> None:
        self._timeout = min(timeout, threading.TIMEOUT_MAX)
        self._lock = threading.RLock()
        self._holders: list[tuple[str, float]] = []

    @property
    def holder(self) -> str | None:
        """The statement that holds it, or None."""
        holders = list(self._holders)
        return holders[0][0] if holders else None

    @contextlib.contextmanager
    def held(self, statement: str, *, forever: bool = False) -> Iterator[None]:
        """Hold it for a statement.

        Args:
            statement: what others are told that they wait for, as ``DROP VIEW v``.
            forever: wait without a limit: for what must be done, such as removing a hidden view.

        Raises:
            DdlTimeoutError: another statement has held it for the whole time.
        """
        if not self._lock.acquire(timeout=-1 if forever else self._timeout):
            raise self._timed_out(statement)
        try:
            self._holders.append((statement, time.monotonic()))
            try:
                yield
            finally:
                self._holders.pop()
        finally:
            self._lock.release()

    def _timed_out(self, statement: str) -> DdlTimeoutError:
        holders = list(self._holders)
        holder, since = holders[0] if holders else ("another statement", time.monotonic())
        return DdlTimeoutError(
            f"{statement} waits for {holder}, running for {time.monotonic() - since:.0f} s",
            hint=f"try again when that is done; ms.open(..., ddl_timeout=) is {self._timeout:g} s",
        )
