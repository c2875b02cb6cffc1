"""The generator: values by kind, the same for a seed, each row once, whatever is killed."""

import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from millstream.connectors import Settings, SourceEnd, Target
from millstream.connectors.options import settings_of
from millstream.connectors.sources._draws import BLOCK
from millstream.connectors.sources.generator import Generator
from millstream.errors import ConnectorFailedError, InvalidOptionError, SqlOptionError
from millstream.model import Schema
from millstream.testing import database, wait_until
from millstream.testing.child import Child

SCHEMA = Schema.of(
    id="BIGINT NOT NULL",
    sym="VARCHAR",
    price="DOUBLE",
    qty="INTEGER",
    day="DATE",
    ok="BOOLEAN",
    cost="DECIMAL(10,2)",
    ts="TIMESTAMP",
    code="VARCHAR",
    raw="BINARY",
    rank="SMALLINT",
)
FIELDS = {
    "fields.id.kind": "sequence",
    "fields.id.start": "9007199254740993",
    "fields.sym.values": "AAPL, MSFT, IBM",
    "fields.sym.weights": "8,1,1",
    "fields.price.kind": "normal",
    "fields.price.mean": "100",
    "fields.qty.nulls": "0.5",
    "fields.day.min": "2024-01-01",
    "fields.day.max": "2024-01-03",
    "fields.ts.kind": "series",
    "fields.ts.start": "2024-05-31",
    "fields.ts.step": "250 ms",
    "fields.code.length": "4",
    "fields.rank.kind": "zipf",
    "fields.rank.max": "50",
}


def reader(position=None, schema=SCHEMA, fields=FIELDS, **more):
    known = {"rows": None, "rows_per_second": None, "batch_rows": 1000, "seed": 0}
    generator = Generator(Settings({**known, **more, **fields}), Target("g", "source", schema))
    generator.check()
    return generator.open(position)


def rows(made, count):
    found = []
    while len(found) < count:
        found += SCHEMA.arrow_to_rows(made.read(1).rows)
    return found[:count]


def test_values():
    found = rows(reader(), 20_000)
    by_column = dict(zip(SCHEMA.names, zip(*found, strict=True), strict=True))
    assert by_column["id"][:2] == (9007199254740993, 9007199254740994)
    shares = Counter(by_column["sym"])
    assert set(shares) == {"AAPL", "MSFT", "IBM"}
    assert 0.78 < shares["AAPL"] / 20_000 < 0.82
    assert 99.9 < sum(by_column["price"]) / 20_000 < 100.1
    assert 0.48 < by_column["qty"].count(None) / 20_000 < 0.52
    assert set(by_column["day"]) == {date(2024, 1, n) for n in (1, 2, 3)}
    assert by_column["ts"][5] == datetime(2024, 5, 31, 0, 0, 1, 250_000, tzinfo=UTC)
    assert {len(each) for each in by_column["code"]} == {4}
    ranks = Counter(by_column["rank"])
    assert ranks[1] > ranks[2] > ranks[10]
    assert max(ranks) <= 50


def test_a_row_depends_on_the_seed_and_its_number_only():
    found = rows(reader(), BLOCK + 5_000)
    for position, size in ((0, 7), (BLOCK - 3, 1000), (BLOCK + 1, 333)):
        again = rows(reader(position, batch_rows=size), 1000)
        assert again == found[position : position + 1000]
    assert rows(reader(seed=1), 100) != found[:100]


def test_so_many_rows_and_no_more():
    made = reader(rows=1500)
    assert [made.read(1).position, made.read(1).position] == [1000, 1500]
    with pytest.raises(SourceEnd):
        made.read(1)


def test_a_rate():
    made = reader(rows_per_second=200.0, batch_rows=10_000)
    first = made.read(1)
    assert first.rows.num_rows < 100
    slow = reader(rows_per_second=0.01)
    assert slow.read(0.001) is None


@pytest.mark.parametrize(
    ("fields", "more", "message"),
    [
        ({"fields.nope.kind": "sequence"}, {}, "fields.nope.kind is for no column"),
        ({"fields.id.kind": "odd"}, {}, "there is no kind 'odd'"),
        ({"fields.id.length": "3"}, {}, "length means nothing"),
        ({"fields.id.nulls": "0.5"}, {}, "NOT NULL"),
        ({"fields.day.kind": "series"}, {}, "for a TIMESTAMP"),
        ({"fields.id.min": "many"}, {}, "could not convert"),
        ({}, {"rows": 0}, "rows is 0"),
    ],
)
def test_refused(fields, more, message):
    with pytest.raises(InvalidOptionError, match=message):
        reader(fields=fields, **more)


@pytest.mark.parametrize(
    ("sql_type", "given", "message"),
    [
        ("INT", {"min": "5", "max": "1"}, "min is 5, and max is 1"),
        ("INT", {"min": "2000"}, "min is 2000, and max is 1000"),
        ("INT", {"min": "nan"}, "min is nan"),
        ("INT", {"max": "1e30"}, "max is 1e\\+30, and must be from -2147483648 to 2147483647"),
        ("TINYINT", {"max": "1000"}, "max is 1000, and must be from -128 to 127"),
        ("DATE", {"min": "99999999"}, "min is 99999999"),
        ("DOUBLE", {"min": "-inf"}, "min is -inf"),
        ("DECIMAL(4,2)", {"max": "100"}, "max is 100, and must be from -99.99 to 99.99"),
        ("DOUBLE", {"kind": "normal", "stddev": "-1"}, "stddev is -1"),
        ("DOUBLE", {"kind": "exponential", "mean": "-1"}, "mean is -1"),
        ("BIGINT", {"kind": "zipf", "max": "0"}, "max is 0, and must be from 1 to 10000000"),
        ("BIGINT", {"kind": "zipf", "max": "1e15"}, "max is 1e\\+15"),
        ("BIGINT", {"kind": "zipf", "exponent": "nan"}, "exponent is nan"),
        ("BIGINT", {"nulls": "2"}, "nulls is 2, and must be from 0 to 1"),
        ("BOOLEAN", {"mean": "7"}, "mean is 7"),
        ("VARCHAR", {"length": "0"}, "length is 0"),
        ("VARCHAR", {"length": "100000000"}, "length is 100000000"),
        ("VARCHAR", {"kind": "choice"}, "needs values"),
        ("VARCHAR", {"values": "a, b", "weights": "1"}, "2 values and 1 weights"),
        ("VARCHAR", {"values": "a, b", "weights": "-1, 2"}, "a weight is -1"),
        ("VARCHAR", {"values": "a, b", "weights": "0, 0"}, "all weights are 0"),
        ("TINYINT", {"kind": "sequence"}, "row 1,000 is out of the range of TINYINT"),
        ("BIGINT", {"kind": "sequence", "step": str(2**62)}, "row 1,000 is out of the range"),
        ("TIMESTAMP", {"kind": "series", "start": "9999-12-30", "step": "1 day"}, "row 1,000 is"),
    ],
)
def test_numbers_that_cannot_be_are_refused(sql_type, given, message):
    fields = {f"fields.x.{name}": value for name, value in given.items()}
    with database() as db, pytest.raises(InvalidOptionError, match=message) as caught:
        options = ", ".join(f"{name} = '{value}'" for name, value in fields.items())
        db.execute(
            f"CREATE SOURCE g (x {sql_type}) WITH (connector = 'generator', rows = 1000, {options})"
        )
    assert caught.value.hint


@pytest.mark.parametrize(
    "given", ["rows = -1", "rows_per_second = -5", "rows_per_second = 1e300", "batch_rows = 1e12"]
)
def test_rates_that_cannot_be_are_refused(given):
    with database() as db, pytest.raises((InvalidOptionError, SqlOptionError)) as caught:
        db.execute(f"CREATE SOURCE g (x INT) WITH (connector = 'generator', {given})")
    assert caught.value.hint


def made(schema, given, rows):
    fields = {f"fields.x.{name}": value for name, value in given.items()}
    settings = settings_of({**fields, "rows": rows}, Generator.options)
    connector = Generator(settings, Target("g", "source", Schema.of(x=schema)))
    connector.check()
    return connector.open(None).read(1).rows.column(0).to_pylist()


def test_numbers_at_the_bounds_of_their_types():
    assert made("TINYINT", {"kind": "sequence", "start": "-128"}, 256) == [*range(-128, 128)]
    assert made("BIGINT", {"kind": "sequence", "step": str(-(2**62))}, 3)[-1] == -(2**63)
    whole = {"min": str(-(2**63)), "max": str(2**63 - 1)}
    assert max(made("BIGINT", whole, 100)) > 2**62
    wide = {"kind": "normal", "stddev": "1000"}
    assert {abs(each) for each in made("DECIMAL(3,2)", wide, 100)} >= {Decimal("9.99")}
    assert max(made("REAL", {"kind": "normal", "stddev": "1e300"}, 100)) < math.inf


def test_counting_beyond_a_type_fails_for_good():
    settings = settings_of({"fields.x.kind": "sequence"}, Generator.options)
    connector = Generator(settings, Target("g", "source", Schema.of(x="TINYINT")))
    connector.check()
    with pytest.raises(ConnectorFailedError, match="has left the range of TINYINT"):
        connector.open(None).read(1)


@pytest.mark.crash
def test_killed_again_and_again_each_row_is_there_once(tmp_path):
    create = (
        "CREATE SOURCE g (id BIGINT, v DOUBLE) WITH (connector = 'generator', rows = 60000, "
        "rows_per_second = 20000, fields.id.kind = 'sequence')"
    )
    with database(create, path=tmp_path / "db"):
        pass
    for _ in range(2):
        child = Child(tmp_path / "db")
        ((before,),) = child.execute("SELECT COUNT(*) FROM g")
        wait_until(
            lambda: child.execute("SELECT COUNT(*) FROM g")[0][0] > before + 200,
            "more rows",
        )
        child.kill()
    with database(path=tmp_path / "db") as db:
        wait_until(
            lambda: db.query("SHOW CONNECTORS").to_pylist()[0]["state"] == "finished", "the end"
        )
        assert db.query("SELECT COUNT(*), COUNT(DISTINCT id), MAX(id) FROM g").fetchall() == [
            (60000, 60000, 59999)
        ]
