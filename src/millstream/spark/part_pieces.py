"""One piece of a catch-up batch, read once for all parts of a view and split between them.

Each part has a task of Spark that asks for its rows. Whichever of them finds none waiting reads the
next run of the log, splits it while another one reads on, and leaves the others their rows of it.
No thread but theirs is needed, and none waits for a task that Spark has not started: such a part
reads for itself if too much would have to be kept for it. As without parts, runs of a batch come in
any order.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    import pyarrow as pa

    Run = tuple[int, pa.RecordBatch]
    """Some rows, and the last LSN of them."""

_MOST_MAKING: Final = 2
"""So many threads read or split at the same time: reading takes less than half of it."""

_MOST_BYTES: Final = 64 << 20
"""So much is kept for parts that have not taken it; then reading waits for them, and those whose
tasks have not come have to read for themselves."""


class SharedPiece:
    """The rows of a piece, for some parts.

    Args:
        parts: the parts.
        runs: reads the piece.
        split: gives the rows of each part that has some.
    """

    def __init__(
        self,
        parts: Iterable[int],
        runs: Iterator[Run],
        split: Callable[[pa.RecordBatch], dict[int, pa.RecordBatch]],
    ) -> None:
        self._runs = runs
        self._split = split
        self._reading = threading.Lock()
        self._moved = threading.Condition()  # guards all else; not held while rows are made
        self._waiting: dict[int, deque[Run]] = {part: deque() for part in parts}
        self._bytes = dict.fromkeys(self._waiting, 0)
        self._present: set[int] = set()
        self._making = 0  # how many threads read or split
        self._is_over = False
        self._error: Exception | None = None

    def join(self, part: int) -> bool:
        """A task of a part has come; whether it gets its rows here.

        Not when it comes too late, or a second time: Spark has lost the first one.
        """
        with self._moved:
            if part not in self._waiting or part in self._present:
                return False
            self._present.add(part)
            return True

    def rows_of(self, part: int) -> Generator[Run]:
        """The rows of a part that has joined, run by run, each with its last LSN."""
        try:
            while (step := self._next(part)) is not None:
                if step:
                    yield from step
                else:
                    self._read_on()
        finally:
            with self._moved:
                self._waiting.pop(part, None)
                self._moved.notify_all()

    def _next(self, part: int) -> list[Run] | None:
        """What waits for a part; nothing: it is to read on. None: that was all."""
        with self._moved:
            while not (waiting := self._waiting[part]):
                if self._error is not None:
                    raise self._error
                if self._is_over and not self._making:
                    return None
                if not self._is_over and self._making < _MOST_MAKING and not self._must_wait():
                    self._making += 1
                    return []
                self._moved.wait()
            found = list(waiting)
            waiting.clear()
            self._bytes[part] = 0
            self._moved.notify_all()
            return found

    def _must_wait(self) -> bool:
        """Whether parts that are here have to take first what waits for them."""
        if self._kept() <= _MOST_BYTES:
            return False
        for part in self._waiting.keys() - self._present:
            del self._waiting[part]
        return self._kept() > _MOST_BYTES

    def _kept(self) -> int:
        return sum(self._bytes[part] for part in self._waiting)

    def _read_on(self) -> None:
        """Read the next run, and split it."""
        run, rows, error = None, {}, None
        try:
            with self._reading:
                run = next(self._runs, None)
            if run is not None:
                rows = self._split(run[1])
        except Exception as raised:  # noqa: BLE001 - raised in the thread of each part
            error = raised
        with self._moved:
            self._making -= 1
            self._error = self._error or error
            if run is None:
                self._is_over = True
            else:
                for part in rows.keys() & self._waiting.keys():
                    self._waiting[part].append((run[0], rows[part]))
                    self._bytes[part] += rows[part].nbytes
            self._moved.notify_all()


class SharedPieces:
    """The pieces of the batch at hand.

    Args:
        count: how many parts there are.
        split: gives the rows of each part that has some.
    """

    def __init__(
        self, count: int, split: Callable[[pa.RecordBatch], dict[int, pa.RecordBatch]]
    ) -> None:
        self._count = count
        self._split = split
        self._lock = threading.Lock()
        self._pieces: dict[tuple[str, ...], SharedPiece] = {}

    def clear(self) -> None:
        """Forget them: another batch begins."""
        with self._lock:
            self._pieces.clear()

    def join(
        self, part: int, piece: tuple[str, ...], read: Callable[[], Iterator[Run]]
    ) -> SharedPiece:
        """The piece that a part gets its rows from: shared, or, if that is too late, its own.

        Args:
            part: the part, of which a task has come.
            piece: what is read.
            read: reads it.
        """
        with self._lock:
            shared = self._pieces.get(piece)
            if shared is None:
                shared = self._pieces[piece] = SharedPiece(range(self._count), read(), self._split)
        if shared.join(part):
            return shared
        alone = SharedPiece((part,), read(), self._split)
        alone.join(part)
        return alone
