"""For tests that fork often: they run in a process that has little in memory.

A fork copies the page tables of its process. Of one that has collected all tests, and has loaded
what they use, that takes 40 ms of processor time; of one that has imported a log, one.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def in_a_small_process(test):
    """Run a test in a process of its own; what it raises there is shown here.

    Its arguments go there as text: paths, numbers, strings.
    """

    @functools.wraps(test)
    def run(**arguments):
        module = ".".join(Path(test.__code__.co_filename).relative_to(ROOT).with_suffix("").parts)
        call = f"t.{test.__name__}.__wrapped__(**{arguments!r})"
        code = f"from pathlib import PosixPath\nimport {module} as t\n{call}"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    return run
