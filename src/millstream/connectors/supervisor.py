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
    MissingExtraError,
    ObjectNotFoundError,
    SchemaMismatchError,
)
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connectors.pace import Retries

State = Literal[
    "starting", "running", "retrying", "resting", "failed", "paused", "finished", "stopped"
]
STOP_SECONDS: Final = 10.0
"""How long stopping waits for a connector that is just reading or writing."""

_PERMANENT: Final = (
    ConnectorFailedError,
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

    Attributes:
        state: what it does now. ``resting``: the circuit breaker is open.
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
        self._is_abandoned = False
        self._thread = thread(f"connector-{name}", self._run, self._crashed)

    # ---- for those who command

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def pause(self) -> None:
        """Stop reading or writing until ``resume``; returns when it has."""
        with self._asked:
            self._is_paused = True
            self._ending.set()
            self._asked.notify_all()
            self._asked.wait_for(lambda: self.state in {"paused", "stopped"}, STOP_SECONDS)

    def resume(self) -> None:
        """Go on after ``pause``, or after it has failed or rests."""
        with self._asked:
            self._is_paused = False
            self._retries.succeeded()
            self._ending.set()  # of a wait; what runs is opened again
            self.state = "starting"
            self._asked.notify_all()

    def restart(self) -> None:
        """Have it closed and opened again, if it runs."""
        self._ending.set()
        with self._asked:
            self._asked.notify_all()

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """End; waits until it has, or abandons it: then nothing it does counts any more."""
        self.ask_to_stop()
        self.join(timeout)

    def ask_to_stop(self) -> None:
        """Let it end, without waiting."""
        with self._asked:
            self._is_stopped = True
            self._ending.set()
            self._asked.notify_all()

    def join(self, timeout: float = STOP_SECONDS) -> None:
        """Wait until it has ended, or abandon it."""
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout)
            self._is_abandoned = self._thread.is_alive()
        if self._is_abandoned:
            _logger.warning(
                "the connector of %s did not stop within %g seconds", self.name, timeout
            )

    # ---- for the work

    @property
    def is_ending(self) -> bool:
        """Whether the work should close its connector and return."""
        return self._ending.is_set()

    def check(self) -> None:
        """Raise if nothing it does counts any more.

        Raises:
            ClosedError: it was abandoned.
        """
        if self._is_abandoned:
            raise ClosedError("the connector was stopped")

    def wait(self, seconds: float) -> bool:
        """Wait; whether the work should end."""
        return self._ending.wait(seconds) if seconds > 0 else self.is_ending

    def opened(self) -> None:
        """The connector is open."""
        self.state = "running"

    def worked(self) -> None:
        """Something was delivered or stored: earlier errors are over."""
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
            if self._is_paused and not self._is_stopped:
                self.state = "paused"
                self._asked.notify_all()
            self._asked.wait_for(lambda: self._is_stopped or not self._is_paused)
            if not self._is_stopped:
                self._ending.clear()
                self.state = "starting" if self.state == "paused" else self.state
            return not self._is_stopped

    def _failed(self, error: Exception) -> None:
        if self._is_stopped or self._is_abandoned:
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
