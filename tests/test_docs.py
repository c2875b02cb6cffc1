"""What the README and the docs show runs, and what they link to is there."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from millstream.connectors import registry
from millstream.sql.expressions.functions import FUNCTIONS

from .effort import effort

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def blocks(page, language):
    """The code of a page; what stands in a tab is indented."""
    found = re.finditer(
        rf"^( *)```{language}\n(.*?)^\1```$", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return [textwrap.dedent(each[2]) for each in found]


def pages_with_examples():
    for page in PAGES:
        code = "".join(blocks(page, "python"))
        if code:
            marks = [pytest.mark.slow] if "MATERIALIZED VIEW" in code else []  # it starts Spark
            yield pytest.param(page, marks=marks, id=page.name)


@pytest.mark.parametrize("page", list(pages_with_examples()))
def test_examples_run_and_print_what_they_say(page, tmp_path, monkeypatch, request):
    if request.node.get_closest_marker("slow"):
        request.getfixturevalue("spark_owner")
    monkeypatch.chdir(tmp_path)
    # What a page registers is known to no other test.
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        scope: dict[str, object] = {}
        for code in blocks(page, "python"):
            exec(compile(code, str(page), "exec", dont_inherit=True), scope)
    if page.name in {"README.md", "tutorial.md"}:
        assert printed.getvalue() == blocks(page, "text")[0]


def test_the_table_of_functions_has_all_of_them():
    words = set(re.findall(r"[A-Z][A-Z0-9_]+", (ROOT / "docs" / "sql.md").read_text()))
    assert set(FUNCTIONS) <= words


@pytest.mark.slow
def test_examples_pass_a_strict_type_check(tmp_path):
    """As an editor checks what somebody has copied from here."""
    copies = []
    for page in PAGES:
        code = "".join(blocks(page, "python"))
        if code:
            copy = tmp_path / (page.stem.replace("-", "_").lower() + "_example.py")
            copy.write_text(code)
            copies.append(copy)
    # With the options and the cache of ``mypy`` alone, which knows the package by then.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *copies],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.slow
def test_the_site_needs_nothing_from_elsewhere(tmp_path):
    """It is built without a warning, and no page loads anything from another host."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?([^"'\s>]+)""", text)
        for link in re.findall(r"<link\b[^>]*>", text):
            if not re.search(r"""rel=["']?(?:canonical|prev|next|alternate)""", link):
                loaded += re.findall(r"""href=["']?([^"'\s>]+)""", link)
        assert not [each for each in loaded if re.match(r"(https?:)?//", each)], page


@pytest.mark.slow
def test_the_market_is_live_on_spark():
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "demo", "--seconds", "3"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    said = " ".join(done.stdout.split())
    assert re.search(r"console: http://127\.0\.0\.1:\d+/ ", said), said
    summary = r"[\d,]+ rows in, [\d,]+ changes out; .* view live; volume [\d,]+$"
    assert re.search(summary, said), said


@pytest.mark.slow
def test_the_market_reaches_everybody():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "push_demo.py", "--seconds", "2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each subscriber got them all" in " ".join(done.stdout.split())


@pytest.mark.crash
def test_the_demo_loses_nothing():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "crash_demo.py", str(effort(5, 25))],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 damaged" in done.stdout
