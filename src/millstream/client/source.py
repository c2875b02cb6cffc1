"""Pushing rows to a server: gathered here, sent in the background, added once each.

A ``Producer`` per source sends what all handles have pushed, in order, one request at a time. Each
request has a key that the server commits with the rows, and is sent until it is answered: what
gathers meanwhile goes with the next one.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from millstream.client.http import delays, ipc_stream
from millstream.errors import (
    ClosedError,
    DisconnectedError,
    Error,
    InvalidOptionError,
    LimitError,
    SourceFullError,
    TooLargeError,
)
from millstream.formats.batches import as_batches
from millstream.formats.rows import RowShape
from millstream.model.clock import from_datetime
from millstream.model.display import one_line, public_names
from millstream.threads import Waiters, thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from millstream.client.http import Http
    from millstream.formats.batches import ArrowStream
    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row

CAPACITY: Final = 65_536
"""So many rows wait at most; then ``push`` waits."""

_MERGED_ROWS: Final = 8_192
_BODY_BYTES: Final = 8 << 20  # the server takes 16 MiB, unless it was started with another limit
_PASSING: Final = (DisconnectedError, LimitError, SourceFullError)


@dataclass(frozen=True, slots=True)
class Watermark:
    """A watermark that waits among rows; it counts as one of them.

    Attributes:
        micros: since 1970 UTC.
    """

    micros: int


class Producer:
    """Sends the rows of one source, from a thread of its own.

    Args:
        http: the requests of the client.
        name: of the source.
        schema: its columns.

    Attributes:
        error: why the server has refused rows; nothing is sent after them.
    """

    def __init__(self, http: Http, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema
        self.error: Error | None = None
        self._http = http
        self._lock = threading.Lock()
        self._units: deque[Row | pa.RecordBatch | Watermark] = deque()
        self._pushed = self._added = 0
        self._lsn = 0
        self._away: DisconnectedError | None = None
        self._is_stopped = False
        self._work, self._progress = Waiters(), Waiters()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """Number of rows that the server has not confirmed yet."""
        return self._pushed - self._added

    def check(self) -> None:
        """Raise if rows cannot be pushed any more."""
        if self.error is not None:
            raise self.error.again()
        if self._is_stopped:
            raise ClosedError("the client is closed", hint="ms.connect again")

    def add(self, unit: Row | pa.RecordBatch | Watermark, rows: int) -> None:
        """Take a row, a batch or a watermark; waits while there is no room."""
        if self.pending >= CAPACITY:
            self._progress.wait(self._may_add)
        with self._lock:
            self.check()
            self._units.append(unit)
            self._pushed += rows
            if self._thread is None:
                self._thread = thread(f"push-{self.name}", self._run, self._crashed)
                self._thread.start()
        self._work.wake()

    def _may_add(self) -> bool:
        return self.pending < CAPACITY or self.error is not None or self._is_stopped

    def flush(self) -> int:
        """Wait until the server has all that was pushed on its disk; returns an LSN after it.

        Raises:
            DisconnectedError: it cannot be reached. What was pushed is kept, and sent when it can.
            Error: it has refused some rows, which are not added, nor is what was pushed after them.
        """
        pushed, self._away = self._pushed, None
        self._progress.wait(lambda: self._added >= pushed or self._is_stuck())
        if self._added < pushed:
            self.check()
            if self._away is not None:
                raise self._away.again()
        return self._lsn

    def _is_stuck(self) -> bool:
        return self.error is not None or self._away is not None or self._is_stopped

    def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True
        self._work.wake()
        self._progress.wake()

    # ---- the thread

    def _run(self) -> None:
        while self._work.wait(self._has_work) and not self._is_stopped:
            rows, batch = self._next()
            try:
                if isinstance(batch, Watermark):
                    self._send(partial(self._http.watermark, self.name, batch.micros))
                else:
                    for body in _bodies(batch):
                        # Each request has one key, however often it is sent.
                        self._send(partial(self._http.insert, self.name, body, uuid4().hex))
            except Error as error:
                if not self._is_stopped:
                    self.error = error
                self._progress.wake()
                return
            self._added += rows
            self._progress.wake()

    def _has_work(self) -> bool:
        return bool(self._units) or self._is_stopped

    def _next(self) -> tuple[int, pa.RecordBatch | Watermark]:
        """What one request adds: a batch that was pushed as one, or rows that have gathered."""
        units = self._units
        first = units.popleft()
        if isinstance(first, Watermark):
            return 1, first
        if not isinstance(first, tuple):
            return first.num_rows, first
        rows: list[Row] = [first]
        while units and isinstance(units[0], tuple) and len(rows) < _MERGED_ROWS:
            rows.append(units.popleft())  # type: ignore[arg-type]
        return len(rows), self.schema.rows_to_arrow(rows)

    def _send(self, request: Callable[[], Any]) -> None:
        """Send a request until it is answered."""
        for delay in delays():
            try:
                self._lsn = request()["lsn"]
            except _PASSING as error:
                if isinstance(error, TooLargeError):
                    raise
                if isinstance(error, DisconnectedError):
                    self._away = error
                    self._progress.wake()
                if self._is_stopped:
                    raise
                self._work.wait(lambda: self._is_stopped, delay)
            else:
                self._away = None
                return

    def _crashed(self, error: Exception) -> None:
        self.error = DisconnectedError(
            f"the thread that pushes ended: {type(error).__name__}: {error}",
            hint="db.source(name) again; this is a bug in Millstream, please report it",
        )
        self._progress.wake()


def _bodies(batch: pa.RecordBatch) -> Iterator[bytes]:
    """A batch as an Arrow IPC stream, or as several when it is larger than servers take."""
    body = ipc_stream(batch.schema, [batch])
    if len(body) <= _BODY_BYTES or batch.num_rows < 2:
        yield body
        return
    half = batch.num_rows // 2
    yield from _bodies(batch.slice(0, half))
    yield from _bodies(batch.slice(half))


class RemoteSource:
    """A producer's handle on a source of a server. Create one with ``client.source(name)``.

    Rows are validated in the calling thread, and sent in the background; ``flush`` waits until they
    are on the server's disk. Rows are added once and in order, whatever happens to the server. If
    the server refuses rows, ``push`` and ``flush`` raise its error from then on.

    Args:
        producer: sends the rows.
        record: a dataclass that rows may be instances of.
    """

    def __init__(self, producer: Producer, record: type | None = None) -> None:
        self._producer = producer
        self._shape = RowShape(producer.schema, record)
        self._is_closed = False

    def push(self, row: Any) -> None:  # noqa: ANN401 - any shape of a row
        """Push a row: a tuple, a dict, a named tuple or a dataclass. Wait while there is no room.

        Raises:
            RowError: a value does not fit its column. The error names the column.
        """
        checked = self._shape.row(row)
        self._check()
        self._producer.add(checked, 1)

    def try_push(self, row: Any) -> bool:  # noqa: ANN401 - any shape of a row
        """Push a row if there is room. Return False, and store nothing, if there is none."""
        checked = self._shape.row(row)
        self._check()
        if not self.has_capacity():
            return False
        self._producer.add(checked, 1)
        return True

    def push_batch(self, rows: Iterable[Any]) -> int:
        """Push many rows as one commit, and return their number.

        More than 8 MiB become several commits.

        Raises:
            RowError: a value does not fit its column. The error names the row and the column.
        """
        checked = self._shape.rows(rows)
        if checked:
            self._check()
            self._producer.add(self.schema.rows_to_arrow(checked), len(checked))
        return len(checked)

    def push_arrow(self, data: pa.RecordBatch | ArrowStream) -> int:
        """Push Arrow data (a record batch, a table, a frame), and return the number of rows.

        Raises:
            RowError: Python cannot hold a value. The error names the row and the column.
            SchemaMismatchError: the columns do not match, or a type cannot be cast without loss.
        """
        batches = as_batches(data, self.schema)
        self._check()
        for batch in batches:
            self._producer.add(batch.arrow, len(batch))
        return sum(map(len, batches))

    def watermark(self, timestamp: datetime | int) -> None:
        """Set the watermark: rows that are pushed later and are older than it are late.

        The watermark is sent after the rows that were pushed before. A tenant's is refused.

        Args:
            timestamp: a datetime, or microseconds since 1970 UTC. A watermark that is older than
                the current one has no effect.
        """
        micros = from_datetime(timestamp) if isinstance(timestamp, datetime) else timestamp
        if type(micros) is not int or not -(2**63) < micros < 2**63:
            raise InvalidOptionError(
                f"{timestamp!r} is not a watermark",
                hint="give a datetime, or microseconds since 1970 UTC as an int",
            )
        self._check()
        self._producer.add(Watermark(micros), 1)

    def flush(self) -> int:
        """Wait until all pushed rows are on the server's disk.

        Returns:
            An LSN that includes them.

        Raises:
            DisconnectedError: the server cannot be reached. Pushed rows are kept, and sent when it
                can be reached again.
        """
        return self._producer.flush()

    # ---- what it is

    @property
    def name(self) -> str:
        """The name of the source."""
        return self._producer.name

    @property
    def schema(self) -> Schema:
        """The columns at the time when the handle was created."""
        return self._producer.schema

    @property
    def pending(self) -> int:
        """Number of rows that the server has not confirmed yet."""
        return self._producer.pending

    def has_capacity(self) -> bool:
        """Return whether there is room for a push."""
        return self._producer.pending < CAPACITY

    def close(self) -> None:
        """Flush, and close the handle. A second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        self._is_closed = True

    def __repr__(self) -> str:
        return f"<RemoteSource {self.name}: {one_line(self.schema.ddl)}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def _check(self) -> None:
        if self._is_closed:
            raise ClosedError(
                f"this handle of {self.name} is closed", hint="get another one: db.source(name)"
            )
