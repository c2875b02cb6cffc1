"""A piece of a batch is read once; every part gets all of its rows, whoever else comes or goes."""

import threading
from contextlib import closing

import pyarrow as pa
import pytest

from millstream.spark import part_pieces
from millstream.spark.part_pieces import SharedPieces

COUNT = 3
RUNS = 40


def batch(*numbers):
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def split(data):
    numbers = data.column("n").to_pylist()
    parts = {part: [n for n in numbers if n % COUNT == part] for part in range(COUNT)}
    return {part: batch(*found) for part, found in parts.items() if found}


class Log:
    """Runs of numbers; counts how often they are read."""

    def __init__(self, runs=RUNS, error=None):
        self.readings = 0
        self._runs = runs
        self._error = error

    def read(self):
        self.readings += 1
        for n in range(self._runs):
            yield 5 * n, batch(*range(5 * n, 5 * n + 5))
        if self._error is not None:
            raise self._error

    def of(self, part):
        return [n for n in range(5 * self._runs) if n % COUNT == part]


def numbers(found):
    return [n for _, rows in found for n in rows.column("n").to_pylist()]


@pytest.fixture
def pieces():
    return SharedPieces(COUNT, split)


def taken(pieces, log, part, piece=("a",)):
    shared = pieces.join(part, piece, log.read)
    with closing(shared.rows_of(part)) as found:
        return sorted(numbers(found))


def in_threads(*tasks):
    results, threads = {}, []
    for place, task in enumerate(tasks):

        def run(place=place, task=task):
            try:
                results[place] = task()
            except Exception as error:
                results[place] = error

        threads.append(threading.Thread(target=run))
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [results[place] for place in range(len(tasks))]


@pytest.mark.parametrize("most", [0, 100, 1 << 20])
def test_every_part_gets_its_rows(pieces, monkeypatch, most):
    monkeypatch.setattr(part_pieces, "_MOST_BYTES", most)
    log = Log()
    found = in_threads(*(lambda part=part: taken(pieces, log, part) for part in range(COUNT)))
    assert found == [log.of(part) for part in range(COUNT)]
    assert 1 <= log.readings <= COUNT


def test_it_is_read_once_though_parts_come_one_after_the_other(pieces):
    log = Log()
    assert [taken(pieces, log, part) for part in range(COUNT)] == [log.of(n) for n in range(COUNT)]
    assert log.readings == 1


def test_a_part_that_comes_too_late_reads_for_itself(pieces, monkeypatch):
    monkeypatch.setattr(part_pieces, "_MOST_BYTES", 100)
    log = Log()
    assert [taken(pieces, log, part) for part in range(COUNT)] == [log.of(n) for n in range(COUNT)]
    assert log.readings == COUNT


def test_a_second_task_of_a_part_reads_for_itself(pieces):
    log = Log()
    assert taken(pieces, log, 1) == taken(pieces, log, 1) == log.of(1)
    assert taken(pieces, log, 0) == log.of(0)
    assert log.readings == 2


def test_a_part_whose_task_was_lost_holds_up_no_other(pieces, monkeypatch):
    monkeypatch.setattr(part_pieces, "_MOST_BYTES", 100)
    log = Log()
    lost = pieces.join(0, ("a",), log.read)
    gone = lost.rows_of(0)
    next(gone)  # it is there, and takes no more
    others = threading.Thread(target=lambda: found.append(taken(pieces, log, 1)))
    found = []
    others.start()
    gone.close()
    others.join()
    assert found == [log.of(1)]


def test_what_goes_wrong_is_raised_for_each_part(pieces):
    log = Log(error=OSError("the disk"))
    found = in_threads(*(lambda part=part: taken(pieces, log, part) for part in range(COUNT)))
    assert [str(each) for each in found] == ["the disk"] * COUNT


def test_another_batch_is_read_anew(pieces):
    first, second = Log(), Log(3)
    assert taken(pieces, first, 0) == first.of(0)
    pieces.clear()
    assert taken(pieces, second, 0) == second.of(0)
    assert taken(pieces, second, 0, ("b",)) == second.of(0)
