"""How a task and the database prove to each other that they know the secret, without sending it.

Each side sends 32 random bytes, and an HMAC over both under the secret. The server's proof comes
first, so that a program that merely listens on the port learns nothing and is not served.
``Wire.java`` is the other side.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC: Final = b"MSB2"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32


def proof(secret: bytes, side: bytes, task_nonce: bytes, server_nonce: bytes) -> bytes:
    """What only a side that knows the secret can send.

    Args:
        secret: the shared secret.
        side: ``b"server"`` or ``b"task"``, so that neither proof can be sent back as the other.
        task_nonce: the task's random bytes.
        server_nonce: the server's.
    """
    return hmac.digest(secret, side + task_nonce + server_nonce, "sha256")


def admit(secret: bytes, read: Callable[[int], bytes], send: Callable[[bytes], None]) -> bool:
    """The server's part: whether the peer knows the secret.

    Args:
        secret: the shared secret.
        read: gives so many bytes of the peer's.
        send: sends bytes to it.
    """
    if read(len(MAGIC)) != MAGIC:
        return False
    theirs, ours = read(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
    send(ours + proof(secret, b"server", theirs, ours))
    return hmac.compare_digest(read(PROOF_BYTES), proof(secret, b"task", theirs, ours))
