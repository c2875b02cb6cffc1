"""How the tests are shared out among the processes of pytest-xdist, and where their files lie.

Each core has two processes: while the tests of one wait for a child, a broker or a timer, the other
one works. A process is given a unit of tests at a time: a file, or a folder whose tests share a
server. Units that take longest go first, so that at the end no process works alone. Files lie in
memory where there is room: a process that is killed leaves the same there as on a disk, and no
fsync waits.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

MEMORY = Path("/dev/shm")
ROOM = 4 << 30

PER_CORE = 2
MEMORY_OF_ONE = 3 << 30
"""What a process of tests has with its Java, in bytes."""

CACHE = Path(__file__).parents[1] / ".cache"

# Each of these folders has one server, started by the first test that needs it.
TOGETHER = ("tests/connectors/kafka", "tests/connectors/mysql", "tests/connectors/postgres")

# What takes longest, longest first, by how its path begins. The others follow, by their tests.
FIRST = (
    "tests/connectors/kafka",
    "tests/test_tutorial.py",
    "tests/connectors/postgres",
    "tests/connectors/mysql",
    "tests/on_spark/test_java_dies.py",
    "tests/on_spark/test_exact_",
    "tests/on_spark/test_c",
    "tests/console",
    "tests/on_spark",
    "tests/connectors",
    "tests/security",
    "tests/cli",
    "tests/client",
    "tests/notebook",
    "tests/test_docs.py",
    "tests/log/test_crash.py",
    "tests/database/test_ddl_walk.py",
    "tests/database/test_restart.py",
    "tests/server/test_restart.py",
)


def processes():
    """Return how many processes ``-n auto`` starts: two for each core that have memory enough."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(PER_CORE * (os.cpu_count() or 1), memory // MEMORY_OF_ONE))


def choose_place():
    """Let pytest make its directories in memory, unless the environment names a place.

    The archives of Java's classes are kept in the checkout. Each Java with options of its own has
    an archive of its own; in the user's cache, those of the tests would push out the user's.
    """
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    os.environ["XDG_CACHE_HOME"] = str(CACHE)


class Sharing(LoadScopeScheduling):
    """Hands out units of tests, those that take longest first."""

    def _split_scope(self, nodeid):
        file = nodeid.split("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(folder + "/")), file)

    def _assign_work_unit(self, node):
        units = ((unit, first) for first in FIRST for unit in self.workqueue)
        found = next((unit for unit, first in units if unit.startswith(first)), None)
        if found is not None:
            self.workqueue.move_to_end(found, last=False)
        super()._assign_work_unit(node)


def plain_repr(value):
    """Return ``repr`` without an address: all processes must find tests of the same names."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
