"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, without I/O.

The server has no password, only what a password can be checked with.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from millstream.server.keys import ScramVerifier
from millstream.server.postgres.errors import PostgresError, ProtocolError

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 4096


class Scram:
    """One exchange with a client.

    Args:
        verifier: of the user.
        nonce: the server's part of the nonce; None: random.
    """

    def __init__(self, verifier: ScramVerifier, nonce: str | None = None) -> None:
        self._verifier = verifier
        self._nonce = nonce or secrets.token_urlsafe(18)
        self._first = ""

    def first(self, data: bytes) -> str:
        """The server's first message, for the client's first message.

        Raises:
            ProtocolError: it is none.
        """
        message = _text(data)
        flag, _, rest = message.partition(",")
        identity, _, bare = rest.partition(",")
        if flag not in {"n", "y"} or (identity and not identity.startswith("a=")):
            raise ProtocolError(
                "SCRAM without channel binding is expected", hint="channel_binding=prefer"
            )
        client = _attributes(bare).get("r")
        if not client:
            raise ProtocolError("a SCRAM message without a nonce")
        self._header = f"{flag},{identity},"
        self._nonce = client + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        reply = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._first = f"{bare},{reply}"
        return reply

    def final(self, data: bytes) -> str:
        """The server's last message, for the client's proof.

        Raises:
            PostgresError: the password is wrong.
            ProtocolError: it is no proof.
        """
        message = _text(data)
        without_proof, _, proof = message.rpartition(",p=")
        given = _attributes(without_proof)
        header = base64.b64encode(self._header.encode()).decode()
        if given.get("r") != self._nonce or given.get("c") != header:
            raise ProtocolError("a SCRAM message of another exchange")
        signed = f"{self._first},{without_proof}".encode()
        signature = hmac.digest(self._verifier.stored_key, signed, "sha256")
        try:
            sent = base64.b64decode(proof, validate=True)
        except (ValueError, binascii.Error) as error:
            raise ProtocolError("a SCRAM proof that is not base64") from error
        key = bytes(a ^ b for a, b in zip(sent, signature, strict=False))
        if len(sent) != len(signature) or not hmac.compare_digest(
            hashlib.sha256(key).digest(), self._verifier.stored_key
        ):
            raise wrong_password()
        answer = hmac.digest(self._verifier.server_key, signed, "sha256")
        return f"v={base64.b64encode(answer).decode()}"


def nobody(user: str, secret: bytes) -> ScramVerifier:
    """A verifier that no password fits, the same salt for the same name: names stay secret."""
    salt = hmac.digest(secret, user.encode("utf-8", "replace"), "sha256")[:16]
    return ScramVerifier(salt, ITERATIONS, secrets.token_bytes(32), secrets.token_bytes(32))


def wrong_password() -> PostgresError:
    """What a client gets whose name or key is wrong: it does not say which."""
    return PostgresError(
        "password authentication failed",
        sqlstate="28P01",
        hint="the user is the name of a key, and the password the key",
        is_fatal=True,
    )


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("a SCRAM message that is not UTF-8") from error


def _attributes(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}
