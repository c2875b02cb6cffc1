"""Copies of Spark's signed jars, whose classes Java can put into an archive."""

import subprocess
import sys
import zipfile

import pytest

from millstream.spark import internals, unsigned_jars
from millstream.spark.java_home import find_java

MANIFEST = "META-INF/MANIFEST.MF"
BEGINNING = "Manifest-Version: 1.0\r\n\r\n"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A folder of jars, one of them signed, and the folder where copies are kept."""
    jars, kept = tmp_path / "jars", tmp_path / "kept"
    jars.mkdir()
    kept.mkdir()
    with zipfile.ZipFile(jars / "janino-3.jar", "w") as jar:
        jar.writestr("META-INF/", "")
        jar.writestr(MANIFEST, BEGINNING + "Name: A.class\r\nSHA-256-Digest: x\r\n")
        jar.writestr("META-INF/3.SF", "x")
        jar.writestr("META-INF/3.RSA", "x")
        jar.writestr("A.class", "class A")
    (jars / "other-1.jar").write_bytes(b"other")
    monkeypatch.setattr(internals, "spark_jars", lambda: jars)
    monkeypatch.setattr(unsigned_jars, "kept_folder", lambda: kept)
    return jars, kept


def test_a_copy_has_the_classes_and_no_signature(folders):
    (copy,) = unsigned_jars.unsigned_jars()
    with zipfile.ZipFile(copy) as jar:
        assert jar.namelist() == [MANIFEST, "A.class"]
        assert jar.read("A.class") == b"class A"
        assert jar.read(MANIFEST) == BEGINNING.encode()


def test_a_copy_is_made_once_and_is_always_the_same(folders):
    jars, kept = folders
    (copy,) = unsigned_jars.unsigned_jars()
    made, data = copy.stat(), copy.read_bytes()
    assert made.st_mtime_ns == (jars / "janino-3.jar").stat().st_mtime_ns
    assert unsigned_jars.unsigned_jars() == [copy]
    assert copy.stat().st_ino == made.st_ino
    copy.unlink()
    assert unsigned_jars.unsigned_jars() == [copy]
    assert (copy.read_bytes(), copy.stat().st_mtime_ns) == (data, made.st_mtime_ns)
    assert list(kept.iterdir()) == [copy]


def test_another_version_of_the_jar_has_another_copy(folders):
    jars, kept = folders
    (before,) = unsigned_jars.unsigned_jars()
    with zipfile.ZipFile(jars / "janino-3.jar", "a") as jar:
        jar.writestr("B.class", "class B")
    (after,) = unsigned_jars.unsigned_jars()
    assert after != before
    assert list(kept.iterdir()) == [after]


def test_without_a_folder_or_a_whole_jar_there_is_none(folders, monkeypatch):
    jars, kept = folders
    (jars / "janino-3.jar").write_bytes(b"half a jar")
    assert unsigned_jars.unsigned_jars() == []
    assert not list(kept.iterdir())
    monkeypatch.setattr(unsigned_jars, "kept_folder", lambda: None)
    assert unsigned_jars.unsigned_jars() == []


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such Java")
def test_java_takes_what_is_left_of_spark_s_jars_for_unsigned(tmp_path):
    """Spark's two are signed, and their copies are not, as ``jarsigner`` of this Java says."""
    signer = find_java().path.resolve().parent / "jarsigner"
    if not signer.exists():
        pytest.skip("this Java has no jarsigner")
    for name in ("janino", "commons-compiler"):
        (jar,) = internals.spark_jars().glob(f"{name}-[0-9]*.jar")
        copy = tmp_path / jar.name
        unsigned_jars.write_unsigned(jar, copy)
        said = [
            subprocess.run([signer, "-verify", each], capture_output=True, text=True, check=False)
            for each in (jar, copy)
        ]
        assert "jar is unsigned" not in said[0].stdout
        assert "jar is unsigned" in said[1].stdout
