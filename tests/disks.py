"""A small file system of its own that can be filled, and given room again."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest


class Disk:
    """A mounted tmpfs."""

    def __init__(self, path):
        self.path = path
        self._ballast = path / "ballast"

    def fill(self):
        """Leave no byte free."""
        with self._ballast.open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))

    def free(self):
        """Give all room back that ``fill`` took."""
        self._ballast.unlink(missing_ok=True)

    @property
    def room(self):
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_bsize


@contextlib.contextmanager
def mounted(path, size):
    """Mount a disk, or skip the test where that is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if done.returncode != 0:
        pytest.skip("needs the right to mount a file system")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
