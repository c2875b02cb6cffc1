"""``LiveTable``: the widget that ``db.watch`` shows, and the thread that feeds it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import (
    ClosedError,
    Error,
    InvalidOptionError,
    MissingExtraError,
    ReceiveTimeoutError,
)
from millstream.notebook.live_rows import LiveRows, is_number

try:
    import anywidget
    import traitlets
except ImportError as _error:
    raise MissingExtraError(
        "anywidget is not installed", hint="pip install 'millstream[notebook]'"
    ) from _error

if TYPE_CHECKING:
    from millstream.subscriptions import Subscription

_HERE: Final = Path(__file__).parent
_FRAME_SECONDS: Final = 0.1
_STATUS_SECONDS: Final = 1.0
_MOST_ROWS: Final = 10_000


class LiveTable(anywidget.AnyWidget):
    """A live table in a notebook: the result of a query. Create one with ``db.watch(sql)``.

    A thread receives the changes, and updates the notebook at most ten times a second. The table
    stops with ``stop()``, with its button, or when the database is closed.

    Attributes:
        sql: the query.
        columns: name, type and alignment of each column.
        rows: a number and the texts of each visible row.
        status: the state, the number of rows, changes per second, lag, and the error if the query
            has failed.
    """

    _esm = _HERE / "live_table.js"
    _css = _HERE / "live_table.css"

    sql: traitlets.Unicode[str, str | bytes] = traitlets.Unicode().tag(sync=True)
    columns: traitlets.List[Any] = traitlets.List().tag(sync=True)
    rows: traitlets.List[Any] = traitlets.List().tag(sync=True)
    status: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)

    def __init__(self, subscription: Subscription, limit: int) -> None:
        self._subscription = subscription
        self._live = LiveRows(subscription.schema, limit)
        self._error = ""
        columns = [
            {"name": each.name, "type": str(each.type), "number": is_number(each.type.arrow)}
            for each in subscription.schema.columns
        ]
        super().__init__(sql=subscription.sql, columns=columns, status=self._status("live"))
        self.on_msg(self._on_message)
        self._thread = threading.Thread(target=self._run, name="millstream-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the subscription; the table keeps its last rows. A second call does nothing."""
        self._subscription.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join(_STATUS_SECONDS)

    def close(self) -> None:
        """Stop, and remove the table from the notebook."""
        self.stop()
        super().close()

    def _on_message(self, _: object, content: Any, __: object) -> None:  # noqa: ANN401 - JSON
        if content == {"type": "stop"}:
            self.stop()

    # ---- the thread

    def _run(self) -> None:
        state = "stopped"
        try:
            self._follow()
        except ClosedError:
            pass
        except Error as error:
            state, self._error = "failed", str(error)
        self._paint(state)

    def _follow(self) -> None:
        """Apply what comes, and show it, until the subscription ends."""
        painted = 0.0
        is_new = False
        while True:
            wait = _FRAME_SECONDS if is_new else _STATUS_SECONDS
            try:
                batch = self._subscription.recv(max(0.0, painted + wait - time.monotonic()))
                self._live.apply(batch, time.monotonic())
                is_new = True
            except ReceiveTimeoutError:
                pass
            now = time.monotonic()
            if now - painted >= wait:
                self._paint("live", with_rows=is_new)
                painted, is_new = now, False

    def _paint(self, state: str, *, with_rows: bool = True) -> None:
        """Send what is shown to the notebook, in one message."""
        with self.hold_sync():
            if with_rows:
                self.rows = [[number, *texts] for number, texts in self._live.shown()]
            self.status = self._status(state)

    def _status(self, state: str) -> dict[str, Any]:
        metrics = self._subscription.metrics
        return {
            "state": state,
            "error": self._error,
            "total": self._live.total,
            "lost": self._live.lost,
            "rate": round(self._live.rate(time.monotonic()), 1) if state == "live" else 0.0,
            "lag_rows": metrics.lag_rows,
            "lag_ms": round(metrics.lag_seconds * 1000, 1),
        }


def watch(subscription: Subscription, *, limit: int = 100) -> LiveTable:
    """The widget of a subscription, which it ends with itself.

    Raises:
        InvalidOptionError: a limit that is none.
    """
    if type(limit) is not int or not 1 <= limit <= _MOST_ROWS:
        subscription.cancel()
        raise InvalidOptionError(f"limit={limit!r}", hint=f"an integer from 1 to {_MOST_ROWS:,}")
    return LiveTable(subscription, limit)
