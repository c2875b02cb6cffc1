import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "postgres.md"


def _block(language):
    return re.search(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]


def _without(line):
    """A line of changes without its LSN and its token."""
    parts = line.split("|")
    return "|".join([*parts[1:3], *parts[4:]]) if len(parts) == 6 else line


def test_the_tour_prints_what_it_says(served):
    done = served.psql(stdin=_block("sql"), options=("-A", "-v", "VERBOSITY=default"), quiet=False)
    printed = [_without(line) for line in (done.stdout + done.stderr).splitlines()]
    assert printed == _block("text").splitlines()
