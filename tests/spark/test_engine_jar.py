"""The engine's jar is that of the sources, and nothing else is ever run."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from millstream.errors import PipelineError
from millstream.spark import engine_jar

ROOT = Path(__file__).parents[2]
COMPILE = "tools/compile_java.py"
PROGRAM = (
    *(COMPILE, "tools/java.py", "tools/debian.py"),
    *(f"src/millstream/{each}.py" for each in ("__init__", "errors", "masking")),
    *(f"src/millstream/spark/{each}.py" for each in ("__init__", "engine_jar")),
)
"""All that a build runs."""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of the sources, with the jar that was made of them."""
    sources, jar = tmp_path / "java", tmp_path / "millstream.jar"
    shutil.copytree(ROOT / "java" / "src" / "main" / "java", sources)
    shutil.copy(engine_jar.JAR, jar)
    monkeypatch.setattr(engine_jar, "_SOURCES", sources)
    monkeypatch.setattr(engine_jar, "JAR", jar)
    return sources


def test_it_has_a_class_for_each_source():
    sources = ROOT / "java" / "src" / "main" / "java"
    wanted = [each.relative_to(sources).with_suffix(".class") for each in sources.rglob("*.java")]
    with zipfile.ZipFile(engine_jar.engine_jar()) as jar:
        assert {each.as_posix() for each in wanted} <= set(jar.namelist())


def test_a_checkout_with_the_sources_that_it_was_made_of(checkout):
    assert engine_jar.engine_jar() == engine_jar.JAR


def changed(sources):
    with (sources / "millstream" / "dataflow" / "Tree.java").open("a") as file:
        file.write("// more\n")


def added(sources):
    (sources / "millstream" / "dataflow" / "More.java").write_text("package millstream.dataflow;\n")


def removed(sources):
    (sources / "millstream" / "dataflow" / "Tree.java").unlink()


@pytest.mark.parametrize("change", [changed, added, removed])
def test_other_sources(checkout, change):
    change(checkout)
    with pytest.raises(PipelineError, match="is not that of the sources") as raised:
        engine_jar.engine_jar()
    assert COMPILE in raised.value.hint


def test_there_is_none(checkout):
    engine_jar.JAR.unlink()
    with pytest.raises(PipelineError, match="is missing") as raised:
        engine_jar.engine_jar()
    assert COMPILE in raised.value.hint


def test_an_installed_package_has_no_sources(checkout):
    shutil.rmtree(checkout)
    assert engine_jar.engine_jar() == engine_jar.JAR


# ---- how it is made


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def jar(root):
    return root / "src" / "millstream" / "spark" / "millstream.jar"


@pytest.fixture
def build(root):
    """Compile a checkout of its own, of one small class; gives what was said, if that failed."""
    for each in PROGRAM:
        (root / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / each, root / each)
    source = root / "java/src/main/java/millstream/A.java"
    source.parent.mkdir(parents=True)

    def run(text, **environment):
        source.write_text(text)
        done = subprocess.run(
            [sys.executable, root / COMPILE],
            capture_output=True,
            check=False,
            text=True,
            env=os.environ | environment,
        )
        assert bool(done.returncode) == bool(done.stderr)
        return done.stderr

    return run


GOOD = "package millstream; class A { org.apache.spark.sql.Row row; }"


@pytest.mark.slow
def test_the_same_sources_make_the_same_jar(build, jar):
    assert not build(GOOD)
    made, inode = jar.read_bytes(), jar.stat().st_ino
    assert not build(GOOD)
    assert jar.stat().st_ino == inode  # not even written again
    jar.unlink()
    assert not build(GOOD)
    assert jar.read_bytes() == made


@pytest.mark.slow
def test_what_is_no_java(build, jar):
    assert not build(GOOD)
    made = jar.read_bytes()
    assert "A.java:1: error:" in build("package millstream; class A { Nothing at; }")
    assert jar.read_bytes() == made  # which is not run: see test_other_sources
    assert [each.name for each in jar.parent.glob("*.jar*")] == ["millstream.jar"]


def test_a_machine_without_a_jdk(build, jar):
    said = build(GOOD, PATH="/nowhere", JAVA_HOME="")
    assert said.startswith("Millstream is built with a JDK 17 or newer: ")
    assert len(said.splitlines()) == 1
    assert not jar.exists()
