"""Webhooks: the changes of a query, posted to an address, signed, each at least once.

A webhook is a durable subscription with a thread that posts. What its receiver does not accept is
tried again, later and later; after so many attempts it is put aside, as a dead letter, and the next
one is posted. Dead letters are kept in a file and can be replayed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from millstream.connectors.http import http_post, http_url, signature
from millstream.errors import (
    AddressRefusedError,
    Error,
    InvalidOptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReceiveTimeoutError,
)
from millstream.formats.json_output import to_json
from millstream.log.storage import PRIVATE_FILE, make_private, write_file
from millstream.masking import mask_url
from millstream.model.names import check_name
from millstream.server.addresses import AddressRules
from millstream.server.frames import batch_frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.database import Database
    from millstream.model.batch import ChangeBatch
    from millstream.subscriptions import OwnedName, Subscription

PREFIX: Final = "webhook."
"""What the names of their subscriptions begin with."""

_DEAD: Final = ".dead"
_LOOK: Final = 0.25
_SECONDS: Final = 10.0
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Webhook:
    """What is posted where.

    Attributes:
        name: unique among those of its tenant; its durable subscription is ``webhook.NAME``.
        sql: the query.
        url: where its changes are posted.
        secret: what they are signed with.
        tenant: only this tenant's rows; None: all.
        attempts: how often one delivery is tried.
        max_rows: how many rows are in one at most.
    """

    name: str
    sql: str
    url: str
    secret: str
    tenant: str | None = None
    attempts: int = 8
    max_rows: int = 1000

    @property
    def key(self) -> OwnedName:
        """Its tenant and its name."""
        return self.tenant, self.name

    def shown(self) -> dict[str, Any]:
        """What may be shown of it: without the secret, and secrets in the address."""
        shown = asdict(self)
        del shown["secret"]
        return shown | {"url": mask_url(self.url)}


def checked(webhook: Webhook) -> Webhook:
    """A webhook that can be; with a secret.

    Raises:
        InvalidOptionError: its address is none of HTTP, or a number is out of range.
        InvalidNameError: a name that cannot be.
    """
    check_name(webhook.name, "webhook")
    http_url(webhook.url)
    if not 1 <= webhook.attempts <= 100 or not 1 <= webhook.max_rows <= 100_000:
        raise InvalidOptionError("attempts are 1 to 100, and max_rows 1 to 100,000")
    return replace(webhook, secret=webhook.secret or secrets.token_urlsafe(32))


def pause_after(attempt: int) -> float:
    """Seconds before the next attempt: from one on, twice as long each time, a minute at most."""
    return min(60.0, 2.0 ** (attempt - 1))


def post(webhook: Webhook, rules: AddressRules, body: bytes, delivery: str) -> str | None:
    """Post a body, signed; returns why it was not accepted, or None."""
    headers = {
        "X-Millstream-Webhook": webhook.name,
        "X-Millstream-Delivery": delivery,
        "X-Millstream-Signature": signature(webhook.secret, body, int(time.time())),
    }
    check = None if webhook.tenant is None else rules.check
    try:
        answer = http_post(webhook.url, body, headers, _SECONDS, check)
    except AddressRefusedError as error:
        return error.message
    if answer.is_accepted:
        return None
    return answer.error or f"status {answer.status}"


class Sender:
    """Posts the changes of one webhook, in a thread of its own.

    Attributes:
        delivered: how many deliveries were accepted.
        failed: how many attempts were not.
        error: why it has ended, or None.
    """

    def __init__(
        self,
        webhook: Webhook,
        subscription: Subscription,
        dead: Path,
        pause: Callable[[int], float],
        rules: AddressRules,
    ) -> None:
        self.webhook = webhook
        self.delivered = self.failed = 0
        self.error: str | None = None
        self._subscription = subscription
        self._dead = dead
        self._pause = pause
        self._rules = rules
        self._stopped = threading.Event()
        self._writing = threading.Lock()
        name = f"millstream-webhook-{webhook.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                with contextlib.suppress(ReceiveTimeoutError):
                    batch = self._subscription.recv(_LOOK)
                    if not self._handled(batch):
                        return
                    self._subscription.ack(batch)
        except Error as error:
            self.error = error.message
        finally:
            self._subscription.cancel()

    def _handled(self, batch: ChangeBatch) -> bool:
        """Whether a batch was accepted or put aside; not, when the sender is stopped."""
        frames = ",".join(frame.json() for frame in batch_frames(batch))
        body = f'{{"webhook":{to_json(self.webhook.name)},"frames":[{frames}]}}'.encode()
        delivery = f"{batch.first_lsn}-{batch.lsn}"
        why: str | None = ""
        for attempt in range(1, self.webhook.attempts + 1):
            why = post(self.webhook, self._rules, body, delivery)
            if why is None:
                self.delivered += 1
                return True
            self.failed += 1
            last = attempt == self.webhook.attempts
            if not last and self._stopped.wait(self._pause(attempt)):
                return False
        self._put_aside(body, delivery, why)
        return True

    # ---- dead letters

    def _put_aside(self, body: bytes, delivery: str, why: str | None) -> None:
        line = to_json({"delivery": delivery, "why": why, "body": body.decode()})
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with (
            self._writing,
            os.fdopen(os.open(self._dead, flags, PRIVATE_FILE), "w", encoding="utf-8") as file,
        ):
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def dead_letters(self) -> list[dict[str, Any]]:
        """The deliveries that were put aside, the oldest first."""
        try:
            lines = self._dead.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def replay(self) -> tuple[int, int]:
        """Post dead letters once more; returns how many were accepted, and how many were not."""
        with self._writing:
            letters = self.dead_letters()
            left = [
                each
                for each in letters
                if post(self.webhook, self._rules, each["body"].encode(), each["delivery"])
                is not None
            ]
            write_file(self._dead, [f"{to_json(each)}\n".encode() for each in left])
        return len(letters) - len(left), len(left)

    def stop(self) -> None:
        """End after the delivery at hand; what was not accepted is posted the next time."""
        self._stopped.set()
        self._thread.join(_SECONDS + _LOOK)


class Webhooks:
    """The webhooks of a database, kept in a directory of it; each tenant has names of its own.

    Args:
        database: whose changes are posted.
        pause: seconds before an attempt is repeated, by its number.
        rules: which addresses the webhooks of tenants may reach; those of no tenant reach all.
    """

    def __init__(
        self,
        database: Database,
        pause: Callable[[int], float] = pause_after,
        rules: AddressRules | None = None,
    ) -> None:
        self._database = database
        self._pause = pause
        self._rules = rules or AddressRules()
        self._directory = database.path / "webhooks"
        self._lock = threading.Lock()
        self._senders: dict[OwnedName, Sender] = {}

    def start(self) -> None:
        """Start those that were added before."""
        found = (*self._directory.glob("*.json"), *self._directory.glob("*/*.json"))
        for path in sorted(found):
            with self._lock, contextlib.suppress(Error, ValueError, TypeError):
                webhook = Webhook(**json.loads(path.read_text(encoding="utf-8")))
                self._put_in_place(path, self._file(webhook))
                self._start(webhook)

    def _file(self, webhook: Webhook) -> Path:
        """Where a webhook is kept; its dead letters are beside it."""
        directory = self._directory
        if webhook.tenant is not None:  # whose name may have any characters
            digest = hashlib.sha256(webhook.tenant.encode("utf-8", "surrogatepass")).hexdigest()
            directory /= f"tenant-{digest[:32]}"
        return directory / f"{webhook.name}.json"

    @staticmethod
    def _put_in_place(path: Path, right: Path) -> None:
        """Move the files of a tenant's webhook from where earlier versions have put them."""
        if path == right:
            return
        make_private(right.parent)
        with contextlib.suppress(FileNotFoundError):
            path.with_suffix(_DEAD).replace(right.with_suffix(_DEAD))
        path.replace(right)

    def add(self, webhook: Webhook) -> Webhook:
        """Add one; it posts what is committed from now on, of a view first its rows.

        Raises:
            ObjectExistsError: the tenant has one of that name.
            InvalidOptionError: the tenant has too many.
            AddressRefusedError: a tenant's webhook may not reach the address.
        """
        webhook = checked(webhook)
        if webhook.tenant is not None:
            self._rules.check_host(urlsplit(webhook.url).hostname or "")
        with self._lock:
            if webhook.key in self._senders:
                raise ObjectExistsError(f"there is a webhook {webhook.name!r} already")
            if sum(tenant == webhook.tenant for tenant, _ in self._senders) >= _MOST:
                raise InvalidOptionError(f"there are {_MOST} webhooks already")
            file = self._file(webhook)
            make_private(file.parent)
            write_file(file, [to_json(asdict(webhook)).encode()])
            with contextlib.ExitStack() as undo:
                undo.callback(file.unlink)
                self._start(webhook)
                undo.pop_all()
        return webhook

    def _start(self, webhook: Webhook) -> None:
        subscription = self._database.subscribe(
            webhook.sql,
            name=PREFIX + webhook.name,
            max_rows=webhook.max_rows,
            tenant=webhook.tenant,
        )
        dead = self._file(webhook).with_suffix(_DEAD)
        self._senders[webhook.key] = Sender(webhook, subscription, dead, self._pause, self._rules)

    def __getitem__(self, key: OwnedName) -> Sender:
        found = self._senders.get(key)
        if found is None:
            raise ObjectNotFoundError(f"there is no webhook {key[1]!r}"[:200])
        return found

    def find(self, tenant: str | None, name: str) -> OwnedName:
        """The key of the webhook that a tenant means by a name.

        Without a tenant, a name that only one tenant uses means that one's.

        Raises:
            ObjectNotFoundError: there is none.
            InvalidOptionError: several tenants use the name.
        """
        owners = [owner for owner, each in list(self._senders) if each == name]
        if tenant is None and None not in owners:
            if len(owners) > 1:
                raise InvalidOptionError(
                    f"{len(owners)} tenants have a webhook {name!r}", hint="say whose: ?tenant=NAME"
                )
            tenant = owners[0] if owners else None
        return self[tenant, name].webhook.key

    def shown(self, tenant: str | None) -> list[dict[str, Any]]:
        """What there is, and how it goes; to a tenant, its own."""
        return [
            each.webhook.shown()
            | {"delivered": each.delivered, "failed": each.failed, "error": each.error}
            | {"dead": len(each.dead_letters())}
            for each in list(self._senders.values())
            if tenant is None or each.webhook.tenant == tenant
        ]

    def remove(self, key: OwnedName) -> None:
        """Remove one, with its subscription and its dead letters."""
        sender = self[key]
        sender.stop()
        file = self._file(sender.webhook)
        with self._lock:
            self._senders.pop(key, None)
            for each in (file, file.with_suffix(_DEAD)):
                each.unlink(missing_ok=True)
        tenant, name = key
        self._database.execute(f'DROP SUBSCRIPTION IF EXISTS "{PREFIX}{name}"', tenant=tenant)

    def close(self) -> None:
        """Stop them all."""
        senders, self._senders = self._senders, {}
        for each in senders.values():
            each.stop()
