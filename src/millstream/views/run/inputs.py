"""The input of a view's feed: which logs it reads, which rows are late, and the rows in between.

Whether a row is late is decided by its place in the log, once, before Spark sees it: it is late
when every window that it belongs to has closed before its batch, that is, when the watermark before
the batch, less the allowed lateness, has reached the end of its last window. Rows of one batch are
never late against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.batch import ChangeBatch
from millstream.model.clock import combine, from_datetime
from millstream.sql.inputs import CLOCK
from millstream.views.plan.plan import Window
from millstream.views.run.checkpoint import Offset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from millstream.log import Log
    from millstream.model.schema import Schema
    from millstream.views.run.columns import Part

Keep = Callable[[ChangeBatch], ChangeBatch]
"""Takes a batch of a log, gives some of its rows; LSNs and watermark stay those of the batch."""

TrackerState: TypeAlias = "tuple[Any, ...]"
"""The watermark of each log, how many rows came too late, and the last tick of the clock."""

_OWN_MOMENT: Final = Window("session", "", size=1, slide=1)
"""Each row a window of its own: it is late when the watermark has passed it."""

_RUN_ROWS: Final = 1 << 16
_RUN_BATCHES: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class FeedInputs:
    """What a feed reads.

    Attributes:
        topics: the logs.
        schemas: their columns.
        window: the view's window, by which rows are late, if it closes; else None.
        event_times: the place of the event-time column in each log, or None.
        lateness: for how long after its end a window still takes rows, in microseconds.
        start: the first LSN that is read.
        keep: filters each batch before anything else sees it; None: all rows are read.
        waits: what results wait for before they leave the dataflow: that the watermark passes the
            ends of their windows, or that the clock ticks; None: for nothing.
        timed: the logs whose rows may come too late: those of windows that close, or those whose
            rows meet others up to a certain time; such a row is late when it is older than the
            watermark. Filled when the query has been planned.
    """

    topics: tuple[str, ...]
    schemas: tuple[Schema, ...]
    window: Window | None = None
    event_times: tuple[int | None, ...] = ()
    lateness: int = 0
    start: int = 1
    keep: Keep | None = None
    waits: Literal["watermark", "clock"] | None = None
    timed: set[int] = field(default_factory=set)

    def reads_all(self, log: int) -> bool:
        """Whether columns of a log are looked at before Spark has them."""
        timed = log < len(self.event_times) and self.event_times[log] is not None
        return timed or self.keep is not None

    @property
    def initial_lsn(self) -> int:
        """The LSN before the first row, the one that says that nothing was read before."""
        return self.start - 2

    @property
    def form(self) -> object:
        """By what a batch becomes a frame; equal for feeds that make the same of a batch."""
        rules = (self.window, self.event_times, self.lateness, self.waits)
        return (self.topics, self.keep, *rules, *sorted(self.timed))


class WatermarkTracker:
    """The watermarks of a feed's logs at one place, as it moves on; splits late rows off. Pure.

    Args:
        window: the view's window; None when no row can be late.
        columns: the place of the event-time column in each log, or None: such a log has no say
            in the watermark.
        lateness: for how long after its end a window still takes rows, in microseconds.
        watermarks: of each log, at the beginning.
        late: how many rows came too late before.
        never_late: the logs of which no row comes too late.
        waits: what results wait for, see ``FeedInputs``.
        clock: the place of the clock's log, if results wait for it.

    Attributes:
        watermarks: of each log, where it is.
        late: how many rows came too late up to there.
    """

    def __init__(
        self,
        window: Window | None,
        columns: Sequence[int | None],
        lateness: int,
        watermarks: Sequence[int | None],
        late: int = 0,
        *,
        never_late: Collection[int] = (),
        waits: Literal["watermark", "clock"] | None = None,
        clock: int = -1,
    ) -> None:
        self._window = window
        self._waits = waits
        self._clock = clock
        self._tick: int | None = None
        self._never_late = never_late
        self._columns = columns
        self._timed = [log for log, column in enumerate(columns) if column is not None]
        self._lateness = lateness
        self.watermarks = list(watermarks)
        self.late = late

    @property
    def state(self) -> TrackerState:
        """All of it that a batch changes."""
        return *self.watermarks, self.late, self._tick

    @state.setter
    def state(self, state: TrackerState) -> None:
        *self.watermarks, self.late, self._tick = state

    @property
    def watermark(self) -> int | None:
        """The watermark of all logs together."""
        timed = self._timed
        if len(timed) == 1:  # asked for with every commit
            return self.watermarks[timed[0]]
        return combine([self.watermarks[log] for log in timed])

    @property
    def passed(self) -> int | None:
        """The moment for which results wait that has passed; None: they wait for none."""
        if self._waits is None:
            return None
        return self._tick if self._waits == "clock" else self.watermark

    def advance(self, log: int, watermark: int) -> None:
        """Take in the watermark that a batch of a log brings."""
        known = self.watermarks[log]
        if known is None or watermark > known:
            self.watermarks[log] = watermark

    def split(
        self, log: int, batch: ChangeBatch
    ) -> tuple[ChangeBatch | None, ChangeBatch | None, int | None]:
        """Advance past a batch; the rows in time, the late ones, and the watermark before it."""
        before = self.watermark
        if log == self._clock:  # of which nobody reads a row
            self._tick = from_datetime(batch.held_rows[-1][0]) if len(batch) else self._tick
            return None, None, before
        if batch.watermark is not None:
            self.advance(log, batch.watermark)
        column = None if log in self._never_late else self._columns[log]
        if self._window is None or column is None or before is None:
            return batch, None, before
        border, size = before - self._lateness, len(batch)
        if size <= 1:
            moment = _only_moment(batch, column) if size else None
            # Every window ends after the moments in it.
            late = moment is not None and moment < border and self._end(moment) <= border
            self.late += late
            return (None, batch, before) if late else (batch, None, before)
        mask = self._late(batch.arrow.column(column), border)
        count = mask.true_count
        self.late += count
        if not count:
            return batch, None, before
        if count == size:
            return None, batch, before
        return batch.keep_mask(pc.invert(mask)), batch.keep_mask(mask), before

    def _end(self, moment: int) -> int:
        """The end of the last window that a moment is in."""
        window = self._window
        if window is None:
            raise AssertionError("asked only with a window")
        if window.kind == "session":
            return moment + window.size
        step = window.size if window.kind == "cumulate" else window.slide
        return moment - (moment - window.offset) % step + window.size

    def _late(self, times: pa.Array, border: int) -> pa.BooleanArray:
        """Which moments of a column have their last window end at the border or before.

        The end grows with the moment, so the question is only from which moment on it is later.
        """
        first = self._first_in_time(border)
        late = pc.less(times.cast(pa.int64()), first)
        return pc.fill_null(late, fill_value=False)

    def _first_in_time(self, border: int) -> int:
        """The first moment whose last window ends after the border."""
        window = self._window
        if window is None:
            raise AssertionError("asked only with a window")
        if window.kind == "session":
            return border - window.size + 1
        step = window.size if window.kind == "cumulate" else window.slide
        # The last window starts at a multiple of the step; the first start beyond border - size.
        after = border - window.size - window.offset
        return (after // step + 1) * step + window.offset


def _only_moment(batch: ChangeBatch, column: int) -> int | None:
    """The moment of the only row of a batch, in microseconds."""
    if batch.is_arrow:
        moment: int | None = batch.arrow.column(column)[0].value
        return moment
    held = batch.held_rows[0][column]
    return None if held is None else from_datetime(held)


class FeedLogs:
    """Reads what a feed has between two places: batches of its logs, merged in LSN order.

    Args:
        inputs: what the feed reads.
        log: the durable log.
    """

    def __init__(self, inputs: FeedInputs, log: Log) -> None:
        self._inputs = inputs
        self._log = log

    @property
    def initial_offset(self) -> Offset:
        """The place before the first row that the view reads."""
        return Offset(self._inputs.initial_lsn, (None,) * len(self._inputs.topics))

    def read(
        self, first: int, last: int, only: Sequence[int] | None = None
    ) -> Iterator[tuple[int, ChangeBatch]]:
        """The batches between two LSNs, both included, each with the number of its log.

        Args:
            first: the first LSN.
            last: the last one.
            only: the numbers of the logs that are read; None: all of them.
        """
        places = {
            topic: place
            for place, topic in enumerate(self._inputs.topics)
            if only is None or place in only
        }
        keep = self._inputs.keep
        with self._log.read_kept(*places, start=first)[0] as reader:
            for batch in reader:
                if batch.first_lsn > last:
                    return
                if batch.gap is not None:  # damage, which the user has chosen to skip
                    continue
                low, high = max(first - batch.first_lsn, 0), last - batch.first_lsn + 1
                if batch.lsn >= first:
                    inside = low == 0 and batch.lsn <= last
                    wanted = batch if inside else batch.slice(low, high)
                    yield places[batch.topic], wanted if keep is None else keep(wanted)

    def tracker_at(self, place: Offset) -> WatermarkTracker:
        """The watermarks as they were at a place."""
        inputs = self._inputs
        window, times = inputs.window, inputs.event_times
        never_late = set(range(len(times))) - inputs.timed
        if window is None:
            window = _OWN_MOMENT if inputs.timed else None
            times = tuple(None if log in never_late else each for log, each in enumerate(times))
        marks, late = place.watermarks, place.late
        clock = inputs.topics.index(CLOCK) if inputs.waits == "clock" else -1
        return WatermarkTracker(
            window,
            times,
            inputs.lateness,
            marks,
            late,
            never_late=never_late,
            waits=inputs.waits,
            clock=clock,
        )


def in_time(
    tracker: WatermarkTracker, batches: Iterable[tuple[int, ChangeBatch]], late: list[ChangeBatch]
) -> Iterator[tuple[int, Part]]:
    """Batches of some logs and the watermark before each; late rows go to ``late``."""
    for log, batch in batches:
        kept, missed, before = tracker.split(log, batch)
        if missed is not None:
            late.append(missed)
        if kept is not None and len(kept):
            yield log, (kept, before)


def runs(batches: Iterator[tuple[int, Part]]) -> Iterator[tuple[int, list[Part]]]:
    """Group batches into runs of a handy size: small ones of one log together, large ones sliced.

    Gives each run with the number of its log.
    """
    run: list[Part] = []
    rows = of = 0
    for log, (batch, before) in batches:
        fits = rows + len(batch) <= _RUN_ROWS and len(run) < _RUN_BATCHES
        if run and not (fits and log == of and batch.schema is run[0][0].schema):
            yield of, run
            run, rows = [], 0
        of = log
        if len(batch) <= _RUN_ROWS:
            run.append((batch, before))
            rows += len(batch)
            continue
        for start in range(0, len(batch), _RUN_ROWS):
            yield log, [(batch.slice(start, min(len(batch), start + _RUN_ROWS)), before)]
    if run:
        yield of, run
