"""Appending: rows are checked against their topics, given their LSNs, and queued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from millstream.errors import ClosedError, InvalidOptionError, SchemaMismatchError
from millstream.formats.batches import batches_of_tuples
from millstream.log.queue import FEW_BYTES, QUEUE_BYTES, Part
from millstream.log.topics import Topics
from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from types import TracebackType

    from millstream.formats.batches import Rows
    from millstream.log.log import Log
    from millstream.log.topics import Topic
    from millstream.log.writer import LogWriter
    from millstream.model.schema import Schema

WalMode = Literal["async", "sync"]


class Appender:
    """Puts commits at the end of a log.

    Args:
        writer: writes what was queued.
        sync: whether a commit that does not say so waits for the disk.
    """

    def __init__(self, writer: LogWriter, *, sync: bool) -> None:
        self._writer = writer
        self._queue = writer.queue
        self._segments = writer.segments
        self._sync_default = sync
        # What ``place`` needs of each topic; made anew when the topics change.
        self._targets: tuple[Topics, dict[str, tuple[Topic, Schema, int]]] = (Topics(), {})

    def prepare(
        self, topic: str, rows: Rows, *, watermark: int | datetime | None = None
    ) -> list[Part]:
        """Check rows against their topic; returns what ``commit`` takes: no part for no rows."""
        target = self._segments.written.topics[topic]
        batches = batches_of_tuples(rows, target.schema)
        if watermark is not None:
            batches = batches or [ChangeBatch.from_rows(target.schema, [])]
            batches[-1] = batches[-1].with_watermark(watermark)
        return [
            Part(target, _version(target, batch), batch)
            for batch in batches
            if len(batch) or batch.watermark is not None
        ]

    def commit(self, parts: Sequence[Part], *, wal_mode: WalMode | None = None) -> int:
        """Append what ``prepare`` checked as one commit; returns its last LSN."""
        sync = self._sync_default if wal_mode is None else is_sync(wal_mode)
        return self._append(parts, sync=sync) if parts else self._queue.next_lsn - 1

    def _append(self, parts: Sequence[Part], *, sync: bool) -> int:
        """Put one commit at the end of the log; returns its last LSN. Its batches know theirs.

        With ``sync`` it is on the disk when this returns; without, it will be soon. When this
        raises any LogError but LogFailedError, nothing of it is in the log, nor will be.
        """
        writer, queue = self._writer, self._queue
        writer.check()
        entry = queue.place(parts, waited_for=sync)
        if sync or queue.stalled or queue.nbytes > QUEUE_BYTES:
            writer.see_through(entry, sync=sync)
        else:
            queue.wake()
        return parts[-1].batch.lsn

    def place(
        self, batches: Sequence[tuple[str, ChangeBatch]], *, sync: bool = False
    ) -> Sequence[Part]:
        """Give batches, made for this, their place at the end of the log, as one commit.

        With ``sync`` they are on the disk when this returns. Without, they are not even in the log:
        ``add`` them, once they were handed to readers that should not wait for it. Only for a
        caller that is alone in appending; nothing else may be appended in between.

        Returns what ``add`` takes.

        Raises:
            LogFullError: the disk is full; nothing of these rows is in the log.
            TopicNotFoundError: a topic is not there any more.
        """
        parts = self._parts(batches)
        if sync:
            self._append(parts, sync=True)
            return ()
        queue = self._queue
        if self._writer.failed or queue.closed or queue.stalled or queue.nbytes > QUEUE_BYTES:
            self._make_room()
        lsn, now, origin = queue.next_place()
        for topic, batch in batches:
            batch.put_at(topic, lsn, now, origin)
            lsn = batch.lsn + 1
        return parts

    def _make_room(self) -> None:
        """Have room for a commit, however large.

        Raises:
            LogError: the disk is full, or the log takes nothing more.
        """
        self._writer.check()
        if self._queue.stalled or self._queue.nbytes > QUEUE_BYTES:
            self._writer.drain()
            self._writer.dirty.set()

    def add(self, parts: Sequence[Part]) -> None:
        """Append what was placed; ``write_soon`` or ``write_few`` have it written."""
        self._queue.add(parts, parts[0].batch.committed_at)

    def write_few(self) -> None:
        """Write what was added in this thread if that is little; else wake the one that writes."""
        if not self._writer.drain_few():
            self._queue.wake()

    @property
    def is_long(self) -> bool:
        """Whether more was added and not written than ``write_few`` writes itself."""
        return self._queue.nbytes > FEW_BYTES

    def _parts(self, batches: Sequence[tuple[str, ChangeBatch]]) -> list[Part]:
        topics = self._segments.written.topics
        if topics is not self._targets[0]:
            self._targets = (topics, {t.name: (t, t.schema, t.version) for t in topics})
        targets = self._targets[1]
        parts = []
        for name, batch in batches:
            topic, schema, version = targets.get(name) or (topics[name], None, 0)
            if batch.schema is not schema:
                version = _version(topic, batch)
            parts.append(Part(topic, version, batch))
        return parts

    def write_soon(self) -> None:
        """Wake the thread that writes, if it sleeps: let the rows of ``add`` be written."""
        self._queue.wake()

    @property
    def is_stalled(self) -> bool:
        """Whether rows wait that the disk did not take: it is full, say."""
        return self._queue.stalled

    def wait_written(self, lsn: int) -> None:
        """Wait until everything up to an LSN can be read, which is sooner than on the disk.

        Raises:
            LogFullError: the disk is full.
        """
        while True:
            written = self._segments.written
            if written.lsn >= lsn:
                return
            self._writer.check()
            if self._queue.stalled:
                self._writer.drain()
            self._queue.wake()
            self._segments.wait_beyond(written, 0.05)

    def flush(self) -> int:
        """Wait until everything appended so far is on the disk; returns the last LSN that is.

        Raises:
            LogError: why the disk did not take it, or rows that no caller waited for.
        """
        if not self.sync():
            raise self._writer.late_errors.popleft()
        return self._writer.durable_lsn

    def sync(self) -> bool:
        """Wait until everything appended so far is on the disk.

        Returns:
            False when rows that no caller waited for could not be written; ``flush`` raises why.
        """
        self._writer.check()
        self._writer.group_commit.wait_for(self._queue.sequence)
        return not self._writer.late_errors


class Transaction:
    """Collects rows; they are committed at the end of its ``with`` block, in the order they came.

    When the block raises, nothing is committed.

    Attributes:
        lsn: the last LSN of the transaction, once it is committed.
    """

    def __init__(self, log: Log, wal_mode: WalMode | None) -> None:
        self._log = log
        self._wal_mode = wal_mode
        self._parts: list[Part] = []
        self._open = False
        self._over = False
        self.lsn = 0

    def append(self, topic: str, rows: Rows, *, watermark: int | datetime | None = None) -> None:
        """Add rows of a topic; checked now, committed at the end."""
        if not self._open:
            raise ClosedError(
                "the transaction is over" if self._over else "the transaction has not begun",
                hint="append within its block: with log.transaction() as transaction: ...",
            )
        self._parts += self._log.appender.prepare(topic, rows, watermark=watermark)

    def __enter__(self) -> Self:
        if self._over or self._open:
            raise ClosedError("a transaction is used once", hint="begin another one")
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open, self._over = False, True
        if kind is None:
            self.lsn = self._log.appender.commit(self._parts, wal_mode=self._wal_mode)


def _version(topic: Topic, batch: ChangeBatch) -> int:
    """Which of the topic's schemas a batch has: the newest, or one that it had before."""
    if batch.schema is topic.schema:
        return topic.version
    try:
        return topic.schemas.index(batch.schema)
    except ValueError:
        raise SchemaMismatchError(
            f"a batch with ({batch.schema.ddl}) for topic {topic.name!r} with ({topic.schema.ddl})",
            hint="make the batch with the schema of the topic: log.topic(name).schema",
        ) from None


def is_sync(wal_mode: str) -> bool:
    """Whether appends in a mode wait for the disk.

    Raises:
        InvalidOptionError: there is no such mode.
    """
    if wal_mode not in {"async", "sync"}:
        raise InvalidOptionError(
            f"wal_mode is {wal_mode!r}", hint='"async" (the default) or "sync"'
        )
    return wal_mode == "sync"
