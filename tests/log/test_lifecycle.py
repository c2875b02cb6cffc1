from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import warnings

import pytest

from millstream.errors import (
    ClosedError,
)
from millstream.log import Log
from millstream.log.lifecycle import BackgroundThreads
from millstream.testing import wait_until


class TestClose:
    def test_twice_is_fine_and_then_nothing_goes(self, tmp_path, schema, rows):
        log = Log(tmp_path)
        log.create_topic("t", schema)
        reader = log.read("t")
        log.close()
        log.close()
        for use in (lambda: log.append("t", rows(1)), log.flush, log.retain):
            with pytest.raises(ClosedError):
                use()
        assert reader.next() is None

    def test_writes_what_is_still_queued(self, tmp_path, schema, rows, read):
        with Log(tmp_path) as log:
            log.create_topic("t", schema)
            for n in range(500):
                log.append("t", rows(1, n))
        with Log(tmp_path) as log:
            assert log.recovery.clean
            assert read(log, "t") == rows(500)

    def test_leaves_no_thread_and_no_file_behind(self, tmp_path, schema, rows):
        before = threading.active_count()
        with Log(tmp_path, segment_bytes=1000) as log:
            log.create_topic("t", schema)
            for n in range(50):
                log.append("t", rows(10, n), wal_mode="sync")
            with log.read("t") as reader:
                list(reader)
        gc.collect()
        assert threading.active_count() == before
        links = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        assert not [link for link in links if link.startswith(str(tmp_path))]

    def test_a_forgotten_one_is_closed_with_a_warning(self, tmp_path, schema, rows, read):
        log = Log(tmp_path)
        log.create_topic("t", schema)
        log.append("t", rows(3))
        with pytest.warns(ResourceWarning, match="was not closed"):
            del log
            gc.collect()
        with Log(tmp_path) as log:
            assert read(log, "t") == rows(3)

    def test_while_others_append(self, tmp_path, schema, rows, read):
        """Each append either returns, and is there, or raises, and is not."""
        log = Log(tmp_path)
        log.create_topic("t", schema)
        returned = [[] for _ in range(4)]

        def work(place):
            for n in range(100_000):
                try:
                    log.append("t", [(place, f"{n}")], wal_mode="sync" if place % 2 else "async")
                except ClosedError:
                    return
                returned[place].append((place, f"{n}"))

        threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: log.written_lsn >= 200)
        log.close()
        for thread in threads:
            thread.join()
        with Log(tmp_path) as log:
            found = read(log, "t")
        for place in range(4):
            assert [row for row in found if row[0] == place] == returned[place]

    def test_a_follower_is_given_everything_first(self, tmp_path, schema, rows):
        for _ in range(20):
            with Log(tmp_path) as log:
                if "t" not in log.topics:
                    log.create_topic("t", schema)
                got, reader = [], log.read("t", start="now")
                follower = threading.Thread(target=lambda: got.extend(reader.follow()))
                follower.start()
                for n in range(20):
                    log.append("t", rows(1, n))
            follower.join()
            assert [row for batch in got for row in batch.rows] == rows(20)

    def test_interrupted_it_can_be_done_again(self, tmp_path, schema, monkeypatch):
        def interrupted(threads):
            raise KeyboardInterrupt

        log = Log(tmp_path)
        log.create_topic("t", schema)
        with monkeypatch.context() as patch:
            patch.setattr(BackgroundThreads, "stop", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.close()
        log.close()
        Log(tmp_path).close()

    def test_wakes_followers(self, log):
        got = []
        follower = threading.Thread(target=lambda: got.extend(log.read("t").follow()))
        follower.start()
        log.append("t", [(1, "a")])
        wait_until(lambda: got)
        log.close()
        follower.join()
        assert len(got) == 1


def test_a_forked_child_can_neither_use_nor_harm_it(log, rows, read):
    def child(go, results):
        go.wait()
        try:
            log.append("t", rows(1))
        except ClosedError as error:
            results.put(str(error))
        log.close()

    context = multiprocessing.get_context("fork")
    go, results = context.Event(), context.SimpleQueue()
    with warnings.catch_warnings():
        # Python warns that a fork with threads may deadlock; this is the test that it does not.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=child, args=(go, results))
        process.start()
    log.append("t", rows(10), wal_mode="sync")
    go.set()
    assert "fork" in results.get()
    process.join()
    log.append("t", rows(1, 10), wal_mode="sync")
    assert read(log, "t") == rows(11)
    assert not list(log.verify())
