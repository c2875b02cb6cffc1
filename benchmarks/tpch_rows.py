"""The tables of TPC-H, drawn by numpy: as large as the scale says, and so that each query has rows.

The sizes, keys, vocabularies and ranges are TPC-H's; the text of comments is made of a few words.
The same seed gives the same rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEED: Final = 11
MONEY: Final = pa.decimal128(15, 2)
FIRST_DAY: Final = 8035  # 1992-01-01
LAST_ORDER: Final = 2405  # days later: 1998-08-02
TODAY: Final = 9298  # 1995-06-17, which says what has been shipped and returned
REGIONS: Final = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS: Final = {
    "ALGERIA": 0, "ARGENTINA": 1, "BRAZIL": 1, "CANADA": 1, "EGYPT": 4, "ETHIOPIA": 0, "FRANCE": 3,
    "GERMANY": 3, "INDIA": 2, "INDONESIA": 2, "IRAN": 4, "IRAQ": 4, "JAPAN": 2, "JORDAN": 4,
    "KENYA": 0, "MOROCCO": 0, "MOZAMBIQUE": 0, "PERU": 1, "CHINA": 2, "ROMANIA": 3,
    "SAUDI ARABIA": 4, "VIETNAM": 2, "RUSSIA": 3, "UNITED KINGDOM": 3, "UNITED STATES": 1,
}  # fmt: skip
"""The region of each."""
COLOURS: Final = (
    "almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood "
    "chartreuse chiffon chocolate coral cornflower cream cyan dark deep dim dodger drab "
    "firebrick floral forest frosted gainsboro ghost goldenrod green grey honeydew hot indian "
    "ivory khaki lace lavender lawn lemon light lime linen magenta maroon medium metallic "
    "midnight mint misty"
)
SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
PRIORITIES: Final = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS: Final = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES: Final = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
TYPES: Final = tuple(
    f"{size} {finish} {metal}"
    for size in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for finish in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for metal in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
)
CONTAINERS: Final = tuple(
    f"{size} {kind}"
    for size in ("SM", "LG", "MED", "JUMBO", "WRAP")
    for kind in ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
)
WORDS: Final = (
    "furiously carefully quickly express regular final ironic bold special pending packages "
    "requests accounts deposits foxes ideas theodolites platelets sleep haggle nag wake among"
)
KEYS: Final = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}


class Rows:
    """Draws the tables.

    Args:
        scale: TPC-H's; 1 is 6 million lineitems.
        seed: the same gives the same rows.
    """

    def __init__(self, scale: float, seed: int = SEED) -> None:
        self._dice = np.random.default_rng(seed)
        self._suppliers, self._parts = int(10_000 * scale), int(200_000 * scale)
        self._customers, self._orders = int(150_000 * scale), int(1_500_000 * scale)
        self._texts = self._phrases(5000, 4, 8)

    def tables(self) -> dict[str, pa.Table]:
        """All of them, in an order in which what is referred to comes first."""
        part = self._part()
        orders, lineitem = self._sales(part["p_retailprice"])
        return {
            "region": pa.table(
                {"r_regionkey": _ints(range(5)), "r_name": REGIONS, "r_comment": self._texts[:5]}
            ),
            "nation": pa.table(
                {
                    "n_nationkey": _ints(range(25)),
                    "n_name": list(NATIONS),
                    "n_regionkey": _ints(list(NATIONS.values())),
                    "n_comment": self._texts[:25],
                }
            ),
            "supplier": self._supplier(),
            "part": part,
            "partsupp": self._partsupp(),
            "customer": self._customer(),
            "orders": orders,
            "lineitem": lineitem,
        }

    def _supplier(self) -> pa.Table:
        count = self._suppliers
        keys, nations = np.arange(1, count + 1), self._dice.integers(0, 25, count)
        comments = self._comments(count).to_pylist()
        for place in range(0, count, 200):  # q16 leaves these out
            comments[place] = "slyly Customer even Complaints"
        return pa.table(
            {
                "s_suppkey": keys,
                "s_name": _numbered("Supplier#", keys),
                "s_address": self._comments(count),
                "s_nationkey": _ints(nations),
                "s_phone": self._phones(nations),
                "s_acctbal": self._money(-99_999, 999_999, count),
                "s_comment": comments,
            }
        )

    def _part(self) -> pa.Table:
        count, dice = self._parts, self._dice
        keys, brands = np.arange(1, count + 1), dice.integers(1, 6, (2, count))
        names = [self._one_of(COLOURS.split(), count) for _ in range(5)]
        prices = 90_000 + (keys // 10) % 20_001 + 100 * (keys % 1000)
        return pa.table(
            {
                "p_partkey": keys,
                "p_name": pc.binary_join_element_wise(*names, " "),
                "p_mfgr": _joined("Manufacturer#", brands[0]),
                "p_brand": _joined("Brand#", brands[0] * 10 + brands[1]),
                "p_type": self._one_of(TYPES, count),
                "p_size": _ints(dice.integers(1, 51, count)),
                "p_container": self._one_of(CONTAINERS, count),
                "p_retailprice": _decimal(prices),
                "p_comment": self._comments(count),
            }
        )

    def _partsupp(self) -> pa.Table:
        parts = np.repeat(np.arange(1, self._parts + 1), 4)
        count = len(parts)
        return pa.table(
            {
                "ps_partkey": parts,
                "ps_suppkey": self._supplier_of(parts, np.tile(np.arange(4), self._parts)),
                "ps_availqty": self._dice.integers(1, 10_000, count),
                "ps_supplycost": self._money(100, 100_000, count),
                "ps_comment": self._comments(count),
            }
        )

    def _supplier_of(self, parts: np.ndarray, which: np.ndarray) -> np.ndarray:
        """One of the four suppliers of each part."""
        count = self._suppliers
        return np.asarray((parts + which * (count // 4 + (parts - 1) // count)) % count + 1)

    def _customer(self) -> pa.Table:
        count = self._customers
        keys, nations = np.arange(1, count + 1), self._dice.integers(0, 25, count)
        return pa.table(
            {
                "c_custkey": keys,
                "c_name": _numbered("Customer#", keys),
                "c_address": self._comments(count),
                "c_nationkey": _ints(nations),
                "c_phone": self._phones(nations),
                "c_acctbal": self._money(-99_999, 999_999, count),
                "c_mktsegment": self._one_of(SEGMENTS, count),
                "c_comment": self._comments(count),
            }
        )

    def _sales(self, prices: pa.ChunkedArray) -> tuple[pa.Table, pa.Table]:
        """The orders, and their lines: one to seven each."""
        dice, count = self._dice, self._orders
        numbers = np.arange(count)
        keys = numbers // 8 * 32 + numbers % 8 + 1  # eight of 32 keys are used
        days = FIRST_DAY + dice.integers(0, LAST_ORDER - 120, count)
        sizes = dice.integers(1, 8, count)
        owner = np.repeat(numbers, sizes)
        first = np.cumsum(sizes) - sizes
        lines = self._lines(keys[owner], np.arange(len(owner)) - first[owner] + 1, days[owner])
        parts = lines["l_partkey"].to_numpy()
        quantity = dice.integers(1, 51, len(owner))
        cents = pc.multiply(prices, 100).cast("int64").to_numpy()
        extended = cents[parts - 1] * quantity
        lines = lines.append_column("l_quantity", _decimal(quantity * 100))
        lines = lines.append_column("l_extendedprice", _decimal(extended))
        open_lines = np.add.reduceat(lines["l_linestatus"].to_numpy() == "O", first)
        status = np.where(open_lines == 0, "F", np.where(open_lines == sizes, "O", "P"))
        customers = dice.integers(0, self._customers // 3, count) * 3 + dice.integers(1, 3, count)
        orders = pa.table(
            {
                "o_orderkey": keys,
                "o_custkey": customers,  # a third of the customers never orders
                "o_orderstatus": status,
                "o_totalprice": _decimal(np.add.reduceat(extended, first)),
                "o_orderdate": _dates(days),
                "o_orderpriority": self._one_of(PRIORITIES, count),
                "o_clerk": _numbered("Clerk#", dice.integers(1, 101, count)),
                "o_shippriority": _ints(np.zeros(count)),
                "o_comment": self._comments(count),
            }
        )
        return orders, lines

    def _lines(self, keys: np.ndarray, numbers: np.ndarray, days: np.ndarray) -> pa.Table:
        dice, count = self._dice, len(keys)
        parts = dice.integers(1, self._parts + 1, count)
        shipped = days + dice.integers(1, 122, count)
        received = shipped + dice.integers(1, 31, count)
        returned = np.where(dice.random(count) < 0.5, "R", "A")
        return pa.table(
            {
                "l_orderkey": keys,
                "l_partkey": parts,
                "l_suppkey": self._supplier_of(parts, dice.integers(0, 4, count)),
                "l_linenumber": numbers,
                "l_discount": _decimal(dice.integers(0, 11, count)),
                "l_tax": _decimal(dice.integers(0, 9, count)),
                "l_returnflag": np.where(received <= TODAY, returned, "N"),
                "l_linestatus": np.where(shipped > TODAY, "O", "F"),
                "l_shipdate": _dates(shipped),
                "l_commitdate": _dates(days + dice.integers(30, 91, count)),
                "l_receiptdate": _dates(received),
                "l_shipinstruct": self._one_of(INSTRUCTIONS, count),
                "l_shipmode": self._one_of(MODES, count),
                "l_comment": self._comments(count),
            }
        )

    def _one_of(self, values: tuple[str, ...] | list[str], count: int) -> pa.Array:
        return pa.array(values).take(pa.array(self._dice.integers(0, len(values), count)))

    def _comments(self, count: int) -> pa.Array:
        return self._texts.take(pa.array(self._dice.integers(0, len(self._texts), count)))

    def _phrases(self, count: int, least: int, most: int) -> pa.Array:
        sizes, words = self._dice.integers(least, most + 1, count), WORDS.split()
        return pa.array([" ".join(self._dice.choice(words, size)) for size in sizes])

    def _phones(self, nations: np.ndarray) -> pa.Array:
        parts = [nations + 10, *self._dice.integers(100, 1000, (2, len(nations)))]
        parts.append(self._dice.integers(1000, 10_000, len(nations)))
        return pc.binary_join_element_wise(*(pa.array(each).cast("string") for each in parts), "-")

    def _money(self, least: int, most: int, count: int) -> pa.Array:
        return _decimal(self._dice.integers(least, most + 1, count))


def _ints(values: object) -> pa.Array:
    return pa.array(np.asarray(values, dtype=np.int32))


def _dates(days: np.ndarray) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def _decimal(cents: np.ndarray) -> pa.Array:
    """Hundredths as DECIMAL(15, 2)."""
    whole = pa.array(cents).cast(pa.decimal128(19, 0))
    return pc.multiply(whole, pa.scalar("0.01").cast(pa.decimal128(3, 2))).cast(MONEY)


def _joined(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast("string"), "")


def _numbered(prefix: str, numbers: np.ndarray) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers).cast("string"), 9, "0")
    return pc.binary_join_element_wise(prefix, digits, "")
