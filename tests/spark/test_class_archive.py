"""Java's classes in an archive: whose it is, when it is used, and what is kept of older ones."""

import os
import types
from pathlib import Path

import pytest

from millstream.spark import class_archive, internals
from millstream.spark.class_archive import ClassArchive
from millstream.spark.java_home import Java


@pytest.fixture
def folder(tmp_path, monkeypatch):
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "spark.jar").write_bytes(b"1")
    monkeypatch.setattr(internals, "spark_jars", lambda: jars)
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(class_archive, "kept_folder", lambda: kept)
    return kept


def build(number):
    return Java(Path("/usr/bin/java"), 17, f"build {number}", "")


def java(write):
    """A Java that writes an archive in some way."""
    archive = types.SimpleNamespace(write=write)
    bridge = types.SimpleNamespace(ClassArchive=archive)
    return types.SimpleNamespace(millstream=types.SimpleNamespace(bridge=bridge))


def writing(path):
    with open(path, "w") as file:
        file.write("classes")
    return "written"


def test_it_is_written_once_and_used_then(folder):
    first = ClassArchive(build(17), "-Xmx1g")
    assert (first.option, first.is_wanted) == ("-XX:+RecordDynamicDumpInfo", True)
    first.write(java(writing))
    assert not first.is_wanted
    second = ClassArchive(build(17), "-Xmx1g")
    assert second.option == f'"-XX:SharedArchiveFile={first.path}"'
    assert not second.is_wanted


def test_another_java_other_options_and_other_jars_have_another(folder):
    one = ClassArchive(build(17), "-Xmx1g")
    one.write(java(writing))
    assert ClassArchive(build(21), "-Xmx1g").is_wanted
    assert ClassArchive(build(17), "-Xmx2g").is_wanted
    jar = internals.spark_jars() / "spark.jar"
    os.utime(jar, ns=(1, 1))
    assert ClassArchive(build(17), "-Xmx1g").path != one.path


@pytest.mark.parametrize("mine", ["-Xshare:off", "-XX:SharedArchiveFile=a.jsa"])
def test_what_the_user_has_chosen_is_left_alone(folder, mine):
    archive = ClassArchive(build(17), f"-Xmx1g {mine}")
    assert (archive.option, archive.is_wanted, archive.path) == ("", False, None)


def test_without_a_folder_that_is_kept_there_is_none(folder, monkeypatch):
    monkeypatch.setattr(class_archive, "kept_folder", lambda: None)
    archive = ClassArchive(build(17), "")
    archive.write(java(writing))
    assert (archive.option, archive.is_wanted) == ("", False)
    assert list(folder.iterdir()) == []


def test_a_java_that_cannot_write_it_is_no_failure(folder):
    def failing(_):
        raise RuntimeError("no such command")

    for write in (failing, lambda _: "not supported"):
        archive = ClassArchive(build(17), "")
        archive.write(java(write))
        assert archive.is_wanted


def test_only_the_newest_are_kept(folder):
    made = []
    for number in range(4):
        archive = ClassArchive(build(number), "")
        archive.write(java(writing))
        os.utime(archive.path, (number, number))
        made.append(archive.path)
    assert sorted(folder.iterdir()) == sorted(made[-2:])
