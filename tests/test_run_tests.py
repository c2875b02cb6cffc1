"""``tools/run_tests.py``: every test is in one part of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_tests():
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "tools" / "run_tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def holds(paths, file):
    ignored = [each.removeprefix("--ignore=") for each in paths if each.startswith("--")]
    named = [each for each in paths if not each.startswith("--")]
    return any(file.is_relative_to(each) for each in named) and not any(
        file.is_relative_to(each) for each in ignored
    )


def test_each_file_is_in_one_part(monkeypatch):
    monkeypatch.chdir(ROOT)
    parts = run_tests().parts()
    files = [each.relative_to(ROOT) for each in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 200
    for file in files:
        assert [name for name, paths in parts.items() if holds(paths, file)], file
        assert len([name for name, paths in parts.items() if holds(paths, file)]) == 1, file
    for paths in parts.values():
        assert all(Path(each.removeprefix("--ignore=")).exists() for each in paths)


def test_the_quick_loop_has_no_spark_of_its_own(monkeypatch):
    monkeypatch.chdir(ROOT)
    module = run_tests()
    assert module.parts().keys() - module.parts(quick=True).keys() == {
        name for name in module.parts() if name.startswith("on Spark")
    }
