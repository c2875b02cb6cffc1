"""Streams: the frames of one client's subscription, from its start to its end.

A stream reads the log, or the snapshot, through a subscription of its own until it has caught up.
Then, if its policy is ``block``, it steps into the tail that all clients of the same query share,
and its own subscription ends. A client that is too slow for the tail goes back to the log. So a
client that stalls costs a bounded queue, and holds nothing back. With any other policy, with
demand, limits or a name, a stream keeps its own subscription, and the database does what it says.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.catalog import SYSTEM
from millstream.errors import (
    ClosedError,
    Error,
    InvalidOptionError,
    ObjectNotFoundError,
    ReceiveTimeoutError,
    SubscriptionEndedError,
)
from millstream.formats.json_output import to_json
from millstream.server.frames import (
    batch_frames,
    end_frame,
    error_frame,
    progress_frame,
    ready_frame,
    waiting_frame,
)
from millstream.server.tails import HEARTBEAT, Member
from millstream.server.webhooks import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from millstream.engine.session import Session
    from millstream.server.frames import Frame
    from millstream.server.roles import Identity
    from millstream.server.service import Service
    from millstream.server.tails import Tail
    from millstream.server.wanted import Wanted
    from millstream.subscriptions import AsyncSubscription


_SIMPLE: Final = ("changes", "progress")
"""Frames after which a stream goes on as before."""


class Stream:
    """The frames of one subscription.

    Args:
        service: what it runs in.
        session: of the client.
        identity: who the client is.
        wanted: what it has asked for.
        write_now: sends a frame without waiting; False when that cannot be. None: nothing can.
    """

    def __init__(
        self,
        service: Service,
        session: Session,
        identity: Identity,
        wanted: Wanted,
        write_now: Callable[[Frame], bool] | None = None,
    ) -> None:
        self._service = service
        self._session = session
        self._identity = identity
        self._wanted = wanted
        self._write_now = write_now
        self._subscription: AsyncSubscription | None = None
        self._place: tuple[Tail, Member | None] | None = None
        self._token, self._lsn = "", 0
        self._has_rows = isinstance(wanted.start, str) and wanted.start.startswith("ms")
        self._in_snapshot = False
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()

    # ---- what the client may do with it

    def pause(self) -> None:
        """Send nothing until ``resume``; what comes meanwhile is kept, as the policy says."""
        self._may_go_on.clear()

    def resume(self) -> None:
        """Go on after ``pause``."""
        self._may_go_on.set()

    def request(self, rows: int) -> None:
        """Ask for so many rows more.

        Raises:
            InvalidOptionError: it was not opened with demand.
        """
        if self._wanted.demand is None or self._subscription is None:
            raise InvalidOptionError(
                "the subscription has no demand", hint='subscribe with "demand": 0'
            )
        self._subscription.request(rows)

    def ack(self, token: str | int | None) -> None:
        """Acknowledge everything up to a token or an LSN, or all that was sent.

        Raises:
            InvalidOptionError: it has no name, or that was not sent yet.
        """
        if self._subscription is None:
            raise InvalidOptionError("the subscription has no name", hint="subscribe with a name")
        self._subscription.ack(token)

    # ---- its frames

    async def frames(self) -> AsyncIterator[Frame]:
        """All frames, from ``ready`` to ``end``. Errors of the database are frames, too."""
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("frames are read by a task")
        streaming = self._service.streaming
        streaming[task] = self._identity
        try:
            subscription = await self._open(self._wanted)
            yield self._sent(self._ready(subscription))
            try:
                async for frame in self._all(subscription):
                    await self._may_go_on.wait()
                    yield self._sent(frame)
                    if frame.type == "end":
                        return
            except ObjectNotFoundError as error:  # dropped while it stepped into a tail, or out
                raise SubscriptionEndedError(error.message) from error
        except ClosedError:
            yield end_frame(self._token, self._lsn)
        except Error as error:
            yield error_frame(error)
            yield end_frame(self._token, self._lsn)
        except asyncio.CancelledError:
            if not self._service.is_stopping:
                raise
            task.uncancel()
            yield end_frame(self._token, self._lsn)
        finally:
            streaming.pop(task, None)
            self._leave()

    def _sent(self, frame: Frame) -> Frame:
        if frame.token:
            self._token, self._lsn = frame.token, frame.lsn
        self._service.measures.frames[frame.type] += 1
        return frame

    def _ready(self, subscription: AsyncSubscription) -> Frame:
        return ready_frame(subscription)

    async def _all(self, subscription: AsyncSubscription) -> AsyncIterator[Frame]:
        while True:
            async for frame in self._own(subscription):
                yield frame
            # It has stepped into the tail; when it comes out, it was too slow.
            async for frame in self._shared():
                yield frame
            subscription = await self._open(replace(self._wanted, start=self._token))

    async def _open(self, wanted: Wanted) -> AsyncSubscription:
        """A subscription of the database; opening one may wait for Spark, so not here."""
        self._subscription = await self._service.openings.run(
            lambda: self._subscribed(wanted), self._service.owner(self._identity)
        )
        return self._subscription

    def _subscribed(self, wanted: Wanted) -> AsyncSubscription:
        """Subscribe, if the client may; in a thread of its own."""
        if wanted.name is not None and wanted.name.lower().startswith((PREFIX, SYSTEM)):
            raise InvalidOptionError(
                f"names that begin with {PREFIX} are those of webhooks, and with {SYSTEM} the "
                "database's own, those of sinks among them",
                hint="use another",
            )
        return self._session.subscribe_stream(
            wanted.sql,
            wanted.parameters,
            start=wanted.start,
            backpressure=wanted.backpressure,
            buffer_rows=wanted.buffer_rows,
            max_rows=wanted.max_rows,
            max_delay=wanted.max_delay,
            demand=wanted.demand,
            name=wanted.name,
        )

    def _leave(self) -> None:
        """End what it reads from; called more than once."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.cancel()
        place, self._place = self._place, None
        if place is not None:
            place[0].leave(place[1])

    # ---- from a subscription of its own

    async def _own(self, subscription: AsyncSubscription) -> AsyncIterator[Frame]:
        """Its frames, until it has stepped into the tail."""
        has_told = False
        while True:
            try:
                batch = await subscription.recv(0.0)
            except ReceiveTimeoutError:
                if subscription.awaits_snapshot:
                    yield waiting_frame(subscription)
                elif not has_told:
                    has_told = True
                    yield progress_frame(subscription)
                if has_told and self._wanted.may_share and await self._step_in(subscription):
                    return
                try:
                    batch = await subscription.recv(HEARTBEAT)
                except ReceiveTimeoutError:
                    if has_told:
                        yield progress_frame(subscription)
                    continue
            if has_told:  # what came before it had caught up is old, or a snapshot
                self._service.measures.delivered(batch.topic, batch.committed_at)
            was_snapshot, self._in_snapshot = self._in_snapshot, batch.kind == "snapshot"
            for frame in batch_frames(batch, resets=self._has_rows and not was_snapshot):
                yield frame
            self._has_rows = True

    async def _step_in(self, subscription: AsyncSubscription) -> bool:
        """Join the tail of the query, if what this client has is new enough for it."""
        wanted = self._wanted
        key = (self._identity.tenant, wanted.sql, to_json(wanted.parameters))
        tail = await self._service.tails.get(key, wanted.encoding, self._open_tail)
        self._place = tail, None
        position = subscription.settled
        hand_over = None if self._write_now is None else self._hand_over
        member = Member(position, wanted.buffer_rows, hand_over)
        if not tail.join(member, position):
            return False
        self._leave()
        self._place = tail, member
        return True

    async def _open_tail(self) -> AsyncSubscription:
        wanted = self._wanted
        database, tenant = self._service.database, self._identity.tenant
        return await self._service.openings.run(
            lambda: database.subscribe_stream(
                wanted.sql, wanted.parameters, start="now", tenant=tenant
            ),
            self._service.owner(self._identity),
        )

    # ---- from the tail

    def _hand_over(self, frame: Frame) -> bool:
        """Send a frame of the tail now, past those who read ``frames``, which wait for one."""
        if frame.type not in _SIMPLE or not self._may_go_on.is_set() or self._write_now is None:
            return False
        if not self._write_now(frame):
            return False
        self._sent(frame)
        self._in_snapshot = False
        return True

    async def _shared(self) -> AsyncIterator[Frame]:
        """The frames of the tail, until this client was too slow for it."""
        member = None if self._place is None else self._place[1]
        while member is not None and (frame := await member.take()) is not None:
            self._in_snapshot = frame.type == "snapshot"
            yield frame
        self._leave()
