"""Why a Java has ended: the signal that killed it, or what it has written last."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

_LINES: Final = 3
_LENGTH: Final = 300
_READ: Final = 1 << 14


def ended_by(process: subprocess.Popen[bytes] | None) -> str:
    """What has ended a Java process; empty when it runs, or was not started here."""
    code = None if process is None else process.poll()
    if code is None:
        return ""
    if code >= 0:
        return f"its Java has ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its Java was killed ({name})"


def last_words(log: Path, start: int) -> str:
    """The last lines that were written to a log file since it had so many bytes, as one line."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - _READ))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-_LINES:])[-_LENGTH:]
