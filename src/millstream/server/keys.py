"""API keys: who may use a server, as whom. They are stored hashed, in a file of their own.

A key is text with 256 random bits. The file has its SHA-256, which HTTP compares with; random keys
need no slow hash. For PostgreSQL's protocol it has a SCRAM-SHA-256 verifier (RFC 5802): the user is
the key's name, the password is the key.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import InvalidOptionError, KeyFileError
from millstream.log.storage import write_file
from millstream.model.names import check_name
from millstream.server.roles import ROLES, Identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.server.roles import Role

FILE_NAME: Final = "keys.json"
PREFIX: Final = "msk_"
"""What every key begins with, so that scanners of source code find those that were left there."""

_ITERATIONS: Final = 4096
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ScramVerifier:
    """What a server needs to check a SCRAM-SHA-256 proof; the key does not follow from it.

    Attributes:
        salt: of this key.
        iterations: of the hash.
        stored_key: SHA-256 of the client's key.
        server_key: what the server signs with.
    """

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, salt: bytes, iterations: int = _ITERATIONS) -> ScramVerifier:
        """The verifier of a password, which is ASCII and so needs no SASLprep."""
        salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, iterations)
        client = hmac.digest(salted, b"Client Key", "sha256")
        stored = hashlib.sha256(client).digest()
        return cls(salt, iterations, stored, hmac.digest(salted, b"Server Key", "sha256"))


@dataclass(frozen=True, slots=True)
class Key:
    """One key, without the key itself.

    Attributes:
        name: unique; PostgreSQL's user name.
        tenant: whose rows it sees; None: all.
        role: what it may do.
        created: when it was made, ISO 8601 in UTC.
        digest: SHA-256 of the key.
        scram: for PostgreSQL's protocol.
    """

    name: str
    tenant: str | None
    role: Role
    created: str
    digest: bytes
    scram: ScramVerifier

    @property
    def identity(self) -> Identity:
        """Who uses it."""
        return Identity(self.name, self.tenant, self.role)

    def __repr__(self) -> str:
        return f"<Key {self.name!r}: {self.role}, tenant {self.tenant!r}>"


class Keys:
    """The keys in a file. A server sees at once what ``millstream keys`` changes in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     keys = Keys(directory)
    ...     secret = keys.create("dashboard", role="read", tenant="acme")
    ...     keys.find(secret), keys.find("something else")
    (<Key 'dashboard': read, tenant 'acme'>, None)

    Args:
        path: the file; or a directory, in which it is ``keys.json``.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self.path = path if path.suffix == ".json" else path / FILE_NAME
        self._seen: tuple[int, int, int] | None = None
        self._by_name: dict[str, Key] = {}
        self._by_digest: dict[bytes, Key] = {}

    # ---- looking up

    def find(self, secret: str) -> Key | None:
        """The key that a text is; None when it is none."""
        self._refresh()
        digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
        return self._by_digest.get(digest)  # of hashes, how long a look takes reveals nothing

    def get(self, name: str) -> Key | None:
        """The key of a name; None when there is none."""
        self._refresh()
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[Key]:
        self._refresh()
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        self._refresh()
        return len(self._by_name)

    # ---- changing

    def create(self, name: str, *, role: Role = "read", tenant: str | None = None) -> str:
        """Make a key; returns its text, which is stored nowhere.

        Raises:
            InvalidOptionError: the name is taken, or there is no such role.
            InvalidNameError: the name has characters that names may not have.
        """
        check_name(name, "key")
        if role not in ROLES:
            raise InvalidOptionError(f"role is {role!r}", hint=f"one of {', '.join(ROLES)}")
        secret = PREFIX + secrets.token_urlsafe(32)
        key = Key(
            name,
            tenant,
            role,
            datetime.now(UTC).isoformat(timespec="seconds"),
            hashlib.sha256(secret.encode("ascii")).digest(),
            ScramVerifier.of(secret, secrets.token_bytes(16)),
        )
        with self._changing() as by_name:
            if name in by_name:
                raise InvalidOptionError(
                    f"there is a key {name!r} already", hint="revoke it first, or use another name"
                )
            by_name[name] = key
        return secret

    def revoke(self, name: str) -> None:
        """Remove a key; connections that were opened with it end with their next request.

        Raises:
            InvalidOptionError: there is no such key.
        """
        with self._changing() as by_name:
            if by_name.pop(name, None) is None:
                raise InvalidOptionError(f"there is no key {name!r}", hint="millstream keys list")

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Key]]:
        """The keys by name, to be changed; written when the block ends without an error."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not the directory itself, which an open database has locked.
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._seen = None
            self._refresh()
            changed = dict(self._by_name)
            yield changed
            content = {"version": _VERSION, "keys": list(map(_to_json, changed.values()))}
            write_file(self.path, [json.dumps(content, indent=2).encode()])
            self._refresh()
        finally:
            os.close(lock)

    def _refresh(self) -> None:
        """Read the file if it is another one than the last that was read."""
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen == self._seen:
                return
            keys = _read(self.path)
        except FileNotFoundError:
            seen, keys = None, []
        self._by_name = {each.name: each for each in keys}
        self._by_digest = {each.digest: each for each in keys}
        self._seen = seen


# ---- the file


def _read(path: Path) -> list[Key]:
    try:
        found = json.loads(path.read_bytes())
        if found["version"] != _VERSION:
            raise KeyFileError(
                f"{path} was written by a newer Millstream", hint="upgrade Millstream here"
            )
        return [_from_json(each) for each in found["keys"]]
    except (ValueError, KeyError, TypeError) as error:  # without what is in it
        raise KeyFileError(
            f"{path} is damaged", hint="restore it, or remove it and create the keys again"
        ) from error


def _to_json(key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "tenant": key.tenant,
        "role": key.role,
        "created": key.created,
        "sha256": key.digest.hex(),
        "scram": {
            "salt": _text(key.scram.salt),
            "iterations": key.scram.iterations,
            "stored_key": _text(key.scram.stored_key),
            "server_key": _text(key.scram.server_key),
        },
    }


def _from_json(found: dict[str, Any]) -> Key:
    scram = found["scram"]
    if found["role"] not in ROLES:
        raise ValueError("an unknown role")
    return Key(
        found["name"],
        found["tenant"],
        found["role"],
        found["created"],
        bytes.fromhex(found["sha256"]),
        ScramVerifier(
            base64.b64decode(scram["salt"]),
            scram["iterations"],
            base64.b64decode(scram["stored_key"]),
            base64.b64decode(scram["server_key"]),
        ),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
