"""The supervisor: one thread that opens a connector, lets it work, and opens it again after errors.

Whatever a connector raises ends here: it is shown, and costs nobody else anything.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Literal

from millstream.connectors.contract import SourceEnd
from millstream.errors import (
    ClosedError,
    ConnectorFailedError,
    Error,
    ForeignTokenError,
    InvalidOptionError,
    MissingExtraError,
    ObjectNotFoundError,
    SchemaMismatchError,
)
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connectors.pace import Retries

State = Literal[
    "starting",
    "running",
    "retrying",
    "resting",
    "failed",
    "stopping",
    "paused",
    "finished",
    "stopped",
]
STOP_SECONDS: Final = 10.0
"""How long stopping waits for a connector that is just reading or writing."""

_PERMANENT: Final = (
    ConnectorFailedError,
    InvalidOptionError,
    MissingExtraError,
    ForeignTokenError,
    SchemaMismatchError,
    ObjectNotFoundError,
)
_logger = logging.getLogger("millstream.connectors")


class Supervisor:
    """Runs one connector.

    Args:
        name: the source, table or sink.
        work: opens the connector and works until ``is_ending``; called again after it has raised.
        retries: the pauses between attempts.
        scrub: takes secrets out of a text.
        between_commits: runs a function while nothing is being committed.

    Attributes:
        state: what it does now. ``resting``: the circuit breaker is open. ``stopping``: it was
            asked to stop, and still waits for the outside.
        error: why it does not run, or why it did not the last time; None since it has worked.
        restarts: how many times it was opened again after an error.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Supervisor], None],
        retries: Retries,
        scrub: Callable[[str], str],
        *,
        paused: bool = False,
        between_commits: Callable[[Callable[[], None]], None] = lambda function: function(),
    ) -> None:
        self.name = name
        self.state: State = "paused" if paused else "starting"
        self.error: str | None = None
        self.restarts = 0
        self._work = work
        self._retries = retries
        self._scrub = scrub
        self._ending = threading.Event()  # stop what runs: pause, restart, stop
        self._asked = threading.Condition()
        self._is_paused = paused
        self._is_stopped = False
        self._between_commits = between_commits
        self._run_number = 0
        self._fenced = -1  # the last run of which nothing counts any more
        self._thread = thread(f"connector-{name}", self._run, self._crashed)

    # ---- for those who command

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def pause(self) -> bool:
        """Stop reading or writing until ``resume``; returns whether it has.

        Of one that still waits for the outside, nothing is committed any more.
        """
        with self._asked:
            self._is_paused = True
            self._ending.set()
            self._asked.notify_all()
            if self._asked.wait_for(self._has_ended, STOP_SECONDS):
                return True
        self._fence()
        return self._has_ended()

    def _has_ended(self) -> bool:
        return self.state in {"paused", "stopped"}

    def resume(self) -> None:
        """Go on after ``pause``, or after it has failed or rests."""
        with self._asked:
            self._is_paused = False
            self._retries.succeeded()
            self._ending.set()  # of a wait; what runs is opened again
            self.state = "stopping" if self.state == "stopping" else "starting"
            self._asked.notify_all()

    def restart(self) -> None:
        """Have it closed and opened again, if it runs."""
        self._ending.set()
        with self._asked:
            self._asked.notify_all()

    def stop(self, timeout: float | None = None) -> None:
        """End; waits until it has, or abandons it: then nothing it does counts any more."""
        self.ask_to_stop()
        self.join(timeout)

    def ask_to_stop(self) -> None:
        """Let it end, without waiting."""
        with self._asked:
            self._is_stopped = True
            self._ending.set()
            self._asked.notify_all()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, or abandon it."""
        if self._thread.ident is None or threading.current_thread() is self._thread:
            return
        self._thread.join(STOP_SECONDS if timeout is None else timeout)
        if self._thread.is_alive():
            self._fence()

    def _fence(self) -> None:
        """Let nothing count that the present run still does."""
        run = self._run_number

        def fence() -> None:
            self._fenced = max(self._fenced, run)

        self._between_commits(fence)
        with self._asked:
            if self._run_number != run or self._has_ended():
                return
            self.state = "stopping"
            self.error = "it was asked to stop, and still waits for the outside"
        _logger.warning("the connector of %s does not stop: %s", self.name, self.error)

    # ---- for the work

    @property
    def is_ending(self) -> bool:
        """Whether the work should close its connector and return."""
        return self._ending.is_set()

    def check(self) -> None:
        """Raise if nothing it does counts any more.

        Raises:
            ClosedError: it was paused or stopped, and did not end in time.
        """
        if self._run_number <= self._fenced:
            raise ClosedError("the connector was stopped")

    def wait(self, seconds: float) -> bool:
        """Wait; whether the work should end."""
        return self._ending.wait(seconds) if seconds > 0 else self.is_ending

    def opened(self) -> None:
        """The connector is open."""
        if self.state != "stopping":
            self.state = "running"

    def worked(self) -> None:
        """Something was delivered or stored: earlier errors are over."""
        if self.state == "stopping":
            return
        if self.error is not None or self._retries.failures:
            self.error = None
            self._retries.succeeded()
        self.state = "running"

    # ---- its thread

    def _run(self) -> None:
        while self._may_work():
            try:
                self._work(self)
            except SourceEnd:
                self._settle("finished", None)
            except Exception as error:  # noqa: BLE001 - a connector may raise anything
                self._failed(error)
        with self._asked:
            self.state = "stopped"
            self._asked.notify_all()

    def _may_work(self) -> bool:
        """Wait while it is paused; whether it is to go on."""
        with self._asked:
            self._run_number += 1
            if self.state == "stopping":
                self.state, self.error = "starting", None
            if self._is_paused and not self._is_stopped:
                self.state = "paused"
                self._asked.notify_all()
            self._asked.wait_for(lambda: self._is_stopped or not self._is_paused)
            if not self._is_stopped:
                self._ending.clear()
                self.state = "starting" if self.state == "paused" else self.state
            return not self._is_stopped

    def _failed(self, error: Exception) -> None:
        if self._is_stopped or self._run_number <= self._fenced:
            return
        self.error = self._scrub(describe(error))
        if isinstance(error, _PERMANENT):
            _logger.error("the connector of %s has failed: %s", self.name, self.error)
            self._settle("failed", self.error)
            return
        pause = self._retries.failed()
        is_resting = self._retries.is_open
        self.state = "resting" if is_resting else "retrying"
        _logger.warning(
            "the connector of %s is tried again in %.1f s: %s", self.name, pause, self.error
        )
        self._ending.wait(pause)
        self.restarts += 1

    def _settle(self, state: State, error: str | None) -> None:
        """Stay in a state until somebody asks for something."""
        with self._asked:
            if not self._is_paused:
                self.state, self.error = state, error
            self._asked.wait_for(self._is_asked)

    def _is_asked(self) -> bool:
        return self._is_stopped or self._is_paused or self._ending.is_set()

    def _crashed(self, error: Exception) -> None:
        self.state, self.error = "failed", self._scrub(describe(error))


def describe(error: BaseException) -> str:
    """An error in one line, for people: the kind, if it is not one of ours, message and hint.

    >>> describe(TimeoutError("no answer"))
    'TimeoutError: no answer'
    """
    if isinstance(error, Error):
        return f"{error.message} (hint: {error.hint})" if error.hint else error.message
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def monotonic() -> float:
    """The time that pauses are counted in."""
    return time.monotonic()
