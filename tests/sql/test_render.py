"""What is rendered is read back as the same definition."""

import string
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from millstream.model import Column, Schema, parse_type
from millstream.model.names import quote_string
from millstream.sql import (
    CreateSource,
    CreateTable,
    Option,
    WatermarkSpec,
    create_source,
    create_table,
    parse,
    parse_expression,
)
from millstream.sql.dialect import Millstream

from ..model.strategies import (  # noqa: TID252 - tests are no package that has a name
    characters,
    named,
    names,
    small_scalars,
    types,
)

FIRST = string.ascii_letters + "_é"
object_names = st.one_of(
    st.sampled_from(["trades", "order", "Select", "a.b-c$d", "source", "watermark", "primary"]),
    st.builds(str.__add__, st.sampled_from(FIRST), st.text(FIRST + "0189.-$", max_size=8)),
)
keywords = st.sampled_from([word.lower() for word in Millstream.Tokenizer.KEYWORDS])
column_names = st.one_of(names, keywords)
values = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
keys = st.builds(str.__add__, st.sampled_from("ab_"), st.text("abyz_09.", max_size=6)).filter(
    lambda key: all(part[:1].isalpha() or part[:1] == "_" for part in key.split("."))
)
options = st.dictionaries(keys, values.map(Option), max_size=3)
delays = st.timedeltas(timedelta(0), timedelta(days=10_000))


def columns_of(kinds, most=4):
    return named(column_names, st.tuples(kinds, st.booleans()), most).map(
        lambda pairs: [Column(name, kind, nullable=null) for name, (kind, null) in pairs]
    )


@st.composite
def sources(draw):
    columns = draw(columns_of(types))
    watermark = None
    if draw(st.booleans()):
        name = draw(
            column_names.filter(lambda n: n.lower() not in {c.name.lower() for c in columns})
        )
        columns.insert(draw(st.integers(0, len(columns))), Column(name, parse_type("TIMESTAMP")))
        watermark = WatermarkSpec(name, draw(delays))
    return CreateSource(
        name=draw(object_names),
        schema=Schema(columns),
        watermark=watermark,
        options=draw(options),
        if_not_exists=draw(st.booleans()),
    )


@st.composite
def tables(draw):
    columns = draw(columns_of(small_scalars))
    key = draw(st.lists(st.sampled_from([c.name for c in columns]), min_size=1, unique=True))
    columns = [Column(c.name, c.type, nullable=c.nullable and c.name not in key) for c in columns]
    return CreateTable(
        name=draw(object_names),
        schema=Schema(columns, tuple(key)),
        options=draw(options),
        if_not_exists=draw(st.booleans()),
    )


def kinds_of(statement):
    return [type(option.value) for option in statement.options.values()]


@given(sources())
def test_sources(source):
    text = create_source(
        source.name,
        source.schema,
        watermark=source.watermark,
        options=source.options,
        if_not_exists=source.if_not_exists,
    )
    [parsed] = parse(text)
    assert parsed == source
    assert kinds_of(parsed) == kinds_of(source)  # 1 == 1.0 == True
    assert parsed.text == text


@given(tables())
def test_tables(table):
    [parsed] = parse(
        create_table(
            table.name, table.schema, options=table.options, if_not_exists=table.if_not_exists
        )
    )
    assert parsed == table
    assert kinds_of(parsed) == kinds_of(table)


def test_options_may_be_plain_values():
    text = create_source("s", Schema.of(a="INT"), options={"x": "y", "n": 1, "b": True})
    assert text.endswith("WITH (x = 'y', n = 1, b = TRUE)")


@given(st.text(characters))
def test_strings(text):
    assert parse_expression(quote_string(text)).this == text
