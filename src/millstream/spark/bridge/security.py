"""How the bridge's two sides trust each other: a proof of the shared secret, and a certificate.

The proof: each side sends 32 random bytes, and an HMAC over both under the secret. The server's
proof comes first, so that a program that merely listens on the port learns nothing and is not
served. ``Wire.java`` is the other side.

The certificate: made at the start of each run, and the only one that tasks accept. Only for a Spark
on other machines: what stays on the loopback address is not encrypted.
"""

from __future__ import annotations

import datetime
import hmac
import secrets
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC: Final = b"MSB2"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
_VALID: Final = datetime.timedelta(days=3650)
_CLOCKS_DIFFER: Final = datetime.timedelta(days=1)


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


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that signs itself.

    Attributes:
        context: serves connections with it.
        der: its public part, for the tasks to compare with.
    """

    context: ssl.SSLContext
    der: bytes


def make_certificate() -> Certificate:
    """A new key, and a certificate for it; the key is in this process's memory alone.

    Raises:
        MissingExtraError: the package that makes keys is not installed.
    """
    try:
        from cryptography import x509  # noqa: PLC0415 - only with Spark on other machines
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "Spark runs on other machines, and rows are not sent there unencrypted",
            hint="pip install 'millstream[cluster]' brings what encrypts them",
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "millstream")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding
    text = key.private_bytes(
        encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(encoding.PEM)
    return Certificate(_context(text), certificate.public_bytes(encoding.DER))


def _context(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Python's ssl reads keys from files only: one that nobody else can read, for a moment.
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        file = Path(folder) / "bridge.pem"
        file.touch(mode=0o600)
        file.write_bytes(pem)
        context.load_cert_chain(file)
    return context
