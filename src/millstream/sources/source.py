"""``Source``, the handle that producers push through, and ``Writer``, which pushes in batches."""

from __future__ import annotations

import contextlib
import weakref
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from millstream.errors import ClosedError, InvalidOptionError
from millstream.formats.batches import as_batches
from millstream.formats.rows import RowShape
from millstream.model.batch import ChangeBatch
from millstream.model.clock import from_datetime, to_datetime
from millstream.model.display import one_line, public_names
from millstream.sources.fast_push import explain, make_push
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.formats.batches import ArrowStream
    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row
    from millstream.sources.inlet import Inlet


class Source:
    """A producer's handle on a source, through which it pushes rows: ``db.source(name)``.

    Several threads may use one handle; pushing takes no lock. Each handle counts as a producer:
    ``clone()`` opens another one, so that each producer can close its own.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
    ...     with db.source("trades") as trades:
    ...         trades.push(("AAPL", 187.2))
    ...         trades.push({"symbol": "MSFT", "price": 402.1})
    ...         lsn = trades.flush()
    ...     db.query("SELECT symbol FROM trades").fetchall()
    [('AAPL',), ('MSFT',)]

    Attributes:
        push: takes one row: a tuple, a dict, a named tuple, or a dataclass. The row is validated
            in the calling thread; a bad value raises ``RowError``, and nothing is stored. With the
            policy ``block``, the call waits while the buffer is full; it never waits for a
            subscriber. ``help(source.push)`` describes the columns and options of this source.
    """

    __slots__ = (
        "__weakref__",
        "_check",
        "_check_watermark",
        "_flush",
        "_inlet",
        "_is_closed",
        "_record",
        "_set_limit",
        "_shape",
        "_watcher",
        "push",
    )

    push: Callable[[Any], None]
    _set_limit: Callable[[int], None]

    def __init__(
        self,
        inlet: Inlet,
        flush: Callable[[], int],
        record: type | None = None,
        *,
        check: Callable[[Sequence[Row]], None] | None = None,
        check_watermark: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._check_watermark = check_watermark
        self._inlet = inlet
        self._flush = flush
        self._record = record
        self._is_closed = False
        # The inlet must not keep a forgotten handle alive.
        myself = weakref.ref(self)

        def watcher() -> None:
            source = myself()
            if source is not None:
                source._write_push()  # noqa: SLF001 - its own

        self._watcher = watcher
        inlet.watchers.append(watcher)
        self._write_push()

    def _write_push(self) -> None:
        """Make a ``push`` for the columns as they are now; earlier ones then go to ``_enter``."""
        inlet = self._inlet
        self._shape = RowShape(inlet.schema, self._record)
        if inlet.sync or self._check is not None:
            self.push, self._set_limit = self._explained_push(), _no_limit
            return
        if hasattr(self, "_set_limit"):
            self._set_limit(-1)
        self.push, self._set_limit = make_push(
            inlet, self._push_slowly, self._enter, self._shape.converters
        )
        if self._is_closed:
            self._set_limit(-1)

    def _explained_push(self) -> Callable[[Any], None]:
        slowly = self._push_slowly

        def push(row: Any) -> None:  # noqa: ANN401 - any shape of a row
            slowly(row)

        explain(push, self._inlet)
        return push

    # ---- pushing

    def try_push(self, row: Any) -> bool:  # noqa: ANN401 - any shape of a row
        """Push a row if the buffer has room. Return False, and store nothing, if it is full.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE SOURCE s (n BIGINT)")
        ...     db.source("s").try_push((1,))
        True
        """
        checked = self._shape.row(row)
        self._check_open()
        if self._inlet.is_full():
            return False
        self._enter(checked)
        return True

    def push_batch(self, rows: Iterable[Any]) -> int:
        """Push many rows, all or none, as one commit, and return their number.

        The rows of one batch never make each other late.

        Raises:
            RowError: a value does not fit its column. The error names the row and the column.
        """
        shape = self._shape  # an ALTER may replace it meanwhile
        checked = shape.rows(rows)
        if checked:
            self._enter_batches([ChangeBatch(shape.schema, checked, None, None)])
        return len(checked)

    def push_arrow(self, data: pa.RecordBatch | ArrowStream) -> int:
        """Push Arrow data (a record batch, a table, a frame), all rows or none.

        Do not modify the buffers afterwards: they are not copied.

        Returns:
            The number of rows.

        Raises:
            RowError: Python cannot hold a value, such as text that is not UTF-8. The error names
                the row and the column.
            SchemaMismatchError: the columns do not match, or a type cannot be cast without loss.
        """
        schema = self._inlet.schema
        if isinstance(data, pa.RecordBatch):
            batches = [ChangeBatch(schema, None, schema.admit(data), None)]
            if not data.num_rows:
                return 0
        else:
            batches = as_batches(data, schema)
        if batches:
            self._enter_batches(batches)
        return sum(map(len, batches))

    @uninterrupted
    def watermark(self, timestamp: datetime | int) -> None:
        """Set the watermark: rows that are pushed later and are older than it are late.

        Args:
            timestamp: a datetime, or microseconds since 1970 UTC. A watermark that is older than
                the current one has no effect.
        """
        self._check_watermark()
        micros = from_datetime(timestamp) if isinstance(timestamp, datetime) else timestamp
        if type(micros) is not int or not -(2**63) < micros < 2**63:
            raise InvalidOptionError(
                f"{timestamp!r} is not a watermark",
                hint="give a datetime, or microseconds since 1970 UTC as an int",
            )
        self._check_open()
        self._inlet.watermark(micros)

    def flush(self) -> int:
        """Wait until all pushed rows are on disk and handed to subscribers.

        Returns:
            The newest LSN; everything up to it is durable.

        Raises:
            LogFullError: the disk is full. Pushed rows are kept, and written when there is room.
        """
        return self._flush()

    # ---- what it is

    @property
    def name(self) -> str:
        """The name of the source."""
        return self._inlet.name

    @property
    def schema(self) -> Schema:
        """The current columns."""
        return self._inlet.schema

    @property
    def current_watermark(self) -> datetime | None:
        """The event time that has passed; None if no watermark is known yet."""
        micros = self._inlet.event_time.value
        return None if micros is None else to_datetime(micros)

    @property
    def pending(self) -> int:
        """Number of pushes that wait for the dispatcher."""
        return len(self._inlet.items)

    @property
    def dropped(self) -> int:
        """Number of rows dropped by the policy ``drop_oldest``."""
        return self._inlet.dropped

    def has_capacity(self) -> bool:
        """Return whether the buffer has room for a push."""
        return not self._inlet.is_full()

    @property
    def producer_count(self) -> int:
        """Number of open handles of this source."""
        return len(self._inlet.watchers)

    @property
    def is_mpsc(self) -> bool:
        """Whether there are several producers."""
        return self.producer_count > 1

    def __repr__(self) -> str:
        return f"<Source {self.name}: {one_line(self.schema.ddl)}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    # ---- lifecycle

    def clone(self) -> Source:
        """Return another handle on the same source, for another producer."""
        self._check_open()
        return Source(
            self._inlet,
            self._flush,
            self._record,
            check=self._check,
            check_watermark=self._check_watermark,
        )

    def close(self) -> None:
        """Close this handle. The source and its other handles stay open.

        A second call does nothing.
        """
        self._is_closed = True
        self._set_limit(-1)
        with contextlib.suppress(ValueError):
            self._inlet.watchers.remove(self._watcher)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_watcher"):  # not if a signal came while it was made
            with contextlib.suppress(ValueError):
                self._inlet.watchers.remove(self._watcher)

    # ---- off the hot path

    def _check_open(self) -> None:
        if self._inlet.closed is not None:
            raise self._inlet.closed.again()
        if self._is_closed:
            raise ClosedError(
                f"this handle of {self.name} is closed", hint="get another one: db.source(name)"
            )

    def _push_slowly(self, row: Any) -> None:  # noqa: ANN401 - any shape of a row
        self._enter(self._shape.row(row))

    def _enter(self, row: Row) -> None:
        """Take a row that was checked. Inline callbacks are called from here, so it is quick."""
        inlet = self._inlet
        if self._is_closed or inlet.closed is not None:
            self._check_open()
        schema = inlet.schema
        if len(row) < len(schema.columns):  # it was checked before an ALTER
            row += (None,) * (len(schema.columns) - len(row))
        if inlet.sync or self._check is not None:
            self._enter_batches([ChangeBatch(schema, [row], None, None)])
            return
        items, wakeup = inlet.items, inlet.wakeup
        if len(items) >= inlet.capacity or inlet.batch_rows >= inlet.capacity:
            inlet.make_room()
        try:
            items.append(row)
            if wakeup.asleep:
                wakeup.wake()
        except BaseException:  # a signal; what is in the buffer must be seen all the same
            wakeup.wake()
            raise
        for each in inlet.inline:
            each.row(row)

    def _enter_batches(self, batches: list[ChangeBatch]) -> None:
        self._check_open()
        if self._check is not None:
            for batch in batches:
                self._check(batch.held_rows)
        self._inlet.enter(batches)


def _no_limit(_: int) -> None:
    """A push that always looks closer has no limit to set."""


# ---- rows one by one, pushed in batches


class Writer:
    """Gathers rows and pushes them as batches. Create one with ``db.writer(name)``.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
    ...     with db.writer("trades", batch_rows=100) as writer:
    ...         for n in range(250):
    ...             writer.write({"symbol": "AAPL", "price": float(n)})
    ...     len(db.query("SELECT * FROM trades"))
    250
    """

    def __init__(self, source: Source, batch_rows: int = 1024) -> None:
        if type(batch_rows) is not int or batch_rows < 1:
            raise InvalidOptionError(
                f"batch_rows must be an int of at least 1, got {batch_rows!r}",
                hint="Leave it out for 1,024.",
            )
        self._source = source
        self._batch_rows = batch_rows
        self._rows: list[Any] = []

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self._source.schema

    @property
    def pending(self) -> int:
        """Number of rows that were written and not pushed yet."""
        return len(self._rows)

    def write(self, row: Any) -> None:  # noqa: ANN401 - any shape of a row
        """Add a row. It is validated when its batch is pushed."""
        self._rows.append(row)
        if len(self._rows) >= self._batch_rows:
            self.push()

    def insert(self, rows: Any) -> None:  # noqa: ANN401 - any shape of rows
        """Add one row (a dict) or several (a list)."""
        try:
            several = iter([rows] if isinstance(rows, dict) else rows)
        except TypeError as error:
            raise InvalidOptionError(
                f"expected a dict or a list of rows, got {type(rows).__name__}",
                hint="for one row, use write(row)",
            ) from error
        for row in several:
            self.write(row)

    def watermark(self, timestamp: datetime | int) -> None:
        """Push the gathered rows, then set the watermark, as ``Source.watermark`` does."""
        self.push()
        self._source.watermark(timestamp)

    def push(self) -> None:
        """Push the gathered rows. If one of them is invalid, all stay gathered."""
        if self._rows:
            self._source.push_batch(self._rows)
            self._rows = []

    def discard(self) -> list[Any]:
        """Remove the gathered rows, for example because one of them is invalid; return them."""
        rows, self._rows = self._rows, []
        return rows

    def flush(self) -> int:
        """Push the gathered rows, wait until they are on disk, and return the newest LSN."""
        self.push()
        return self._source.flush()

    def close(self) -> None:
        """Push the gathered rows, and close the handle."""
        try:
            self.push()
        finally:
            self._source.close()

    def __repr__(self) -> str:
        return f"<Writer {self._source.name}: {self.pending} of {self._batch_rows} rows pending>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._source.close()
