"""The walks of CONTRIBUTING: every file that one names is passed when tools/walks.py walks it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"

# The code that push runs is generated, and what everything stands on is not reported.
UNSEEN = {"sources/fast_push.py", "threads.py"}


def named_walks():
    """The files that CONTRIBUTING names, by the title of the walk, in order."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walks = text.partition("### Five walks")[2].partition("###")[0]
    for title, body in re.findall(r"^\*\*(.+?)\*\*:.*\n(.+)", walks, re.MULTILINE):
        folder, files = "", []
        for name in re.findall(r"`([\w/]+\.py)`", body):
            if "/" in name:  # a name without a folder is of the one before
                folder = name.rpartition("/")[0] + "/"
            files.append(name if (PACKAGE / name).exists() else folder + name)
        yield title.lower(), files


@pytest.fixture(scope="module")
def walked():
    """The files that each walk has passed, by its title."""
    command = [sys.executable, str(ROOT / "tools" / "walks.py")]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    titles, files = lines[::2], lines[1::2]
    return {
        title.partition(":")[0].lower(): set(passed.strip().split(" > "))
        for title, passed in zip(titles, files, strict=True)
    }


def test_the_walks_are_as_contributing_has_them(walked):
    named = dict(named_walks())
    assert named.keys() == walked.keys()
    for title, files in named.items():
        assert len(files) > 8, f"{title}: not understood"
        assert [file for file in files if file not in walked[title] | UNSEEN] == [], title
