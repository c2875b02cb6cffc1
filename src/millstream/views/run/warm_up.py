"""A warm-up: a query like a view's own, over made-up rows, so that no real row meets a cold Java.

Java loads classes when it first needs them, and compiles what it has run often. The first rows of a
view take three times as long as later ones, and the first end of a batch keeps the rows
of that moment waiting for a second or more. So beside the first view of a Java runs, for a few
seconds, another query with the same plan: its rows come from here, one after the other as they do
from a source, its results go nowhere, its checkpoint is in a temporary folder, and its batch ends.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.model.batch import ChangeBatch
from millstream.spark.bridge.frames import END, HEADER, ROWS
from millstream.threads import thread
from millstream.views.run.checkpoint import Offset
from millstream.views.run.columns import FeedColumns
from millstream.views.run.results import receive_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from millstream.model.result_rows import Results as Rows
    from millstream.model.schema import Row, Schema
    from millstream.spark.bridge.connection import Connection
    from millstream.views.run.inputs import FeedInputs
    from millstream.views.run.query import SparkQuery

_logger = logging.getLogger("millstream.spark")

_ROWS: Final = 3000
_SECONDS: Final = 3.0
"""So many rows are sent, for so long at the most."""

_ANSWER_SECONDS: Final = 1.0
_END_SECONDS: Final = 30.0
_KEYS: Final = 20
_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)


class WarmUp:
    """One warm-up, in a thread of its own. Should it fail, nothing is missing but the warmth.

    Args:
        query: the view's.
        inputs: what the view reads.

    Attributes:
        rows: how many rows were sent.
        results: how many rows came back.
        is_complete: whether its batch has ended as that of a view does.
    """

    def __init__(self, query: SparkQuery, inputs: FeedInputs) -> None:
        self.rows = self.results = 0
        self.is_complete = False
        self._server = query.server()
        self._folder = Path(tempfile.mkdtemp(prefix="millstream-warm-up-"))
        self._query = replace(
            query,
            feed=f"{query.feed}/warm-up",
            checkpoint=self._folder / "checkpoint",
            timed=set(),
            before_rebuild=_nothing,
            _session=None,  # relations of the same names must not meet the view's own
            _frame=None,
            _lowered=None,
        )
        self._inputs = inputs
        self._answered = threading.Semaphore(0)
        self._over = threading.Event()
        self._thread = thread("warm-up", self._run, lambda _: None)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._over.set()
        self._answered.release()
        self._thread.join()

    def _run(self) -> None:
        self._server.add(self._query.feed, self)
        try:
            running = self._query.start()
            try:
                self._over.wait(_END_SECONDS)
            finally:
                running.stop()
        except Exception as error:  # noqa: BLE001 - no row of the user's is in it
            _logger.debug("the warm-up ended early: %s", error)
        finally:
            self._server.remove(self._query.feed)
            shutil.rmtree(self._folder, ignore_errors=True)

    # ---- what Spark's tasks ask: see ``runner.TaskEndpoint``

    def serve(self, role: str, words: Sequence[str], wire: Connection) -> None:
        """Serve a connection of one of the query's tasks, until its end."""
        if role == "control":
            self._control(wire)
        elif role == "tail":
            self._send_rows(words[0].split("\x1f"), wire)
        elif role == "sink":
            receive_all(wire, self._flushed)
        elif role == "commit":
            wire.receive_text()
            wire.send_text("=")

    def _control(self, wire: Connection) -> None:
        try:
            while True:
                asked = wire.receive_text().split("\t")[0]
                wire.send_text("=" + (self._offset(0).json if asked == "initial" else ""))
        finally:
            self._over.set()  # the query has ended

    def _flushed(self, rows: list[Rows], lsn: int) -> None:
        """Take results: they are counted, and dropped."""
        del lsn
        self.results += sum(each.num_rows for each in rows)
        self._answered.release()

    def _offset(self, lsn: int) -> Offset:
        return Offset(lsn, (None,) * len(self._inputs.topics))

    def _send_rows(self, names: list[str], wire: Connection) -> None:
        if self.rows:  # the batch after the first: all has been run through
            self.is_complete = True
            self._over.set()
            wire.read(1)  # nothing comes on it: it ends when the task is stopped
            return
        columns = FeedColumns(self._inputs.schemas, names)
        wire.send(columns.schema.serialize())
        self._send(ROWS, columns.initial_row(1).serialize(), 1, wire)
        logs = list(enumerate(zip(self._inputs.topics, self._inputs.schemas, strict=True)))
        deadline, lsn = time.monotonic() + _SECONDS, 1
        while self.rows < _ROWS and time.monotonic() < deadline and not self._over.is_set():
            number = self.rows // len(logs)  # the same for all logs, so that their rows are joined
            for log, (topic, schema) in logs:
                lsn += 1
                batch = ChangeBatch.of_row(schema, topic, made_up(schema, number))
                batch.first_lsn = batch.lsn = lsn
                self._send(*columns.encoded(log, batch, None), lsn, wire)
                self.rows += 1
        text = self._offset(lsn).json.encode()
        wire.send(HEADER.pack(END, lsn, len(text)), text)

    def _send(self, kind: int, data: bytes | pa.Buffer, lsn: int, wire: Connection) -> None:
        """Send a frame, and wait until all that it leads to has come back."""
        text = self._offset(lsn).json.encode()
        wire.send(HEADER.pack(kind, lsn, len(text)), text, data)
        self._answered.acquire(timeout=_ANSWER_SECONDS)


def can_warm_up(inputs: FeedInputs) -> bool:
    """Whether rows can be made up for a feed."""
    return not any(each.is_nested for each in inputs.schemas)


def _nothing() -> None:
    """Do nothing: nobody misses a checkpoint of a warm-up."""


# ---- rows

_VALUES: Final[dict[str, Callable[[int], Any]]] = {
    "BOOLEAN": lambda n: n % 2 == 0,
    "REAL": lambda n: n % _KEYS + 0.5,
    "DOUBLE": lambda n: n % _KEYS + 0.5,
    "VARCHAR": lambda n: str(n % _KEYS),
    "BINARY": lambda n: str(n % _KEYS).encode(),
    "DATE": lambda n: (_DAY + timedelta(days=n % _KEYS)).date(),
    "TIMESTAMP": lambda n: _DAY + timedelta(milliseconds=n),
    "INTERVAL": lambda n: timedelta(seconds=n % _KEYS),
    "DECIMAL": lambda n: Decimal(n % 10),
}
"""A value of each plain type that is not a whole number; few of them, so that keys meet."""


def made_up(schema: Schema, number: int) -> Row:
    """The row of a number, without a NULL."""
    return tuple(_VALUES.get(each.type.kind, _whole)(number) for each in schema.columns)


def _whole(number: int) -> int:
    return number % _KEYS
