"""The events of Nexmark, an auction site's: persons, auctions and bids, drawn by numpy.

Of 50 events one is a person, 3 are auctions and 46 bids, 10,000 events a second. What is popular is
so as Nexmark says: half of the bids are for the newest auction whose number is a multiple of 100,
three quarters of them by one bidder of the newest hundred, and three quarters of the auctions by
one seller of these. The same seed gives the same events.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEED: Final = 7
EPOCH: Final = 50
AUCTIONS: Final = 3
MICROS: Final = 100
"""The microseconds from one event to the next."""
BEGIN: Final = 1_767_258_000_000_000  # 2026-01-01 09:00 UTC
FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
HOT: Final = 100
IN_FLIGHT: Final = 100
ACTIVE: Final = 1000
LEAD: Final = 10
"""How many of those that do not exist yet may be named."""

COLUMNS: Final = {
    "person": "id BIGINT, name VARCHAR, email VARCHAR, card VARCHAR, city VARCHAR, state VARCHAR,"
    " ts TIMESTAMP, extra VARCHAR",
    "auction": "id BIGINT, item VARCHAR, description VARCHAR, initial BIGINT, reserve BIGINT,"
    " ts TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,"
    " ts TIMESTAMP, extra VARCHAR",
}
CITIES: Final = {
    "Phoenix": "AZ", "Los Angeles": "CA", "San Francisco": "CA", "Boise": "ID", "Portland": "OR",
    "Bend": "OR", "Redmond": "WA", "Seattle": "WA", "Kent": "WA", "Cheyenne": "WY",
}  # fmt: skip
"""The state of each."""
TIME: Final = pa.timestamp("us", tz="UTC")


def words(dice: np.random.Generator, count: int, least: int, most: int) -> pa.Array:
    """So many random words of lower-case letters."""
    lengths = dice.integers(least, most + 1, count)
    letters = dice.integers(ord("a"), ord("z") + 1, int(lengths.sum()), dtype=np.uint8)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


class Events:
    """Draws the rows of any range of events.

    Args:
        seed: the same gives the same rows.
    """

    def __init__(self, seed: int = SEED) -> None:
        dice = np.random.default_rng(seed)
        self._seed = seed
        self._extras = words(dice, 5000, 10, 60)
        self._names = words(dice, 500, 4, 10)
        self._cities = pa.array(list(CITIES))
        self._states = pa.array(list(CITIES.values()))
        rare = [f"channel-{number}" for number in range(10_000)]
        hot = ["Google", "Facebook", "Baidu", "Apple"]
        folders = words(dice, 3 * len(rare), 3, 5).to_pylist()
        ids = np.where(dice.random(len(rare)) < 0.9, dice.integers(0, 1 << 31, len(rare)), -1)
        self._channels = pa.array(hot + rare)
        self._urls = pa.array(
            [f"https://www.nexmark.com/a/b/{name.lower()}/item.htm?query=1" for name in hot]
            + [
                f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1"
                + (f"&channel_id={number}" if number >= 0 else "")
                for a, b, c, number in zip(
                    folders[::3], folders[1::3], folders[2::3], ids.tolist(), strict=True
                )
            ]
        )

    def between(self, first: int, end: int) -> dict[str, pa.Table]:
        """The rows of the events from one number up to, and without, another, by source."""
        dice = np.random.default_rng([self._seed, first])
        numbers = np.arange(first, end, dtype=np.int64)
        kinds = numbers % EPOCH
        return {
            "person": self._persons(dice, numbers[kinds == 0]),
            "auction": self._auctions(dice, numbers[(kinds > 0) & (kinds <= AUCTIONS)]),
            "bid": self._bids(dice, numbers[kinds > AUCTIONS]),
        }

    def _persons(self, dice: np.random.Generator, numbers: np.ndarray) -> pa.Table:
        count = len(numbers)
        names, places = self._some(dice, self._names, count), dice.integers(0, 10, count)
        cards = pc.utf8_lpad(pa.array(dice.integers(0, 10**16, count)).cast("string"), 16, "0")
        return pa.table(
            {
                "id": numbers // EPOCH + FIRST_ID,
                "name": names,
                "email": pc.binary_join_element_wise(
                    names, pc.binary_join_element_wise(names, "com", "."), "@"
                ),
                "card": cards,
                "city": self._cities.take(pa.array(places)),
                "state": self._states.take(pa.array(places)),
                "ts": _times(dice, numbers),
                "extra": self._some(dice, self._extras, count),
            }
        )

    def _auctions(self, dice: np.random.Generator, numbers: np.ndarray) -> pa.Table:
        count, persons = len(numbers), numbers // EPOCH
        initial, times = _prices(dice, count), _times(dice, numbers)
        longest = 2 * MICROS * IN_FLIGHT * EPOCH // AUCTIONS
        ends = times.cast("int64").to_numpy() + dice.integers(1000, longest, count)
        sellers = np.where(dice.random(count) < 0.75, persons // HOT * HOT, _active(dice, persons))
        return pa.table(
            {
                "id": persons * AUCTIONS + numbers % EPOCH - 1 + FIRST_ID,
                "item": self._some(dice, self._names, count),
                "description": self._some(dice, self._extras, count),
                "initial": initial,
                "reserve": initial + _prices(dice, count),
                "ts": times,
                "expires": pa.array(ends).cast(TIME),
                "seller": sellers + FIRST_ID,
                "category": dice.integers(FIRST_CATEGORY, FIRST_CATEGORY + CATEGORIES, count),
                "extra": self._some(dice, self._extras, count),
            }
        )

    def _bids(self, dice: np.random.Generator, numbers: np.ndarray) -> pa.Table:
        count, persons = len(numbers), numbers // EPOCH
        newest = persons * AUCTIONS + AUCTIONS - 1
        oldest = np.maximum(newest - IN_FLIGHT, 0)
        any_auction = oldest + dice.integers(0, newest - oldest + 1 + LEAD)
        auctions = np.where(dice.random(count) < 0.5, newest // HOT * HOT, any_auction)
        hot_bidder = persons // HOT * HOT + 1
        bidders = np.where(dice.random(count) < 0.75, hot_bidder, _active(dice, persons))
        hot, rare = dice.integers(0, 4, count), dice.integers(4, 10_004, count)
        channels = pa.array(np.where(dice.random(count) < 0.5, hot, rare))
        return pa.table(
            {
                "auction": auctions + FIRST_ID,
                "bidder": bidders + FIRST_ID,
                "price": _prices(dice, count),
                "channel": self._channels.take(channels),
                "url": self._urls.take(channels),
                "ts": _times(dice, numbers),
                "extra": self._some(dice, self._extras, count),
            }
        )

    def _some(self, dice: np.random.Generator, of: pa.Array, count: int) -> pa.Array:
        return of.take(pa.array(dice.integers(0, len(of), count)))


def _times(dice: np.random.Generator, numbers: np.ndarray) -> pa.Array:
    """The times of events: in order, and no two the same."""
    jitter = dice.integers(0, MICROS, len(numbers))
    return pa.array(BEGIN + numbers * MICROS + jitter).cast(TIME)


def _prices(dice: np.random.Generator, count: int) -> np.ndarray:
    """Many low ones, and a few up to 100 million."""
    return np.round(np.power(10.0, dice.random(count) * 6) * 100).astype(np.int64)


def _active(dice: np.random.Generator, newest: np.ndarray) -> np.ndarray:
    """One of the newest persons, or one that is yet to come."""
    active = np.minimum(newest, ACTIVE)
    return np.asarray(newest - active + dice.integers(0, active + 1 + LEAD))
