"""``Log``: an open directory; what the rest of Millstream uses of this package."""

from __future__ import annotations

import weakref
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Self

from millstream.errors import Error, InvalidOptionError, LogCorruptError, TopicExistsError
from millstream.log.appending import Appender, Transaction, WalMode, is_sync
from millstream.log.lifecycle import OpenLog, check_options, make_directory
from millstream.log.reader import Reader, find_damage, not_kept
from millstream.log.retention import Hold
from millstream.log.topics import Retention, Topic
from millstream.log.walk import find_time, verify
from millstream.model.clock import Clock, from_datetime, system_clock
from millstream.model.lsn import FIRST_LSN, ResumeToken
from millstream.model.names import check_name
from millstream.model.schema import Column
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    from millstream.formats.batches import Rows
    from millstream.log.recovery import Recovery
    from millstream.log.retention import Retained
    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Gap
    from millstream.model.schema import Schema

Start = int | Literal["earliest", "now"]


class Log:
    """A durable log of weighted rows: one order, many topics, one directory, one process.

    The whole interface of the package is here, so it has many methods; each is a few lines over
    the part that does the work: ``appending``, ``reader``, ``walk``, ``retention``, ``lifecycle``.

    >>> import tempfile
    >>> from millstream import Log, Schema
    >>> directory = tempfile.TemporaryDirectory()
    >>> with Log(directory.name) as log:
    ...     _ = log.create_topic("trades", Schema.of(symbol="VARCHAR", price="DOUBLE"))
    ...     lsn = log.append("trades", [("AAPL", 187.2), ("MSFT", 402.1)], wal_mode="sync")
    ...     [batch.rows for batch in log.read("trades")]
    [[('AAPL', 187.2), ('MSFT', 402.1)]]
    >>> directory.cleanup()

    Args:
        path: the directory; made when it is not there.
        wal_mode: ``"async"``: appends return at once, and rows reach the disk within milliseconds;
            ``"sync"``: appends return when the rows are on the disk. Each append may say otherwise.
        segment_bytes: a new file is begun when the last one has this size.
        sync_interval: for how long, in seconds, async rows may be written but not on the disk.
        retention_interval: seconds between two rounds of retention.
        repair: open it although segments are missing or are not the right ones: those are set
            aside, and what was in them is reported to its readers as damage.
        clock: the time, in microseconds since 1970 UTC.

    Attributes:
        path: the directory.
        recovery: what opening it found, and what it had to cut.
        clock: the time, in microseconds since 1970 UTC.
        appender: what appends, in the steps that the dispatcher needs.

    Raises:
        InvalidOptionError: an option is not within its range.
        LogLockedError: another process, or another handle, has it open.
        LogPathError: the path is no directory.
        LogReadOnlyError: the directory cannot be written to.
        LogVersionError: a newer Millstream wrote it.
        LogFilesError: segments are missing, or are not the right ones.
        LogCorruptError: the definition of a topic is damaged, and so is the copy of it.
    """

    @uninterrupted
    def __init__(
        self,
        path: str | Path,
        *,
        wal_mode: WalMode = "async",
        segment_bytes: int = 64 << 20,
        sync_interval: float = 0.01,
        retention_interval: float = 60.0,
        repair: bool = False,
        clock: Clock = system_clock,
    ) -> None:
        check_options(
            segment_bytes=segment_bytes,
            sync_interval=sync_interval,
            retention_interval=retention_interval,
        )
        self.path: Path = make_directory(path)
        self.clock = clock
        sync = is_sync(wal_mode)
        self._opened = OpenLog(
            self.path,
            repair=repair,
            segment_bytes=segment_bytes,
            sync_interval=sync_interval,
            retention_interval=retention_interval,
            clock=clock,
        )
        self.recovery: Recovery = self._opened.recovery
        self._writer = self._opened.writer
        self._segments = self._writer.segments
        self._definitions = self._opened.definitions
        self._files = self._opened.files
        self.appender: Appender = Appender(self._writer, sync=sync)
        # Refers to the parts only, so that a log that was forgotten is found and closed.
        self._finalizer = weakref.finalize(self, self._opened.close_forgotten)

    # ---- topics

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, sorted."""
        return tuple(sorted(topic.name for topic in self._segments.written.topics))

    def topic(self, name: str) -> Topic:
        """A topic: its schema, its retention, the first LSN that is kept.

        Raises:
            TopicNotFoundError: there is none of that name.
        """
        return self._segments.written.topics[name]

    @uninterrupted
    def create_topic(
        self, name: str, schema: Schema, *, retention: Retention | None = None
    ) -> Topic:
        """Make a topic; it is on the disk when this returns.

        Raises:
            InvalidNameError: the name has characters that names may not have.
            TopicExistsError: there is one of that name.
        """
        check_name(name, "topic")
        with self._definitions.lock:
            topics = self._segments.written.topics
            if name in topics:
                raise TopicExistsError(
                    f"there is a topic {name!r} already", hint="drop it first, or use another name"
                )
            self._definitions.define(
                Topic(topics.next_id, name, (schema,), retention=retention or Retention())
            )
        return self.topic(name)

    @uninterrupted
    def add_column(self, topic: str, name: str, type: str) -> Topic:  # noqa: A002 - SQL's word
        """Add a nullable column at the end; rows from before have NULL in it.

        Raises:
            SchemaError: the column is NOT NULL, or there is one of that name.
        """
        with self._definitions.lock:
            old = self.topic(topic)
            schema = old.schema.with_column(Column.parse(name, type))
            self._definitions.define(replace(old, schemas=(*old.schemas, schema)))
        return self.topic(topic)

    @uninterrupted
    def set_retention(self, topic: str, retention: Retention) -> Topic:
        """Change how much of a topic is kept, from the next round of retention on."""
        with self._definitions.lock:
            self._definitions.define(
                replace(self.topic(topic), retention=retention), makes_room=True
            )
        return self.topic(topic)

    @uninterrupted
    def drop_topic(self, topic: str) -> None:
        """Drop a topic and its rows, on a full disk as well; one of the same name may be made anew.

        Its space comes back with the next round of retention: on a full disk, that is at once.
        """
        with self._definitions.lock:
            self._definitions.define(replace(self.topic(topic), dropped=True), makes_room=True)

    # ---- appending

    def append(
        self,
        topic: str,
        rows: Rows,
        *,
        watermark: int | datetime | None = None,
        wal_mode: WalMode | None = None,
    ) -> int:
        """Append rows as one commit; returns the LSN of the last one.

        Rows are tuples; or anything that Arrow can read: a record batch or table, a pandas or
        polars frame; or a ChangeBatch with weights. Without rows, a ``watermark`` stands by itself
        and takes one LSN.

        Raises:
            RowError: a value that does not fit its column; nothing was taken.
            SchemaMismatchError: columns that do not fit; nothing was taken.
            LogFullError: the disk is full; nothing of these rows is in the log, nor will be.
            LogFailedError: the disk failed; whether these rows are kept shows when it is reopened.
        """
        parts = self.appender.prepare(topic, rows, watermark=watermark)
        return self.appender.commit(parts, wal_mode=wal_mode)

    def transaction(self, *, wal_mode: WalMode | None = None) -> Transaction:
        """Append to several topics as one commit, which is there whole or not at all.

        >>> import tempfile
        >>> from millstream import Log, Schema
        >>> directory = tempfile.TemporaryDirectory()
        >>> with Log(directory.name) as log:
        ...     for name in ("debits", "credits"):
        ...         _ = log.create_topic(name, Schema.of(account="BIGINT", cents="BIGINT"))
        ...     with log.transaction(wal_mode="sync") as transaction:
        ...         transaction.append("debits", [(1, 500)])
        ...         transaction.append("credits", [(2, 500)])
        >>> directory.cleanup()
        """
        return Transaction(self, wal_mode)

    def check(self) -> None:
        """Raise if the log is closed, or has failed."""
        self._writer.check()

    @uninterrupted
    def flush(self) -> int:
        """Wait until everything appended so far is on the disk; returns the last LSN that is."""
        return self.appender.flush()

    @uninterrupted
    def sync(self) -> bool:
        """Wait until everything appended so far is on the disk.

        Returns:
            False when rows that no caller waited for could not be written; ``flush`` raises why.
        """
        return self.appender.sync()

    # ---- reading

    @property
    def lsn(self) -> int:
        """The newest LSN that was given to a row; 0 when there is none."""
        return self._writer.queue.next_lsn - 1

    @property
    def written_lsn(self) -> int:
        """Everything up to here can be read, and survives the end of this process."""
        return self._segments.written.lsn

    def await_durable(self, lsn: int) -> None:
        """Wait until everything up to an LSN is on the disk.

        Raises:
            LogError: why it cannot be.
        """
        if self._writer.durable_lsn < lsn:
            self.appender.wait_written(lsn)  # readers may have rows before the queue has
            self._writer.sync_written()

    @property
    def durable_lsn(self) -> int:
        """Everything up to here is on the disk, and survives a loss of power."""
        return self._writer.durable_lsn

    def read(self, *topics: str, start: Start = "earliest") -> Reader:
        """A reader of one topic, of several merged in LSN order, or of all when none is named.

        Args:
            topics: the names.
            start: the first LSN that is wanted; or ``"earliest"``, all that is kept; or ``"now"``,
                what is appended after this call.

        Raises:
            TopicNotFoundError: there is no such topic.
            LsnNotKeptError: retention has dropped that LSN; it says what is the oldest one.
        """
        chosen = self._chosen(topics)
        if start == "earliest":
            return self._reader({topic.id: topic.low_lsn for topic in chosen}, FIRST_LSN)
        first = self.lsn + 1 if start == "now" else _checked_lsn(start)
        for topic in chosen:
            if topic.low_lsn > first:
                raise not_kept(topic, first)
        return self._reader({topic.id: first for topic in chosen}, first)

    def read_kept(
        self, *topics: str, start: int, lost_since: Mapping[str, int] | None = None
    ) -> tuple[Reader, dict[str, Gap]]:
        """A reader of all that is kept from an LSN on, and what retention has taken of it.

        Of each topic that has lost rows there is a gap: it goes before the first batch with a
        higher LSN than its last.

        Args:
            topics: their names; none: all.
            start: the first LSN that is wanted.
            lost_since: of these topics, the rows that were lost are counted from another LSN on.
        """
        first, chosen, since = _checked_lsn(start), self._chosen(topics), lost_since or {}
        lost = {topic.name: self.lost(topic, since.get(topic.name, first)) for topic in chosen}
        reader = self._reader({t.id: max(first, t.low_lsn) for t in chosen}, first)
        return reader, {name: gap for name, gap in lost.items() if gap is not None}

    def lost(self, topic: Topic, first: int) -> Gap | None:
        """What retention has taken of a topic from an LSN on; None: nothing."""
        return self._opened.collector.trims.lost(topic, first)

    def lsn_since(self, time: int | datetime, *topics: str) -> int:
        """The LSN from which on all rows of some topics since a time are, or were.

        Unlike ``lsn_at`` it counts rows that retention has taken, too. Of these only the times of
        segments are known, so that it may be a little too early.
        """
        micros = from_datetime(time) if isinstance(time, datetime) else time
        taken = (self._opened.collector.trims.first_since(t, micros) for t in self._chosen(topics))
        return min(self.lsn_at(micros), *(lsn for lsn in taken if lsn is not None), 2**63)

    def lsn_at(self, time: int | datetime) -> int:
        """The first LSN committed at a time or later: a datetime, or microseconds since 1970 UTC.

        When nothing was committed since, the LSN that the next row will have.
        """
        micros = from_datetime(time) if isinstance(time, datetime) else time
        end = self._writer.queue.next_lsn
        written, waiting = self._writer.unwritten()
        found = find_time(self._segments, self._files, micros)
        for entry in waiting:
            if entry.parts and entry.committed_at >= micros:
                return min(found, entry.first_lsn)
        return found if found <= written else end

    def token(self, lsn: int) -> str:
        """The text from which a reader resumes after an LSN."""
        return str(ResumeToken(self.database, self._segments.written.epochs.current, lsn))

    @property
    def origin(self) -> tuple[UUID, int]:
        """What tokens of this run are made with."""
        return self._writer.origin

    def resume(self, token: str) -> int | None:
        """The LSN after which the bearer of a token goes on; None when that history is gone.

        It is gone when the run that issued the token crashed before the rows reached the disk: the
        bearer has seen rows that the log does not have, and needs a fresh start.

        Raises:
            InvalidTokenError: not a token, or damaged.
            ForeignTokenError: a token of another database.
        """
        found = ResumeToken.parse(token, self.database)
        return found.lsn if self._segments.written.epochs.is_true(found.epoch, found.lsn) else None

    @property
    def database(self) -> UUID:
        """The identity of this database."""
        return self._writer.database

    def verify(self) -> Iterator[LogCorruptError]:
        """Read everything and check every byte; gives each damaged place as an error.

        >>> import tempfile
        >>> from millstream import Log
        >>> directory = tempfile.TemporaryDirectory()
        >>> with Log(directory.name) as log:
        ...     list(log.verify())
        []
        >>> directory.cleanup()
        """
        return verify(self._segments, self._files)

    def damage(self, topic: str) -> LogCorruptError | None:
        """The first damaged place of a topic that was met so far, and not skipped; None for none.

        Opening meets what is damaged where a crash made it look; readers meet the rest.
        """
        return self._files.damage.get(self.topic(topic).id)

    def find_damage(self, topic: str) -> list[Gap]:
        """Read a topic from start to end; returns what is damaged of it, and not skipped."""
        return find_damage(self._reader, self.topic(topic))[1]

    def skip_damage(self, topic: str) -> list[Gap]:
        """Have readers pass over all that is damaged of a topic by now, durably.

        From then on they report each place as a gap, instead of raising LogCorruptError there.

        Returns:
            The gaps.
        """
        with self._definitions.lock:
            old = self.topic(topic)
            ranges, gaps = find_damage(self._reader, old)
            skipped = {*old.skipped, *ranges}
            kept = sorted(each for each in skipped if each[1] >= old.low_lsn)
            self._definitions.define(replace(old, skipped=tuple(kept)))
            self._files.damage.pop(old.id, None)
        return gaps

    def salvage(self, topic: str, start: Start = "earliest") -> Iterator[ChangeBatch]:
        """What can be read of a topic, over every damaged place; ``damage`` gives the first."""
        while True:
            try:
                with self.read(topic, start=start) as reader:
                    yield from reader
                    return
            except LogCorruptError as error:
                if error.next_lsn is None:
                    return
                start = error.next_lsn

    def trim(self, topic: str, lsn: int) -> None:
        """Drop the rows of a topic before an LSN, whatever its retention is."""
        with self._definitions.lock:
            old = self.topic(topic)
            skipped = tuple(each for each in old.skipped if each[1] > lsn)
            low = max(old.low_lsn, lsn)
            # How many rows these were is not known: some may be damaged.
            self._definitions.define(replace(old, low_lsn=low, skipped=skipped, trimmed_rows=None))
            self._files.damage.pop(old.id, None)

    def watermark(self, topic: str) -> int | None:
        """The highest watermark that was written to a topic, whether or not its rows are kept."""
        return (self._segments.written.index.watermarks or {}).get(self.topic(topic).id)

    # ---- retention

    @uninterrupted(undo=Hold.release)
    def hold(self, *topics: str, lsn: int, kept: bool = False) -> Hold:
        """Keep rows from an LSN on, of some topics or of all, until the hold moves or is released.

        A hold is not durable: take it again after opening, before the first round of retention.
        With ``kept`` it is of what is kept by now.

        Raises:
            LsnNotKeptError: retention was faster.
        """
        first = _checked_lsn(lsn)
        with self._definitions.lock:  # no round of retention is between the look and the hold
            chosen = self._chosen(topics)
            for topic in chosen:
                if topic.low_lsn > max(first, FIRST_LSN) and topics and not kept:
                    raise not_kept(topic, first)
            return self._opened.holds.take((topic.id for topic in chosen), first)

    @uninterrupted
    def retain(self) -> Retained:
        """One round of retention now; a thread does the same every ``retention_interval``."""
        self._writer.check()
        return self._opened.collector.retain()

    # ---- closing

    @uninterrupted
    def close(self) -> None:
        """Write and sync what was appended, and release the directory. Closing twice is fine.

        Raises:
            LogFullError: rows that were not acknowledged could not be written; it says how many.
        """
        if self._finalizer.alive:
            try:
                self._opened.close()
            except Error:
                self._finalizer.detach()
                raise
            self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _chosen(self, names: Sequence[str]) -> list[Topic]:
        known = self._segments.written.topics
        return [known[name] for name in names] if names else list(known)

    def _reader(self, floors: dict[int, int], start: int) -> Reader:
        return Reader(self._writer, self._files, floors, start)


def _checked_lsn(lsn: object) -> int:
    if type(lsn) is int and lsn >= 0:
        return lsn
    raise InvalidOptionError(
        f"{lsn!r} is not an LSN", hint='a number, or for start= also "earliest" or "now"'
    )
