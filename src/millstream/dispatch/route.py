"""Routes: which subscribers get what of each topic's batches.

Subscribers with the same query share a route: it is evaluated once, and all are given the same
batch. Queries that ask for one value of a column (``symbol = 'AAPL'``) are found through an index
from value to route, so that a batch costs one look-up a row, however many routes there are.

Routes change while the dispatcher reads them, without a lock: each step is one assignment, and a
batch that is under way just then is settled by its LSN (see ``subscriptions``).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import Error, SubscriptionEndedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.dispatch.tasks import Batches
    from millstream.model.batch import ChangeBatch
    from millstream.sql import Predicate, SelectPlan


class Subscriber(Protocol):
    """Is offered batches by the dispatcher's thread. Must neither wait nor raise.

    Attributes:
        outlives_failures: whether it stays when the view that it reads has failed, and gets the
            view's changes once that goes on.
    """

    outlives_failures: bool

    def offer(self, batch: ChangeBatch) -> None:
        """Take a batch."""

    def fail(self, error: Error) -> None:
        """End: the query cannot go on."""


def select(batch: ChangeBatch, plan: SelectPlan) -> ChangeBatch | None:
    """What a query keeps of a batch; None when it keeps nothing.

    Raises:
        ExpressionError: the query has no value for some row.
    """
    return _select(batch, plan, plan.predicate)


def _select(
    batch: ChangeBatch, plan: SelectPlan, predicate: Predicate | None
) -> ChangeBatch | None:
    if predicate is not None:
        kept = _filter(batch, predicate)
        if kept is None:
            return None
        batch = kept
    projection = plan.projection
    if projection is None:
        return batch
    if batch.is_arrow:
        return batch.with_columns(plan.schema, None, projection.arrow(batch.arrow))
    return batch.with_columns(plan.schema, projection.rows(batch.held_rows), None)


def _filter(batch: ChangeBatch, predicate: Predicate) -> ChangeBatch | None:
    size = len(batch)
    if not size:  # a lone watermark
        return batch
    if batch.is_arrow:
        mask = predicate.mask(batch.arrow)
        count = mask.true_count
        if count == size:
            return batch
        return batch.keep_mask(mask) if count else None
    places = predicate.places(batch.held_rows)
    if len(places) == size:
        return batch
    return batch.keep_places(places) if places else None


class Route:
    """One query over one topic, and all its subscribers."""

    __slots__ = ("plan", "subscribers")

    def __init__(self, plan: SelectPlan, subscribers: tuple[Subscriber, ...]) -> None:
        self.plan = plan
        self.subscribers = subscribers

    def deliver(self, batch: ChangeBatch, predicate: Predicate | None) -> None:
        """Offer what the query keeps of a batch; what it cannot evaluate ends the route only."""
        plan = self.plan
        if predicate is None and plan.projection is None:  # all rows, for a view, say
            for subscriber in self.subscribers:
                subscriber.offer(batch)
            return
        try:
            kept = _select(batch, plan, predicate)
        except Exception as raised:  # noqa: BLE001 - other queries go on
            error = raised if isinstance(raised, Error) else _broken(plan, raised)
            for subscriber in self.subscribers:
                subscriber.fail(error)
            return
        if kept is not None:
            for subscriber in self.subscribers:
                subscriber.offer(kept)


def _broken(plan: SelectPlan, raised: Exception) -> Error:
    return SubscriptionEndedError(
        f"the query failed: {plan.fingerprint}: {type(raised).__name__}: {raised}",
        hint="this is a bug in Millstream, please report it",
    )


class Routes:
    """All routes of one topic. Changed by any thread, read by the dispatcher without a lock.

    Attributes:
        by_query: the routes, each by the fingerprint of its query.
    """

    __slots__ = ("_indexes", "_lock", "_plain", "by_query")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_query: dict[str, Route] = {}
        self._plain: tuple[Route, ...] = ()
        self._indexes: tuple[Index, ...] = ()

    def __len__(self) -> int:
        return len(self.by_query)

    @property
    def subscribers(self) -> list[Subscriber]:
        """All subscribers, each once."""
        return [s for route in list(self.by_query.values()) for s in route.subscribers]

    def add(self, plan: SelectPlan, subscriber: Subscriber) -> None:
        """From the next batch on, offer it to this subscriber, too."""
        with self._lock:
            route = self.by_query.get(plan.fingerprint)
            if route is not None:
                route.subscribers = (*route.subscribers, subscriber)
                return
            route = self.by_query[plan.fingerprint] = Route(plan, (subscriber,))
            if plan.equality is None:
                self._plain = (*self._plain, route)
            else:
                self._index(plan.equality[0]).add(route, plan.equality[1])

    def remove(self, plan: SelectPlan, subscriber: Subscriber) -> None:
        """Offer nothing more to a subscriber."""
        with self._lock:
            route = self.by_query.get(plan.fingerprint)
            if route is None:
                return
            route.subscribers = tuple(s for s in route.subscribers if s is not subscriber)
            if route.subscribers:
                return
            del self.by_query[plan.fingerprint]
            if plan.equality is None:
                self._plain = tuple(each for each in self._plain if each is not route)
            else:
                self._index(plan.equality[0]).remove(route, plan.equality[1])

    def fail(self, error: Error) -> None:
        """End all subscribers but those that outlive a failure."""
        for route in list(self.by_query.values()):
            for subscriber in route.subscribers:
                if not subscriber.outlives_failures:
                    self.remove(route.plan, subscriber)
                    subscriber.fail(error)

    def deliver(self, batch: ChangeBatch) -> None:
        """Offer a batch to the subscribers whose query keeps something of it."""
        for route in self._plain:
            route.deliver(batch, route.plan.predicate)
        for index in self._indexes:
            for route, part in index.split(batch):
                route.deliver(part, route.plan.residual)

    def _index(self, column: int) -> Index:
        for index in self._indexes:
            if index.column == column:
                return index
        self._indexes = (*self._indexes, Index(column))
        return self._indexes[-1]


class Index:
    """The routes that ask for certain values of a column, by value."""

    __slots__ = ("_routes", "_values", "_version", "column")

    def __init__(self, column: int) -> None:
        self.column = column
        self._routes: dict[Any, tuple[Route, ...]] = {}
        self._version = 0
        self._values: tuple[int, list[Any], pa.Array] | None = None

    def add(self, route: Route, values: Iterable[Any]) -> None:
        """Find a route by these values from now on."""
        for value in values:
            self._routes[value] = (*self._routes.get(value, ()), route)
        self._version += 1

    def remove(self, route: Route, values: Iterable[Any]) -> None:
        """Find a route by these values no more."""
        for value in values:
            left = tuple(each for each in self._routes[value] if each is not route)
            if left:
                self._routes[value] = left
            else:
                del self._routes[value]
        self._version += 1

    def split(self, batch: ChangeBatch) -> Iterable[tuple[Route, ChangeBatch]]:
        """The part of a batch that each route asks for."""
        size = len(batch)
        if not size:  # a lone watermark is for all
            every = dict.fromkeys(r for routes in list(self._routes.values()) for r in routes)
            return [(route, batch) for route in every]
        if batch.is_arrow:
            return self._split_arrow(batch)
        if size == 1:
            value = batch.held_rows[0][self.column]
            return [(route, batch) for route in self._routes.get(value, ())]
        return self._split_rows(batch)

    def _split_rows(self, batch: ChangeBatch) -> Iterator[tuple[Route, ChangeBatch]]:
        column, routes, rows = self.column, self._routes, batch.held_rows
        places: defaultdict[Any, list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            value = row[column]
            if value in routes:
                places[value].append(place)
        asked: dict[Route, list[int]] = {}
        for value, found in places.items():
            for route in routes.get(value, ()):
                there = asked.get(route)
                asked[route] = found if there is None else sorted(there + found)
        for route, found in asked.items():
            yield route, batch if len(found) == len(rows) else batch.keep_places(found)

    def _split_arrow(self, batch: ChangeBatch) -> Iterator[tuple[Route, ChangeBatch]]:
        """Without a look at any row: the batch is sorted by value once, then sliced."""
        array = batch.arrow.column(self.column)
        values, value_set = self._value_set(array.type)
        codes = pc.index_in(array, value_set)
        wanted = len(codes) - codes.null_count
        if not wanted:
            return
        # The sort is stable, so rows of one value keep their order; NULLs, of no route, come last.
        order = pc.sort_indices(codes)
        kept = batch.take(order.slice(0, wanted))
        ends = pc.run_end_encode(codes.take(order.slice(0, wanted)))
        asked: dict[Route, list[tuple[int, int]]] = {}
        start = 0
        for code, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
            for route in self._routes.get(values[code], ()):
                asked.setdefault(route, []).append((start, end))
            start = end
        for route, extents in asked.items():
            if len(extents) == 1:
                yield route, kept.piece(*extents[0])
            else:
                places = pa.concat_arrays([order.slice(a, b - a) for a, b in extents])
                yield route, batch.take(places.take(pc.sort_indices(places)))

    def _value_set(self, kind: pa.DataType) -> tuple[list[Any], pa.Array]:
        version, found = self._version, self._values
        if found is None or found[0] != version:
            values = list(self._routes)
            # With the version from before: what was added meanwhile is looked for the next time.
            found = self._values = (version, values, pa.array(values, kind))
        return found[1], found[2]


class FanOut:
    """The routes of all topics, and how far the log was offered to their subscribers.

    Attributes:
        lsn: the last LSN that was handed out, or is just being. Read it *after* adding to routes:
            every later batch will come through them.
        offered_lsn: everything up to this LSN was offered to all subscribers.
        published: how many rows were offered.
        everything: routes that get the batches of every topic.
        wakes: called by ``hand_on``, each wakes a consumer; subscribers add to it when they are
            offered a batch.
        handed: called by ``hand_on`` with the batch; subscribers add to it the receivers that wait
            for just this batch.
    """

    def __init__(self, lsn: int) -> None:
        self.lsn = self.offered_lsn = lsn
        self._opened_at = lsn
        self._newest: dict[str, int] = {}
        self.published = 0
        self.everything = Routes()
        self.wakes: list[Callable[[], None]] = []
        self.handed: list[tuple[Callable[[ChangeBatch], None], ChangeBatch]] = []
        self._routes: dict[str, Routes] = {}
        self._lock = threading.Lock()

    def routes(self, topic: str) -> Routes:
        """The routes of a topic."""
        found = self._routes.get(topic)
        if found is None:
            with self._lock:
                found = self._routes.setdefault(topic, Routes())
        return found

    def fail_routes(self, topic: str, error: Error) -> None:
        """End the subscribers of a view that has failed; it may go on later."""
        routes = self._routes.get(topic)
        if routes is not None:
            routes.fail(error)

    def newest(self, topic: str) -> int:
        """The last LSN committed to a topic; at most the LSN of opening if none was since then."""
        return self._newest.get(topic, self._opened_at)

    def forget(self, topic: str) -> None:
        """Forget the last LSN of a topic that was dropped."""
        self._newest.pop(topic, None)

    def drop_routes(self, topic: str, error: Error) -> None:
        """End the subscribers of a topic; another topic of that name begins with none."""
        routes = self._routes.pop(topic, None)
        for subscriber in routes.subscribers if routes is not None else ():
            subscriber.fail(error)

    def deliver(self, batches: Batches, *, hand_on: bool = True) -> None:
        """Offer batches that have their place in the log to all subscribers.

        Args:
            batches: the batches.
            hand_on: wake those that sleep; False: that is left to the next ``hand_on``.
        """
        # Before any is offered: a subscriber that joins now and sees the old LSN is offered all.
        self.lsn = batches[-1][1].lsn
        everything = self.everything
        for topic, batch in batches:
            self.published += len(batch)
            self._newest[topic] = batch.lsn
            if batch.schema.is_nested:
                _ = batch.arrow  # what the log will write: a reader may change lists and dicts
            routes = self._routes.get(topic)
            if routes is not None:
                routes.deliver(batch)
            if everything.by_query:
                everything.deliver(batch)
        self.offered_lsn = self.lsn
        if hand_on:
            self.hand_on()

    def hand_on(self) -> None:
        """Wake the subscribers that were offered a batch, or give it to them."""
        for hand_over, batch in self.handed:
            hand_over(batch)
        for wake in self.wakes:
            wake()
        self.handed.clear()
        self.wakes.clear()

    def fail(self, error: Error) -> None:
        """End all subscribers."""
        for routes in (*self._routes.values(), self.everything):
            for subscriber in routes.subscribers:
                subscriber.fail(error)
