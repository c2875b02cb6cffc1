from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat

import pytest

import millstream as ms
from millstream.errors import InvalidNameError, InvalidOptionError, KeyFileError
from millstream.server.keys import Keys


@pytest.fixture
def keys(tmp_path):
    return Keys(tmp_path)


def test_a_key_is_found_by_its_text_and_by_its_name(keys):
    secret = keys.create("dashboard", role="read", tenant="acme")
    found = keys.find(secret)
    assert found is keys.get("dashboard")
    assert (found.identity.name, found.identity.tenant, found.identity.role) == (
        "dashboard",
        "acme",
        "read",
    )
    assert keys.find(secret + "x") is None
    assert keys.find("") is None
    assert keys.find("\udcff") is None


def test_keys_are_stored_hashed_for_their_owner_only(keys):
    secret = keys.create("a")
    assert secret not in keys.path.read_text()
    assert stat.S_IMODE(os.stat(keys.path).st_mode) == 0o600
    assert secret not in repr(keys.get("a"))


def test_another_handle_sees_what_is_created_and_revoked(keys, tmp_path):
    other = Keys(tmp_path)
    assert list(other) == []
    secret = keys.create("a", role="write")
    assert other.find(secret).role == "write"
    keys.create("b")
    assert [each.name for each in other] == ["a", "b"]
    keys.revoke("a")
    assert other.find(secret) is None
    assert len(other) == 1


def test_the_verifier_accepts_the_proof_of_rfc_5802(keys):
    secret = keys.create("a")
    scram = keys.get("a").scram
    message = b"n=a,r=x,r=xy,s=...,i=4096,c=biws,r=xy"
    salted = hashlib.pbkdf2_hmac("sha256", secret.encode(), scram.salt, scram.iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    proof = bytes(
        a ^ b for a, b in zip(client, hmac.digest(scram.stored_key, message, "sha256"), strict=True)
    )
    signature = hmac.digest(scram.stored_key, message, "sha256")
    recovered = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(recovered).digest() == scram.stored_key
    assert hmac.digest(salted, b"Server Key", "sha256") == scram.server_key


def test_what_cannot_be(keys):
    keys.create("a")
    with pytest.raises(InvalidOptionError, match="already"):
        keys.create("a")
    with pytest.raises(InvalidOptionError, match="role"):
        keys.create("b", role="root")
    with pytest.raises(InvalidNameError):
        keys.create("")
    with pytest.raises(InvalidOptionError, match="no key"):
        keys.revoke("b")
    assert len(keys) == 1


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"version": 1, "keys": [{}]}'])
def test_a_damaged_file_lets_nobody_in(tmp_path, content):
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(KeyFileError):
        Keys(tmp_path).find("x")


def test_a_newer_file(tmp_path):
    (tmp_path / "keys.json").write_text(json.dumps({"version": 2, "keys": []}))
    with pytest.raises(KeyFileError, match="newer"):
        list(Keys(tmp_path))


def test_the_file_lies_in_the_directory_of_the_database(tmp_path):
    secret = Keys(tmp_path / "db").create("a")
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with ms.open(tmp_path / "db") as db:
        assert db.query("SELECT * FROM t").fetchall() == []
    assert Keys(tmp_path / "db").find(secret).name == "a"
