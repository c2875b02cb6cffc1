"""Secrets that a statement writes out: in secrets.json, and in no segment of the log."""

from __future__ import annotations

import json

import pytest

import millstream as ms
from millstream.catalog.secrets import FILE_NAME, Secrets
from millstream.connectors.options import resolve
from millstream.errors import ConnectorFailedError

SINK = """CREATE SINK o FROM s WITH (connector = 'webhook', secret = 'hunter2',
headers = '{"X-Key": "hunter3"}', url = 'http://127.0.0.1:9/?token=hunter4', start = 'now')"""
WRITTEN = ("hunter2", "hunter3", "hunter4")


@pytest.fixture
def path(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.execute(SINK)
        db.execute("ALTER SINK o PAUSE")
    return tmp_path / "db"


def options_of(path):
    with ms.open(path) as db:
        return dict(db.context.engine.catalog.sink("o").connection.options)


def files_with(path, word):
    found = (each for each in path.rglob("*") if each.is_file())
    return {each.name for each in found if word.encode() in each.read_bytes()}


def test_the_log_has_none_and_the_connector_has_them(path):
    for word in WRITTEN:
        assert files_with(path, word) == {FILE_NAME}
    assert (path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    options = options_of(path)
    assert options["secret"] == "hunter2"
    assert options["url"] == "http://127.0.0.1:9/?token=hunter4"
    assert len(json.loads((path / FILE_NAME).read_text())["secrets"]) == 3  # PAUSE adds none


def test_they_are_forgotten_with_the_last_that_has_them(path):
    with ms.open(path) as db:
        db.execute(SINK.replace("SINK o", "SINK p"))
        db.execute("DROP SINK o")
        assert files_with(path, "hunter2") == {FILE_NAME}
        db.execute("DROP SINK p")
    for word in WRITTEN:
        assert files_with(path, word) == set()


def test_without_the_file_the_connector_says_what_to_do(path):
    (path / FILE_NAME).unlink()
    options = options_of(path)
    with pytest.raises(ConnectorFailedError, match=r"not in secrets\.json"):
        resolve(options["secret"])
    with ms.open(path) as db:
        db.execute("ALTER SINK o PAUSE")
        shown = db.query("SHOW CREATE o").fetchall()[0][1]
        assert "***" in shown
    assert not (path / FILE_NAME).exists()  # what is lost is no secret itself


def test_a_damaged_file_is_put_aside(path, caplog):
    (path / FILE_NAME).write_text("{")
    assert options_of(path)["secret"].startswith("${secret:")
    assert (path / "secrets.damaged").read_text() == "{"
    assert "secrets.damaged" in caplog.text


def test_a_directory_of_before(tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(Secrets, "take_out", lambda _, entry: entry)
        with ms.open(tmp_path) as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            db.execute(SINK)
    assert not (tmp_path / FILE_NAME).exists()
    assert options_of(tmp_path)["secret"] == "hunter2"
    with ms.open(tmp_path) as db:
        db.execute("ALTER SINK o PAUSE")
    assert options_of(tmp_path)["secret"] == "hunter2"
    assert (tmp_path / FILE_NAME).exists()
