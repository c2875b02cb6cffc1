"""Threads: what a signal cannot stop, waiting, crashes."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref

import pytest

from millstream.testing import Background, wait_until
from millstream.threads import Waiters, thread, uninterrupted


@pytest.fixture
def ctrl_c():
    """Interrupts the main thread while it waits, called by another one.

    A signal that comes just before a wait begins is heard at its end only, so it is sent again.
    """
    heard = threading.Event()

    def handler(*_):
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def press():
        heard.clear()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        while not heard.wait(0.001):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    old = signal.signal(signal.SIGUSR1, handler)
    yield press
    signal.signal(signal.SIGUSR1, old)


class TestUninterrupted:
    def test_gives_and_raises_what_the_function_does(self):
        assert uninterrupted(lambda a, *, b: a + b)(1, b=2) == 3
        with pytest.raises(ZeroDivisionError):
            uninterrupted(lambda: 1 // 0)()

    def test_another_thread_works_for_the_main_one_only(self):
        where = uninterrupted(threading.get_ident)
        assert where() == where() != threading.get_ident()
        assert Background(lambda: where() == threading.get_ident()).result()

    def test_goes_on_when_its_caller_was_interrupted(self, ctrl_c):
        began, go, done = threading.Event(), threading.Event(), threading.Event()

        @uninterrupted
        def work():
            began.set()
            ctrl_c()
            assert go.wait(30)
            done.set()

        with pytest.raises(KeyboardInterrupt):
            work()
        assert began.is_set()
        assert not done.is_set()
        assert uninterrupted(lambda: 7)() == 7  # another one works meanwhile
        go.set()
        assert done.wait(30)

    def test_a_result_that_was_never_returned_is_undone(self, ctrl_c):
        go, undone = threading.Event(), []

        @uninterrupted(undo=undone.append)
        def work():
            ctrl_c()
            assert go.wait(30)
            return 7

        with pytest.raises(KeyboardInterrupt):
            work()
        go.set()
        wait_until(lambda: undone == [7])

    def test_nothing_keeps_what_it_gave_or_raised(self):
        class Thing:
            def fail(self):
                raise KeyError

        uninterrupted(lambda: None)()
        gc.disable()
        try:
            thing = uninterrupted(Thing)()
            found = weakref.ref(thing)
            with pytest.raises(KeyError):
                uninterrupted(thing.fail)()
            del thing
            assert found() is None
        finally:
            gc.enable()

    def test_those_that_are_not_needed_any_more_end(self, ctrl_c):
        def helpers():
            return [t for t in threading.enumerate() if t.name == "millstream-helper"]

        gc.collect()  # those of earlier tests, which a traceback may hold
        before = set(helpers())
        for _ in range(5):
            go = threading.Event()

            @uninterrupted
            def work(go=go):
                ctrl_c()
                assert go.wait(30)

            with pytest.raises(KeyboardInterrupt):
                work()
            uninterrupted(lambda: None)()
            go.set()
        wait_until(lambda: len(set(helpers()) - before) <= 1)

    def test_in_a_child_process(self):
        uninterrupted(lambda: None)()
        child = os.fork()
        if child == 0:
            os._exit(uninterrupted(lambda: 7)())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


class TestWaiters:
    def test_wait_until_it_is_so(self):
        waiters, facts = Waiters(), []
        waiting = [Background(waiters.wait, lambda: len(facts) > 1) for _ in range(3)]
        wait_until(lambda: len(waiters.asleep) == 3)
        for _ in range(2):
            facts.append(1)
            waiters.wake()
        assert all(each.result() for each in waiting)
        assert not waiters.asleep

    def test_not_in_time(self):
        assert Waiters().wait(lambda: False, 0.001) is False

    def test_interrupted_it_leaves_nothing_behind(self, ctrl_c):
        waiters = Waiters()
        sending = Background(lambda: (wait_until(lambda: waiters.asleep), ctrl_c()))
        with pytest.raises(KeyboardInterrupt):
            waiters.wait(lambda: False)
        sending.result()
        assert not waiters.asleep
        waiters.wake()


class TestThread:
    def test_its_owner_hears_of_a_crash(self, caplog):
        crashes = []
        one = thread("test", lambda: 1 // 0, crashes.append)
        assert (one.name, one.daemon) == ("millstream-test", True)
        one.start()
        one.join()
        assert isinstance(crashes[0], ZeroDivisionError)
        assert "millstream-test" in caplog.text
