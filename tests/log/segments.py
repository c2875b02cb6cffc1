"""For tests of the log: what its files say, and a log that writes nothing for a while."""

from __future__ import annotations

from contextlib import contextmanager

from millstream.log.files import SegmentFile, list_segments
from millstream.testing import writer_of


def first_frame(path):
    """Where the frames after the head of the first segment begin."""
    return SegmentFile(path, list_segments(path)[0]).start


def last_seal(path):
    """What the end of a closed log says."""
    return SegmentFile(path, list_segments(path)[-1]).seal


@contextmanager
def writes_held(log):
    """No commit is written within; async appends are queued."""
    with writer_of(log).segments.lock:
        yield
