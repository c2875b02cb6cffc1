"""Disks that are full, directories that are read-only, taken or no directories at all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from millstream.errors import (
    Error,
    LogFailedError,
    LogFullError,
    LogLockedError,
    LogPathError,
    LogReadOnlyError,
    RowsLostError,
    RowTooLargeError,
)
from millstream.formats.arrow_message import MessageWriter
from millstream.log import Log, encoding, lifecycle, segment_writer
from millstream.model import Schema
from millstream.testing import wait_until

SCHEMA = Schema.of(n="BIGINT NOT NULL", s="VARCHAR")


def in_child(work):
    """Run some work in a forked child, where limits and users can be changed; its result."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def run():
        try:
            results.put(work())
        except BaseException as error:
            results.put(error)

    process = context.Process(target=run)
    process.start()
    result = results.get()
    process.join()
    if isinstance(result, BaseException):
        raise result
    return result


def numbers(log):
    return [row[0] for batch in log.read("t") for row in batch.rows]


class TestFull:
    """A limit on the size of files: the kernel refuses real writes, in the middle of them too."""

    def limit(self, size):
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    def test_a_sync_append_raises_and_is_not_there_and_room_helps(self, tmp_path):
        def work():
            acknowledged, refused = [], []
            with Log(tmp_path, wal_mode="sync") as log:
                log.create_topic("t", SCHEMA)
                self.limit(20_000)
                for n in range(100):
                    try:
                        log.append("t", [(n, "x" * 300)])
                        acknowledged.append(n)
                    except LogFullError as error:
                        refused.append(n)
                        assert "free some space" in error.hint
                assert len(acknowledged) > 10
                assert len(refused) > 10
                assert numbers(log) == acknowledged
                self.limit(resource.RLIM_INFINITY)
                log.append("t", [(1000, "room again")])
                acknowledged.append(1000)
                assert numbers(log) == acknowledged
            return acknowledged

        acknowledged = in_child(work)
        with Log(tmp_path) as log:
            assert log.recovery.clean
            assert numbers(log) == acknowledged

    def test_async_rows_that_were_taken_are_written_when_there_is_room(self, tmp_path):
        def work():
            taken, refused = [], 0
            with Log(tmp_path) as log:
                log.create_topic("t", SCHEMA)
                self.limit(20_000)
                for n in range(1_000_000):
                    try:
                        log.append("t", [(n, "x" * 300)])
                        taken.append(n)
                    except LogFullError:
                        refused += 1
                    if refused == 10:
                        break
                with pytest.raises(LogFullError):
                    log.flush()
                self.limit(resource.RLIM_INFINITY)
                log.flush()
                assert numbers(log) == taken
            return taken

        taken = in_child(work)
        with Log(tmp_path) as log:
            assert numbers(log) == taken

    def test_room_is_noticed_without_any_call(self, tmp_path, monkeypatch):
        monkeypatch.setattr(lifecycle, "RETRY", 0.01)

        def work():
            with Log(tmp_path, sync_interval=0.001) as log:
                log.create_topic("t", SCHEMA)
                self.limit((tmp_path / "0000000001-00000000000000000001.seg").stat().st_size)
                lsn = log.append("t", [(1, "x")])
                wait_until(lambda: log.appender.is_stalled)
                self.limit(resource.RLIM_INFINITY)
                wait_until(lambda: log.durable_lsn >= lsn)
            return True

        assert in_child(work)

    def test_a_close_that_cannot_write_says_how_many_rows_are_lost(self, tmp_path):
        def work():
            log = Log(tmp_path, sync_interval=1000)
            log.create_topic("t", SCHEMA)
            log.append("t", [(0, "kept")], wal_mode="sync")
            self.limit((tmp_path / "0000000001-00000000000000000001.seg").stat().st_size)
            log.append("t", [(1, "x"), (2, "x")])
            with pytest.raises(LogFullError, match="2 rows"):
                log.close()
            return True

        assert in_child(work)
        with Log(tmp_path) as log:
            assert numbers(log) == [0]

    def test_a_definition_that_cannot_be_written_does_not_hold(self, tmp_path):
        def work():
            with Log(tmp_path) as log:
                log.create_topic("t", SCHEMA)
                self.limit((tmp_path / "0000000001-00000000000000000001.seg").stat().st_size)
                with pytest.raises(LogFullError):
                    log.create_topic("u", SCHEMA)
                assert log.topics == ("t",)
                self.limit(resource.RLIM_INFINITY)
                log.create_topic("u", SCHEMA)
                return log.topics

        assert in_child(work) == ("t", "u")

    def test_it_can_be_opened_and_read_when_full(self, tmp_path):
        with Log(tmp_path) as log:
            log.create_topic("t", SCHEMA)
            log.append("t", [(n, "x" * 100) for n in range(50)])

        def work():
            self.limit(0)
            log = Log(tmp_path)
            found = numbers(log)
            with pytest.raises(LogFullError):
                log.append("t", [(99, "no room")])
            self.limit(resource.RLIM_INFINITY)
            log.close()
            return found

        assert in_child(work) == list(range(50))
        with Log(tmp_path) as log:
            assert numbers(log) == list(range(50))


FULL_DISK = """
import sys
from millstream.errors import LogFullError
from millstream.log import Log
from millstream.model import ChangeBatch, Schema
from millstream.testing import wait_until

path, acknowledged = sys.argv[1], []
with Log(path, wal_mode="sync", segment_bytes=100_000) as log:
    log.create_topic("t", Schema.of(n="BIGINT NOT NULL", s="VARCHAR"))
    try:
        for n in range(100_000):
            log.append("t", [(n, "x" * 300)])
            acknowledged.append(n)
    except LogFullError as error:
        print(error)
    assert [row[0] for batch in log.read("t") for row in batch.rows] == acknowledged
    (log.path / "ballast").unlink()
    log.append("t", [(-1, "room again")])
with Log(path) as log:
    found = [row[0] for batch in log.read("t") for row in batch.rows]
    assert found == [*acknowledged, -1], (len(found), len(acknowledged))
print("rows:", len(found))
"""


def test_a_disk_that_is_really_full(tmp_path):
    """A file system of one megabyte, in a mount namespace of its own."""
    script = tmp_path / "full.py"
    script.write_text(FULL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    command = (
        f"mount -t tmpfs -o size=1m tmpfs {disk} && mkdir {disk}/log && "
        f"head -c 100000 /dev/zero > {disk}/log/ballast && {sys.executable} {script} {disk}/log"
    )
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare, of Linux")
    allowed = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=1m tmpfs {disk}"],
        capture_output=True,
        check=False,
    )
    if allowed.returncode != 0:
        pytest.skip("needs the right to mount a file system")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout
    assert "rows:" in done.stdout


class TestReadOnly:
    def as_nobody(self, work):
        def run():
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            return work()

        return in_child(run)

    @pytest.fixture
    def directory(self, tmp_path):
        directory = tmp_path / "log"
        with Log(directory) as log:
            log.create_topic("t", SCHEMA)
        for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
            path.chmod(0o755)
        for file in directory.iterdir():
            file.chmod(0o444)
        directory.chmod(0o555)
        yield directory
        directory.chmod(0o755)

    def test_is_said(self, directory):
        def work():
            with pytest.raises(LogReadOnlyError) as caught:
                Log(directory)
            return str(caught.value)

        message = self.as_nobody(work)
        assert str(directory) in message
        assert "hint" in message

    def test_a_parent_where_nothing_can_be_made(self, directory):
        def work():
            with pytest.raises(LogReadOnlyError):
                Log(directory / "deeper")
            return True

        assert self.as_nobody(work)


class TestPath:
    def test_a_file(self, tmp_path):
        (tmp_path / "file").write_text("not a directory")
        with pytest.raises(LogPathError):
            Log(tmp_path / "file")
        with pytest.raises(LogPathError):
            Log(tmp_path / "file" / "below")

    def test_other_files_are_left_alone(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        with Log(tmp_path) as log:
            log.create_topic("t", SCHEMA)
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_text_or_path(self, tmp_path):
        with Log(str(tmp_path / "a")) as log:
            assert log.path == tmp_path / "a"


class TestLock:
    def test_a_second_handle_in_this_process(self, tmp_path):
        with Log(tmp_path) as log:
            with pytest.raises(LogLockedError, match="already open in this process"):
                Log(tmp_path)
            log.create_topic("t", SCHEMA)
        with Log(tmp_path) as log:
            assert log.topics == ("t",)

    def test_another_process(self, tmp_path):
        with Log(tmp_path):
            result = in_child(lambda: _attempt(tmp_path))
        assert f"pid {os.getpid()}" in result
        assert "millstream serve" in result
        assert "ms.connect(url)" in result

    def test_is_not_given_away_by_a_failed_attempt_or_a_backup(self, tmp_path):
        with Log(tmp_path / "log"):
            with pytest.raises(LogLockedError):
                Log(tmp_path / "log")
            shutil.copytree(tmp_path / "log", tmp_path / "backup")
            assert "another process" in in_child(lambda: _attempt(tmp_path / "log"))

    def test_is_not_given_away_with_its_file(self, tmp_path):
        with Log(tmp_path):
            (tmp_path / "LOCK").unlink()
            assert "another process" in in_child(lambda: _attempt(tmp_path))
            with pytest.raises(LogLockedError, match="already open in this process"):
                Log(tmp_path)
        assert in_child(lambda: _attempt(tmp_path)) == "opened"

    def test_a_forked_child_does_not_keep_it(self, tmp_path):
        log = Log(tmp_path)
        pid = os.fork()
        if pid == 0:
            signal.pause()
        try:
            log.close()
            assert in_child(lambda: _attempt(tmp_path)) == "opened"
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def test_is_free_after_a_failed_open(self, tmp_path):
        with Log(tmp_path) as log:
            log.create_topic("t", SCHEMA)
        (segment,) = tmp_path.glob("*.seg")
        intact = segment.read_bytes()
        segment.write_bytes(b"damaged")
        with pytest.raises(Error):
            Log(tmp_path)
        segment.write_bytes(intact)
        with Log(tmp_path) as log:
            assert log.topics == ("t",)


def _attempt(path):
    try:
        Log(path).close()
    except LogLockedError as error:
        return str(error)
    return "opened"


class TestFailedSync:
    """What cannot be had for real here: a disk whose fdatasync fails. The call is made to fail."""

    def test_poisons_the_log(self, tmp_path, monkeypatch):
        log = Log(tmp_path)
        log.create_topic("t", SCHEMA)
        log.append("t", [(1, "kept")], wal_mode="sync")
        real = segment_writer.sync_data  # type: ignore[attr-defined]

        def fail(fd):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(segment_writer, "sync_data", fail)
        with pytest.raises(LogFailedError, match="did not keep"):
            log.append("t", [(2, "who knows")], wal_mode="sync")
        monkeypatch.setattr(segment_writer, "sync_data", real)
        for use in (log.flush, lambda: log.append("t", [(3, "no")])):
            with pytest.raises(LogFailedError):
                use()
        with pytest.raises(LogFailedError):
            log.close()
        with Log(tmp_path) as log:
            assert numbers(log) in ([1], [1, 2])

    def test_of_one_reaches_all_that_wait(self, tmp_path, monkeypatch):
        log = Log(tmp_path, wal_mode="sync")
        log.create_topic("t", SCHEMA)

        def fail(fd):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(segment_writer, "sync_data", fail)
        raised = []

        def work():
            try:
                log.append("t", [(1, "x")])
            except LogFailedError as error:
                raised.append(error)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(raised) == 6
        with pytest.raises(LogFailedError):
            log.close()


class TestUnforeseen:
    def test_one_commit_that_cannot_be_encoded_harms_no_other(self, log, monkeypatch):
        real = MessageWriter.message

        def message(writer, rows, *more):
            if any(row[0] == 3 for row in rows):
                raise MemoryError("as if")
            return real(writer, rows, *more)

        monkeypatch.setattr(MessageWriter, "message", message)
        for n in range(6):
            log.append("t", [(n, "x")])
        with pytest.raises(RowsLostError, match="rows 4 to 4"):
            log.flush()
        log.flush()
        with pytest.raises(RowsLostError):
            log.append("t", [(3, "x")], wal_mode="sync")
        monkeypatch.undo()
        assert numbers(log) == [0, 1, 2, 4, 5]

    def test_more_text_than_one_arrow_array_can_hold(self, log, monkeypatch):
        """2 GiB, that is; here it is made to be less."""
        real = Schema.rows_to_arrow

        def rows_to_arrow(schema, rows):
            if sum(len(row[1]) for row in rows) > 1000:
                raise TypeError("Cannot convert pyarrow.lib.ChunkedArray to pyarrow.lib.Array")
            return real(schema, rows)

        monkeypatch.setattr(Schema, "rows_to_arrow", rows_to_arrow)
        log.append("t", [(n, "x" * 300) for n in range(20)], wal_mode="sync")
        monkeypatch.undo()
        assert numbers(log) == list(range(20))


class TestRowTooLarge:
    @pytest.fixture(autouse=True)
    def small_frames(self, monkeypatch):
        monkeypatch.setattr(encoding, "MAX_PAYLOAD", 20_000)
        monkeypatch.setattr(encoding, "FRAME_TARGET", 4_000)

    def test_is_raised_by_a_sync_append(self, log):
        with pytest.raises(RowTooLargeError) as caught:
            log.append("t", [(1, "x" * 50_000)], wal_mode="sync")
        assert "files" in caught.value.hint
        log.append("t", [(2, "small")], wal_mode="sync")
        assert numbers(log) == [2]

    def test_of_an_async_append_is_raised_by_the_next_flush(self, log):
        for n in range(5):
            log.append("t", [(n, "x" * (50_000 if n == 2 else 10))])
        with pytest.raises(RowTooLargeError):
            log.flush()
        assert log.flush() == 5
        assert numbers(log) == [0, 1, 3, 4]

    def test_rows_of_very_different_sizes_are_cut_until_they_fit(self, log):
        rows = [(n, "x" * (15_000 if n % 50 == 0 else 10)) for n in range(200)]
        log.append("t", SCHEMA.rows_to_arrow(rows), wal_mode="sync")
        assert numbers(log) == list(range(200))
        assert len(list(log.read("t"))) > 4
