"""The folder that is kept from one process to the next, where no other user can put a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def kept_folder() -> Path | None:
    """A folder that only this user can write to, and that is kept; None: there is none."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = Path(base) / "millstream"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_private(folder) else None
    except OSError:
        return None


def _is_private(folder: Path) -> bool:
    """Whether nobody else can put files there, or another folder in its place."""
    folder = folder.resolve()
    if not _is_safe(folder, sticky=False) or not os.access(folder, os.W_OK):
        return False
    return all(_is_safe(each, sticky=True) for each in folder.parents)


def _is_safe(folder: Path, *, sticky: bool) -> bool:
    """Whether it belongs to this user or to root, who alone can write there.

    Args:
        folder: the folder.
        sticky: others may, as in /tmp, if they cannot rename what is not theirs.
    """
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        return False
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not shared or (sticky and bool(status.st_mode & stat.S_ISVTX))
