"""Formats: JSON and CSV as rows of a schema."""

import base64
import csv
import io
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidOptionError, RowError, SchemaMismatchError
from millstream.formats import csv_text
from millstream.formats.csv_text import csv_rows
from millstream.formats.json_text import json_rows
from millstream.model.schema import Schema

TRADES = Schema.of(symbol="VARCHAR NOT NULL", price="DOUBLE", size="BIGINT")


def one(type_text, literal):
    """The value of one JSON literal in a column of a type."""
    ((value,),) = json_rows(f'{{"v": {literal}}}', Schema.of(v=type_text))
    return value


def field(type_text, text):
    """The value of one CSV field in a column of a type."""
    ((_, value),) = read(f"0,{text}\n", Schema.of(k="INT", v=type_text), header=False)
    return value


def read(data, schema=TRADES, **options):
    batches = csv_rows(data, schema, **options)
    assert all(len(batch) for batch in batches)
    return [row for batch in batches for row in batch.rows]


# --- Values that both know ------------------------------------------------------------------------

SAME = [
    ("DECIMAL(30, 20)", "0.12345678901234567891", Decimal("0.12345678901234567891")),
    ("DECIMAL(10, 2)", "1e2", Decimal("100.00")),
    ("DECIMAL(10, 2)", "7", Decimal("7.00")),
    ("BINARY", "AP8=", b"\x00\xff"),
    ("DATE", "2024-05-31", date(2024, 5, 31)),
    ("TIMESTAMP", "2024-05-31T12:30:00Z", datetime(2024, 5, 31, 12, 30, tzinfo=UTC)),
    ("TIMESTAMP", "2024-05-31T12:30:00+02:00", datetime(2024, 5, 31, 10, 30, tzinfo=UTC)),
    ("TIMESTAMP", "2024-05-31 12:30:00.5", datetime(2024, 5, 31, 12, 30, 0, 500000, UTC)),
    ("TIMESTAMP", "2024-05-31 12:30:00.123456000", datetime(2024, 5, 31, 12, 30, 0, 123456, UTC)),
    ("TIMESTAMP", "2024-05-31", datetime(2024, 5, 31, tzinfo=UTC)),
    ("INTERVAL", "P1DT2H3M4.5S", timedelta(1, 4, 500000, minutes=3, hours=2)),
    ("INTERVAL", "-PT90M", -timedelta(minutes=90)),
    ("INTERVAL", "P2W", timedelta(weeks=2)),
]

BAD = [
    ("DECIMAL(10, 2)", "1.234"),
    ("DECIMAL(10, 2)", "1_0"),
    ("DECIMAL(10, 2)", "NaN"),
    ("DECIMAL(10, 2)", "abc"),
    ("BINARY", "A*=="),
    ("BINARY", "abc"),
    ("DATE", "2024-02-30"),
    ("DATE", "20240101"),
    ("DATE", "2024-01-01T00:00:00"),
    ("TIMESTAMP", "2024-01-01T00:00:00.1234567Z"),
    ("TIMESTAMP", "2024-01-01x00:00:00"),
    ("TIMESTAMP", "now"),
    ("TIMESTAMP", "1700000000"),
    ("TIMESTAMP", "0001-01-01T00:00:00+10:00"),
    ("INTERVAL", "P1M"),
    ("INTERVAL", "P1Y"),
    ("INTERVAL", "P"),
    ("INTERVAL", "PT"),
    ("INTERVAL", "PT0.0000001S"),
    ("INTERVAL", "P99999999999D"),
    ("INTERVAL", "1 day"),
]


@pytest.mark.parametrize(("type_text", "text", "value"), SAME)
def test_text_that_has_a_type(type_text, text, value):
    assert repr(one(type_text, json.dumps(text))) == repr(value)
    assert repr(field(type_text, text)) == repr(value)


@pytest.mark.parametrize(("type_text", "text"), BAD)
def test_text_that_has_another(type_text, text):
    with pytest.raises(RowError, match="row 0, column 'v'") as caught:
        one(type_text, json.dumps(text))
    assert (caught.value.row, caught.value.column) == (0, "v")
    assert caught.value.hint
    with pytest.raises(RowError, match=r"row 0 \(line 1\), column 'v'"):
        field(type_text, text)


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '[{"symbol": "A", "price": 1.5, "size": 1}, {"size": 2, "symbol": "B"}]',
        '{"symbol": "A", "price": 1.5, "size": 1}\n{"size": 2, "symbol": "B"}\n',
        '\ufeff  \n{"symbol": "A",\n "price": 1.5, "size": 1}\r\n\r\n{"size": 2, "symbol": "B"}  ',
    ],
)
def test_json_of_many_rows(text):
    rows = [("A", 1.5, 1), ("B", None, 2)]
    assert json_rows(text, TRADES) == json_rows(text.encode(), TRADES) == rows


@pytest.mark.parametrize("text", ["", " \n", "[]", b""])
def test_json_of_no_rows(text):
    assert json_rows(text, TRADES) == []


def test_one_object_is_one_row():
    assert json_rows('{"symbol": "A"}', TRADES) == [("A", None, None)]
    assert json_rows("{}", Schema.of(a="INT", b="INT")) == [(None, None)]


@pytest.mark.parametrize(
    ("type_text", "literal", "value"),
    [
        ("BOOLEAN", "true", True),
        ("TINYINT", "-128", -128),
        ("DOUBLE", "1", 1.0),
        ("DOUBLE", "0.1", 0.1),
        ("DOUBLE", "1e3", 1000.0),
        ("DOUBLE", "123456789012345680000", 123456789012345680000.0),
        ("DOUBLE", "Infinity", math.inf),
        ("DOUBLE", '"-Infinity"', -math.inf),
        ("REAL", "0.5", 0.5),
        ("DECIMAL(38, 0)", "9" * 38, Decimal("9" * 38)),
        ("DECIMAL(3, 2)", "1.10", Decimal("1.10")),
        ("INTERVAL", "1.5", timedelta(seconds=1.5)),
        ("INTERVAL", "-2", timedelta(seconds=-2)),
        ("VARCHAR", '"2024"', "2024"),
        ("VARCHAR", "null", None),
        ("ARRAY<DATE>", '["2024-05-31", null]', [date(2024, 5, 31), None]),
        ("STRUCT<a DECIMAL(3, 1), b INT>", '{"a": "1.5"}', {"a": Decimal("1.5"), "b": None}),
        ("MAP<INT, DOUBLE>", '{"1": 2}', {1: 2.0}),
        ("MAP<DATE, ARRAY<BINARY>>", '{"2024-05-31": ["AA=="]}', {date(2024, 5, 31): [b"\0"]}),
    ],
)
def test_json_values(type_text, literal, value):
    assert repr(one(type_text, literal)) == repr(value)


def test_nan_is_a_double():
    assert math.isnan(one("DOUBLE", "NaN"))
    assert math.isnan(one("REAL", '"NaN"'))


@pytest.mark.parametrize(
    ("type_text", "literal"),
    [
        ("BOOLEAN", "1"),
        ("INT", "1.5"),
        ("INT", "1.0"),
        ("INT", '"1"'),
        ("TINYINT", "128"),
        ("INT", "true"),
        ("DOUBLE", "true"),
        ("DOUBLE", '"1.5"'),
        ("DOUBLE", "1e999"),
        ("DOUBLE", "1" + "0" * 400),
        ("REAL", "1e39"),
        ("DECIMAL(3, 1)", "1.55"),
        ("DECIMAL(3, 1)", "NaN"),
        ("DECIMAL(3, 1)", "1e500"),
        ("INTERVAL", "0.0000001"),
        ("INTERVAL", "1e30"),
        ("TIMESTAMP", "1700000000"),
        ("DATE", "19000"),
        ("VARCHAR", "5"),
        ("VARCHAR", '"\\ud800"'),
        ("VARCHAR", "{}"),
        ("ARRAY<INT>", "{}"),
        ("ARRAY<DATE>", '["x"]'),
        ("STRUCT<a INT>", '{"b": 1}'),
        ("STRUCT<a INT>", "[1]"),
        ("MAP<INT, INT>", '{"x": 1}'),
        ("MAP<INT, INT>", '{"1": 1, "01": 2}'),
    ],
)
def test_json_values_that_do_not_fit(type_text, literal):
    with pytest.raises(RowError, match="row 0, column 'v'"):
        one(type_text, literal)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"symbol": "A"}, {"symbol": null}]', "row 1, column 'symbol'"),
        ('{"symbol": "A"}\n{"symbl": "B"}', "row 1: there is no column 'symbl'"),
        ('[{"symbol": "A"}, 5]', "row 1: expected an object, got 5"),
        ('[["A", 1, 2]]', "row 0: expected an object"),
        ("5", "row 0: expected an object"),
        ('{"symbol": "A"}\n[]', "row 1: expected an object"),
        ('{"symbol": "A"}\n{"symbol": }', "line 2, column 12: invalid JSON"),
        ('{"symbol": "A"} {"symbol": "B"}', "line 1, column 17: .*new line"),
        ('[{"symbol": "A"}]\n{"symbol": "B"}', "line 2, column 1: .*follow"),
        ('[{"symbol": "A"}', "line 1, column 17"),
        ("symbol,price", "line 1, column 1"),
        ('{"symbol": "A"}\n{"symbol": "A", "symbol": "B"}', "line 2.*twice"),
        ("[" * 100_000, "line 1, column 1"),
        ('{"size": ' + "9" * 5000 + "}", "line 1, column 1"),
        ('{"price": 1e99999999999999999999}', "line 1, column 1"),
        (b'{"symbol":\n "\xff"}', "line 2: the text is not UTF-8"),
    ],
)
def test_json_that_is_refused(text, message):
    with pytest.raises(SchemaMismatchError, match=message):
        json_rows(text, TRADES)


# --- CSV ------------------------------------------------------------------------------------------


def test_csv_with_a_header():
    text = "size,symbol,price\n1,A,1.5\n,B,\n"
    assert read(text) == [("A", 1.5, 1), ("B", None, None)]
    assert read("\ufeffsymbol\nA") == [("A", None, None)]


def test_csv_without_a_header():
    assert read("A,1.5,1\nB,,\n", header=False) == [("A", 1.5, 1), ("B", None, None)]


def test_csv_from_everywhere(tmp_path):
    text = "symbol,price\nÄ,1\n"
    path = tmp_path / "trades.csv"
    path.write_text(text, encoding="utf-8")
    sources = [text, text.encode(), bytearray(text.encode()), path, io.StringIO(text)]
    with path.open("rb") as binary, path.open(encoding="utf-8") as lines:
        assert [read(each) for each in [*sources, binary, lines]] == [[("Ä", 1.0, None)]] * 7


def test_json_from_everywhere(tmp_path):
    text = '{"symbol": "Ä", "price": 1}'
    path = tmp_path / "trades.json"
    path.write_text(text, encoding="utf-8")
    sources = [text, text.encode(), bytearray(text.encode()), path, io.StringIO(text)]
    with path.open("rb") as binary, path.open(encoding="utf-8") as lines:
        for each in [*sources, binary, lines]:
            assert json_rows(each, TRADES) == [("Ä", 1.0, None)]


@pytest.mark.parametrize("read_rows", [csv_rows, json_rows])
def test_what_is_neither_text_nor_a_file_is_refused(read_rows, tmp_path, monkeypatch):
    for other in (5, None, [], {"symbol": "A"}, object(), io.FileIO):
        with pytest.raises(SchemaMismatchError) as caught:
            read_rows(other, TRADES)
        assert "Path" in caught.value.hint or "binary" in caught.value.hint
    path = tmp_path / "rows"
    path.write_bytes(b"symbol\n\xc3\x84\n")
    with path.open(encoding="ascii") as wrong, pytest.raises(SchemaMismatchError, match="ascii"):
        read_rows(wrong, TRADES)
    with pytest.raises(SchemaMismatchError, match="closed"):
        read_rows(wrong, TRADES)
    with pytest.raises(FileNotFoundError):
        read_rows(tmp_path / "none", TRADES)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SchemaMismatchError) as caught:
        read_rows("rows", TRADES)
    assert "pathlib.Path('rows')" in caught.value.hint

    for text in ("no file", "x" * 5000):
        with pytest.raises(SchemaMismatchError) as caught:
            read_rows(text, TRADES)
        assert "pathlib" not in caught.value.hint


@pytest.mark.parametrize("read", [csv_rows, json_rows])
def test_what_looks_like_the_name_of_a_file(read):
    with pytest.raises(SchemaMismatchError) as caught:
        read("data/orders.csv", Schema.of(n="INT"))
    assert "pathlib.Path('data/orders.csv')" in caught.value.hint


@pytest.mark.parametrize("text", ["", "\n\n", "symbol,price", "symbol,price\n", "symbol\n\n\r\n"])
def test_csv_of_no_rows(text):
    assert csv_rows(text, TRADES) == []


def test_csv_quotes_delimiters_and_ends_of_lines():
    text = 'symbol;price\r\n"a;""b""\nc";1\r\n\r\nd;"2"\r\n'
    assert read(text, delimiter=";") == [('a;"b"\nc', 1.0, None), ("d", 2.0, None)]


def test_csv_text_may_end_with_the_end_of_a_line():
    assert read('size,symbol\n1,"A\n"\n') == [("A\n", None, 1)]
    assert read('size,symbol\n1,5" pipe') == [('5" pipe', None, 1)]


def test_csv_null():
    schema = Schema.of(s="VARCHAR", n="INT", b="BINARY")
    assert read('s,n,b\n"",1,""\n,"",\n', schema) == [("", 1, b""), (None, None, None)]
    rows = [("NA", None, b""), (None, None, b""), ("", 1, b"")]
    assert read('s,n,b\n"NA",NA,\nNA,"NA",\n,1,\n', schema, null="NA") == rows
    assert read("s,n\nNULL, 1 \nnull,\n", schema) == [("NULL", 1, None), ("null", None, None)]


@pytest.mark.parametrize(
    ("type_text", "text", "value"),
    [
        ("BOOLEAN", "true", True),
        ("BOOLEAN", "False", False),
        ("TINYINT", "-128", -128),
        ("INT", "+007", 7),
        ("DOUBLE", "1e3", 1000.0),
        ("DOUBLE", "0.1", 0.1),
        ("DOUBLE", "-inf", -math.inf),
        ("DOUBLE", "NaN", math.nan),
        ("REAL", "0.5", 0.5),
        ("INTERVAL", "1.5", timedelta(seconds=1.5)),
        ("VARCHAR", " a ", " a "),
        ("VARCHAR", "NaN", "NaN"),
        ("ARRAY<DATE>", '"[""2024-05-31""]"', [date(2024, 5, 31)]),
    ],
)
def test_csv_values(type_text, text, value):
    assert repr(field(type_text, text)) == repr(value)


@pytest.mark.parametrize(
    ("type_text", "text"),
    [
        *(("BOOLEAN", "1"), ("BOOLEAN", "yes"), ("INT", "1.0"), ("INT", "0x10"), ("INT", "1_0")),
        *(("TINYINT", "128"), ("BIGINT", str(2**63)), ("INT", "9" * 5000), ("INT", "\u0661")),
        *(("DOUBLE", "1e999"), ("DOUBLE", '"1,5"'), ("DOUBLE", "abc"), ("REAL", "1e39")),
        *(("ARRAY<INT>", "[1"), ("ARRAY<INT>", "1"), ("ARRAY<INT>", '"[1, ""x""]"')),
    ],
)
def test_csv_values_that_do_not_fit(type_text, text):
    with pytest.raises(RowError, match=r"row 0 \(line 1\), column 'v'"):
        field(type_text, text)


@pytest.mark.parametrize(
    ("text", "message", "row", "column"),
    [
        ("symbol,price\nA,1\nB,x\n", r"row 1 \(line 3\), column 'price'", 1, "price"),
        ('symbol,size\n"A\nA",1\n\nB,x\n', r"row 1 \(line 5\), column 'size'", 1, "size"),
        ("symbol,size\nA,1\n,2\n", r"row 1 \(line 3\), column 'symbol'", 1, "symbol"),
        ("symbol,size\nA,1\n\nB,2,3\n", r"row 1 \(line 4\): expected 2 fields, got 3", 1, None),
        ('size,symbol\n1,A\n2,"B\n3,C\n', r"row 1 \(line 3\): a quote is never", 1, "symbol"),
        ('size,symbol\n1,A\n2,"B""', r"row 1 \(line 3\): a quote is never", 1, "symbol"),
        ("symbol,size\nA,1\nB\n", r"row 1 \(line 3\): expected 2 fields, got 1", 1, None),
    ],
)
def test_csv_names_the_row_that_does_not_fit(text, message, row, column):
    with pytest.raises(RowError, match=message) as caught:
        csv_rows(text, TRADES)
    assert (caught.value.row, caught.value.column) == (row, column)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("symbol,prize\nA,1\n", {}, "no column 'prize'"),
        ("symbol,symbol\nA,1\n", {}, "twice"),
        ("price\n1\n", {}, "'symbol' is missing"),
        ("A,1\n", {"header": False}, r"row 0 \(line 1\): expected 3 fields, got 2"),
        (b"symbol\nA\n\xff\n", {}, "line 3: the text is not UTF-8"),
        ("symbol\n\ud800\n", {}, "line 2: the text is not UTF-8"),
    ],
)
def test_csv_that_is_refused(text, options, message):
    with pytest.raises(SchemaMismatchError, match=message):
        csv_rows(text, TRADES, **options)


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n", "é"])
def test_a_delimiter_that_cannot_be(delimiter):
    with pytest.raises(InvalidOptionError, match="delimiter"):
        csv_rows("symbol\nA\n", TRADES, delimiter=delimiter)


def test_csv_of_many_blocks(monkeypatch):
    monkeypatch.setattr(csv_text, "_BLOCK", 1000)
    lines = [f"S{n},{n}.5,{n}" for n in range(500)]
    batches = csv_rows("symbol,price,size\n" + "\n".join(lines), TRADES)
    assert len(batches) > 3
    assert [row for batch in batches for row in batch.rows][-1] == ("S499", 499.5, 499)
    lines[400] = "S,x,1"
    with pytest.raises(RowError, match=r"row 400 \(line 402\), column 'price'"):
        csv_rows("symbol,price,size\n" + "\n".join(lines), TRADES)
    lines[400] = "S," + "1" * 5000 + ",1"
    with pytest.raises(SchemaMismatchError, match="this CSV cannot be read"):
        csv_rows("symbol,price,size\n" + "\n".join(lines), TRADES)


# --- There and back -------------------------------------------------------------------------------

EVERY = Schema.of(
    {
        "t": "VARCHAR",
        "n": "BIGINT",
        "x": "DOUBLE",
        "d": "DECIMAL(20, 5)",
        "b": "BINARY",
        "day": "DATE",
        "at": "TIMESTAMP",
        "long": "INTERVAL",
    }
)
VALUES = st.tuples(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=9),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-(10**14), 10**14, places=5),
    st.binary(max_size=9),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(timedelta(days=-10000), timedelta(days=10000)),
)


def as_text(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return f"{Decimal(value // timedelta(microseconds=1)).scaleb(-6):f}"
    return value.isoformat() if isinstance(value, date) else str(value)


@given(st.lists(VALUES, max_size=4))
def test_every_row_can_be_written_as_json(rows):
    rows = EVERY.check_rows(rows)
    plain = (str, int, float)
    objects = [
        {
            name: value if isinstance(value, plain) else as_text(value)
            for name, value in zip(EVERY.names, row, strict=True)
        }
        for row in rows
    ]
    assert json_rows(json.dumps(objects), EVERY) == rows


@given(st.lists(VALUES, max_size=4))
def test_every_row_can_be_written_as_csv(rows):
    rows = EVERY.check_rows(rows)
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(EVERY.names)
    writer.writerows(map(as_text, row) for row in rows)
    assert read(out.getvalue(), EVERY) == rows


def test_csv_batches_are_of_the_schema():
    (batch,) = csv_rows("symbol\nA\n", TRADES)
    assert batch.schema is TRADES
    assert batch.arrow.schema.equals(TRADES.arrow, check_metadata=True)
    assert isinstance(batch.arrow, pa.RecordBatch)
