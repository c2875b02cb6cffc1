"""Java's classes in an archive: whose it is, when it is used, and what is kept of older ones."""

import gc
import os
from pathlib import Path

import pytest

from millstream.spark import class_archive, internals, session
from millstream.spark.class_archive import ClassArchive
from millstream.spark.java_home import Java
from millstream.spark.java_process import JAVA_OPTIONS
from millstream.testing import wait_until

OPTION = "-XX:SharedArchiveFile="
LIST = '"-XX:DumpLoadedClassList='
WRITES = f"""#!/bin/sh
for each in "$@"; do
  case $each in {OPTION}*) echo "$@" > "${{each#{OPTION}}}" ;; esac
done
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "spark.jar").write_bytes(b"1")
    ours = tmp_path / "millstream.jar"
    ours.write_bytes(b"1")
    monkeypatch.setattr(class_archive, "engine_jar", lambda: ours)
    monkeypatch.setattr(internals, "spark_jars", lambda: jars)
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(class_archive, "kept_folder", lambda: kept)
    return kept


@pytest.fixture
def archive(folder, tmp_path):
    """Make an archive's object, as a start of Java does, which lists its classes."""
    program = tmp_path / "java"
    program.write_text(WRITES)
    program.chmod(0o700)

    def make(build="17", options="-Xss1m", *, version=17):
        settings = {"spark.driver.memory": "1g", JAVA_OPTIONS: options}
        made = ClassArchive(Java(program, version, build, ""), settings)
        if made.option.startswith(LIST):
            Path(list_of(made)).write_text("java/lang/Object")
        return made

    return make


def list_of(archive):
    return archive.option.removeprefix(LIST).removesuffix('"')


def written(archive):
    archive.write()
    wait_until(archive.path.exists, "the archive")
    wait_until(lambda: not list(archive.path.parent.glob("*.list")), "the end of its writer")
    return archive


def test_a_program_that_ends_without_closing_its_database(archive):
    """Its list is removed, as all temporary files are, before the database is closed for it."""
    made = archive()
    Path(list_of(made)).unlink()
    made.write()
    assert not list(made.path.parent.iterdir())


def test_it_is_written_once_and_used_then(archive):
    first = archive()
    assert first.option.startswith(LIST)
    assert first.is_wanted
    written(first)
    assert not first.is_wanted
    assert "-Xshare:dump" in first.path.read_text().split()
    assert "-XX:+AOTClassLinking" not in first.path.read_text()
    second = archive()
    assert second.option == f'"{OPTION}{first.path}"'
    assert not second.is_wanted


def test_a_newer_java_links_classes_in_it(archive):
    assert "-XX:+AOTClassLinking" in written(archive(version=25)).path.read_text()


def test_another_java_other_options_and_other_jars_have_another(archive, tmp_path):
    one = written(archive())
    assert archive("21").is_wanted
    assert archive(options="-Xss2m").is_wanted
    assert not archive().is_wanted
    (tmp_path / "jars" / "spark.jar").write_bytes(b"22")
    two = archive()
    assert two.path != one.path
    (tmp_path / "millstream.jar").write_bytes(b"22")
    assert archive().path not in (one.path, two.path)


@pytest.mark.parametrize(
    "mine",
    ["-Xshare:off", "-XX:SharedArchiveFile=a", "-XX:ArchiveClassesAtExit=a", "-XX:AOTCache=a"],
)
def test_what_the_user_chooses_stays(archive, mine):
    made = archive(options=f"-Xss1m {mine}")
    assert (made.path, made.option, made.is_wanted) == (None, "", False)


def test_without_a_folder_of_ones_own_there_is_none(archive, folder, monkeypatch):
    monkeypatch.setattr(class_archive, "kept_folder", lambda: None)
    made = archive()
    assert (made.option, made.is_wanted) == ("", False)
    made.write()
    assert list(folder.iterdir()) == []


def test_a_java_that_cannot_write_it_is_no_failure(archive, folder, tmp_path):
    made = archive()
    for script in ("exit 1", 'echo half > "${last}"; exit 1'):
        program = tmp_path / "java"
        program.write_text(
            f"#!/bin/sh\nfor last in $@; do :; done\nlast=${{last#{OPTION}}}\n{script}"
        )
        made.write()
        wait_until(lambda: not list(folder.iterdir()), "the end of its writer")
        assert made.is_wanted


def test_a_java_that_has_listed_nothing_writes_none(archive, folder):
    made = archive()
    Path(list_of(made)).write_text("")
    made.write()
    assert list(folder.iterdir()) == []


def test_the_list_goes_with_the_archive(archive):
    made = archive()
    listed = Path(list_of(made))
    assert listed.exists()
    del made
    gc.collect()
    assert not listed.exists()


def test_only_the_newest_are_kept(archive, folder):
    made = []
    for number in range(4):
        made.append(written(archive(f"{number}")).path)
        os.utime(made[-1], (number, number))
    assert sorted(folder.iterdir()) == sorted(made[-2:])


def test_two_processes_do_not_write_the_same(archive, folder):
    first, second = archive(), archive()
    half = first.path.with_suffix(".123.list")
    half.touch()
    assert not second.is_wanted
    os.utime(half, (0, 0))  # its writer was killed
    assert second.is_wanted
    written(second)
    assert list(folder.iterdir()) == [second.path]


def test_a_list_that_is_gone_keeps_no_database_from_closing(archive, monkeypatch):
    """At the end of a program its temporary files may go before its databases close."""
    made = archive()
    Path(list_of(made)).unlink()
    monkeypatch.setattr(session._USERS, "archive", made)
    monkeypatch.setattr(session._USERS, "has_views", True)
    session._write_archive()
    assert not made.path.exists()
