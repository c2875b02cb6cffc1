"""Opening a log, its background threads, closing it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
import warnings
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    ClosedError,
    Error,
    InvalidOptionError,
    LogCorruptError,
    LogError,
    LogFailedError,
    LogPathError,
)
from millstream.log.files import SegmentFiles
from millstream.log.recovery import LogState, Recovery, recover
from millstream.log.retention import Collector, Holds
from millstream.log.segment import Head, Identity, Seal, SegmentIndex, SegmentRef
from millstream.log.storage import (
    PRIVATE_DIRECTORY,
    DirectoryLock,
    sync_directory,
    translate,
    write_file,
)
from millstream.log.topics import Epochs, Topics
from millstream.log.walk import find_watermarks
from millstream.log.writer import DefinitionWriter, LogWriter
from millstream.model.arguments import check_path, check_seconds
from millstream.model.lsn import FIRST_LSN
from millstream.threads import thread

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.model.clock import Clock

MAX_SEGMENT_BYTES: Final = 1 << 40
LEAST_RETENTION_INTERVAL: Final = 0.001

RETRY: Final = 1.0
"""After how many seconds a full disk is tried again."""

_FULL_DISK_INTERVAL: Final = 0.1
"""Seconds between two rounds of retention on a disk that is full."""

_logger = logging.getLogger("millstream.log")


# ---- opening


def check_options(
    *, segment_bytes: object, sync_interval: object, retention_interval: object
) -> None:
    """Raise unless each option of a log is within its range.

    Raises:
        InvalidOptionError: one is not; the message names it.
    """
    if type(segment_bytes) is not int or not 1 <= segment_bytes <= MAX_SEGMENT_BYTES:
        raise InvalidOptionError(
            f"segment_bytes is {segment_bytes!r}",
            hint=f"a whole number of bytes from 1 to {MAX_SEGMENT_BYTES:,}",
        )
    check_seconds(sync_interval, "sync_interval")
    # Without any pause, rounds of retention would follow each other and occupy a core.
    check_seconds(retention_interval, "retention_interval", least=LEAST_RETENTION_INTERVAL)


def make_directory(path: str | Path) -> Path:
    """The absolute path of a directory, which is made, durably, when it is not there.

    Only its owner may use one that is made; the rights of one that is there are left as they are.
    """
    directory = check_path(path).absolute()
    try:
        made = [parent for parent in (directory, *directory.parents) if not parent.exists()]
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        for new in made:
            sync_directory(new.parent)
    except (FileExistsError, NotADirectoryError) as error:
        raise LogPathError(
            f"{directory} is not a directory", hint="give the path of a directory, or of none yet"
        ) from error
    except OSError as error:
        raise translate(error, directory, "make") from error
    return directory


class OpenLog:
    """The parts of an open log. It does not refer to the ``Log``, so that one can be collected.

    Args:
        directory: where it is, made by ``make_directory``.
        repair: open it although segments are missing or are not the right ones.
        segment_bytes: a new file is begun when the last one has this size.
        sync_interval: for how long, in seconds, async rows may be written but not on the disk.
        retention_interval: seconds between two rounds of retention.
        clock: the time, in microseconds since 1970 UTC.

    Attributes:
        recovery: what opening it found, and what it had to cut.
        writer: writes what was queued.
        definitions: writes what topics there are.
        files: the segments, open for reading.
        holds: what retention has to keep.
        collector: retention.
    """

    def __init__(
        self,
        directory: Path,
        *,
        repair: bool,
        segment_bytes: int,
        sync_interval: float,
        retention_interval: float,
        clock: Clock,
    ) -> None:
        self._path = directory
        self._lock = DirectoryLock(directory)
        try:
            state = _load(directory, clock, repair=repair)
            self.recovery = state.recovery
            self.writer = LogWriter(directory, state, segment_bytes=segment_bytes, clock=clock)
        except OSError as error:
            self._lock.release()
            raise translate(error, directory, "open") from error
        except BaseException:
            self._lock.release()
            raise
        self.definitions = DefinitionWriter(self.writer)
        self.files = SegmentFiles(directory)
        self._report_recovery()
        index = self.writer.segments.written.index
        if index.watermarks is None:  # an earlier release wrote the last segment
            index.watermarks = find_watermarks(self.writer.segments, self.files)
        self.holds = Holds()
        self.collector = Collector(
            self.writer, self.definitions, self.files, self.holds, clock=clock
        )
        self._threads = BackgroundThreads(
            self.writer,
            self.collector,
            sync_interval=sync_interval,
            retention_interval=retention_interval,
        )

    def _report_recovery(self) -> None:
        """Log what opening had to cut or found damaged, and note the damage for its readers."""
        recovery = self.recovery
        if recovery.cut_bytes or recovery.damaged or recovery.lost:
            _logger.warning("%s: %s", self._path, recovery)
        topics = self.writer.segments.written.topics
        for damage in recovery.damaged:
            error = LogCorruptError(
                f"{self._path / damage.segment} is damaged at byte {damage.start}",
                segment=damage.segment,
                offset=damage.start,
                next_lsn=None,
                hint="read it to see from which LSN on it can be",
            )
            self.files.note_damage((t for t in topics if damage.topic in {None, t.name}), error)

    def close(self) -> None:
        """Write and sync what was appended, and release the lock. Interrupted, call it again."""
        if not self.writer.is_ours:
            return  # in a forked child: the log is the parent's, which may have gone on writing
        self.writer.queue.close()
        self._threads.stop()
        try:
            with self.collector.at_work:
                self.writer.finish()
        finally:
            self._lock.release()

    def close_forgotten(self) -> None:
        """Close a log whose ``Log`` was collected, with a warning."""
        if not self.writer.is_ours:
            return
        warnings.warn(f"the log {self._path} was not closed", ResourceWarning, stacklevel=2)
        if self._threads.is_one():  # collected by one of its own threads, which cannot join itself
            threading.Thread(target=self.close).start()
        else:
            self.close()


def _load(directory: Path, clock: Clock, *, repair: bool) -> LogState:
    """What the directory holds, recovered; an empty log when it holds none."""
    state = recover(directory, repair=repair)
    if state is not None:
        return state
    ref, index = SegmentRef(1, FIRST_LSN), SegmentIndex(FIRST_LSN, {})
    identity = Identity.new(uuid.uuid4(), ref, 0)
    head = Head(identity, clock(), 0, Epochs(), Topics(), {})
    buffers = head.encode()
    write_file(directory / ref.name, buffers)
    seal = Seal.of(index, sum(map(len, buffers)), head.epochs, head.topics)
    created = head.created_at
    return LogState((ref,), identity.id, identity.database, created, seal, Recovery(clean=True))


# ---- in the background


class BackgroundThreads:
    """Three threads: one writes, one syncs, one runs retention; from construction until ``stop``.

    Args:
        writer: what is drained and synced.
        collector: retention.
        sync_interval: for how long, in seconds, async rows may be written but not on the disk.
        retention_interval: seconds between two rounds of retention.
    """

    def __init__(
        self,
        writer: LogWriter,
        collector: Collector,
        *,
        sync_interval: float,
        retention_interval: float,
    ) -> None:
        self._writer = writer
        self._collector = collector
        self._sync_interval = sync_interval
        self._retention_interval = retention_interval
        self._full_disk_interval = min(retention_interval, _FULL_DISK_INTERVAL)
        self._stopping = threading.Event()
        self._threads = [
            thread(f"log-{name}", body, writer.fail)
            for name, body in (
                ("writer", self._write),
                ("syncer", self._sync),
                ("retention", self._retain),
            )
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Wait for the threads to end, once the queue is closed."""
        self._stopping.set()
        self._writer.dirty.set()
        self._writer.short.set()
        for each in self._threads:
            if each is not threading.current_thread():
                each.join()

    def is_one(self) -> bool:
        """Whether the caller runs in one of the threads."""
        return threading.current_thread() in self._threads

    def _write(self) -> None:
        """Drain the queue whenever async rows wait."""
        writer, retry_at = self._writer, 0.0
        while writer.queue.wait(retry_at):
            try:
                writer.drain()
            except LogFailedError:
                return  # every later call raises it
            except LogError:
                retry_at = time.monotonic() + RETRY  # appends and flushes raise it meanwhile
                continue
            writer.dirty.set()
            writer.segments.refill_reserve()

    def _sync(self) -> None:
        """Bring async rows to the disk, soon after they were written."""
        while not self._stopping.is_set():
            self._writer.dirty.wait()
            self._stopping.wait(self._sync_interval)
            self._writer.dirty.clear()
            try:
                self._writer.sync_written()
            except Error as error:
                # Kept by the writer: the next append or flush raises it.
                _logger.warning("cannot sync: %s", error.message)

    def _retain(self) -> None:
        """A round of retention now and then, and when the disk is full."""
        short = self._writer.short
        while not self._stopping.is_set():
            if short.wait(self._retention_interval) and self._stopping.wait(
                self._full_disk_interval
            ):
                return
            short.clear()
            try:
                self._collector.retain()
            except ClosedError:
                return
            except Error as error:
                _logger.warning("retention failed, and is tried again: %s", error.message)
            except Exception:
                # Nothing is lost by it but space; the next round tries again.
                _logger.exception("retention failed")
