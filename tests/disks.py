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


class FragileDisk:
    """An ext4 in a file, which turns read-only when it meets an error."""

    def __init__(self, path, image):
        self.path = path
        self._image = image

    def mount(self):
        options = "loop,errors=remount-ro"
        _run("mount", "-t", "ext4", "-o", options, str(self._image), str(self.path))

    def unmount(self):
        _run("umount", str(self.path))

    def turn_read_only(self):
        """As the kernel does when it finds the file system damaged: under all open files."""
        device = os.stat(self.path).st_dev
        name = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        with open(f"/sys/fs/ext4/{os.path.basename(name)}/trigger_fs_error", "w") as trigger:
            trigger.write("a test")

    def repair(self):
        """Check it, mount it anew."""
        self.unmount()
        subprocess.run(
            ["fsck.ext4", "-p", "-f", str(self._image)], capture_output=True, check=False
        )
        self.mount()


def _run(*command):
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.decode())


@contextlib.contextmanager
def fragile(path, image):
    """Mount such a disk, or skip the test where that is not allowed."""
    path.mkdir()
    disk = FragileDisk(path, image)
    try:
        with image.open("wb") as file:
            file.truncate(16 << 20)
        _run("mkfs.ext4", "-q", "-F", str(image))
        disk.mount()
    except (OSError, FileNotFoundError):
        pytest.skip("needs the right to mount a file system from a file")
    try:
        yield disk
    finally:
        _run("umount", "-l", str(path))
