"""A database in a process of its own, which tests kill: ``Child``.

The process opens a directory and answers statements that come line by line, as JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class ChildEndedError(AssertionError):
    """The process has ended, or was killed."""


class Child:
    """A database in a process of its own, for tests that kill it.

    >>> import tempfile
    >>> with Child(tempfile.mkdtemp()) as child:
    ...     _ = child.execute("CREATE SOURCE s (n BIGINT)")
    ...     _ = child.execute("INSERT INTO s VALUES (1), (2)")
    ...     child.execute("SELECT n FROM s")
    [[1], [2]]

    Args:
        path: its directory.
        imports: modules that the process imports first, such as those that register a connector.
    """

    def __init__(self, path: str | Path, imports: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "millstream.testing.child", str(path), *imports]
        self._process = subprocess.Popen(  # noqa: S603 - this very module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def execute(self, sql: str) -> list[list[Any]]:
        """Run a statement in the process, and return its rows, as JSON values.

        Raises:
            AssertionError: the statement was refused.
            ChildEndedError: the process has ended.
        """
        if self._process.stdin is None:
            raise AssertionError("the process has its input piped")
        try:
            print(json.dumps(sql), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise ChildEndedError(f"the process has ended: {self._process.wait()}") from None
        answer: dict[str, Any] = self._read()
        if "error" in answer:
            raise AssertionError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def _read(self) -> Any:  # noqa: ANN401 - JSON
        if self._process.stdout is None:
            raise AssertionError("the process has its output piped")
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise ChildEndedError(f"the process has ended: {self._process.wait()}")
        return json.loads(line)

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it has ended."""
        self.send_kill()
        self._wait()

    def send_kill(self) -> None:
        """Send SIGKILL without waiting, from another thread than the one that executes."""
        self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the database in the process, and wait until the process has ended."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._wait()

    def _wait(self) -> None:
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(BrokenPipeError):  # a line that it did not read
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.close()


def _serve(path: str, imports: Sequence[str]) -> None:
    import millstream as ms  # noqa: PLC0415 - of the process that serves only

    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - as ``python -c`` has it
    for module in imports:
        importlib.import_module(module)
    with ms.open(path) as db:
        print(json.dumps("open"), flush=True)  # noqa: T201 - the answer
        for line in sys.stdin:
            try:
                rows = db.execute(json.loads(line)).fetchall()
                answer: dict[str, Any] = {"rows": rows}
            except ms.Error as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer, default=str), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])
