"""What the tests of the model draw: types, values of them, schemas, and rows of these."""

from datetime import UTC, timedelta
from decimal import Decimal
from functools import cache

from hypothesis import strategies as st

from millstream.model.schema import Column, Schema
from millstream.model.types import (
    SCALARS,
    array_type,
    decimal_type,
    map_type,
    parse_type,
    struct_type,
)

LONGEST = timedelta(days=106751991)

characters = st.characters(exclude_categories=["Cc", "Cs"])


def allowed(name):
    return name.lower() not in {"_lsn", "_op", "_weight"}


def named(names, values, most):
    pairs = st.tuples(names, values)
    return st.lists(pairs, min_size=1, max_size=most, unique_by=lambda pair: pair[0].lower())


def nested(scalars, names, most_fields):
    """What ``st.recursive`` needs to make types of types."""
    return lambda inner: st.one_of(
        st.builds(array_type, inner),
        st.builds(struct_type, named(names, inner, most_fields).map(dict)),
        st.builds(map_type, scalars, inner),
    )


# --- Types of every kind --------------------------------------------------------------------------

names = st.one_of(
    st.sampled_from(["a", "order", "unit price", 'quo"te', "back`tick", "integer", "é", "1"]),
    st.text(characters, min_size=1, max_size=20),
).filter(allowed)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(decimal_type, st.just(precision), st.integers(0, precision))
)
scalars = st.one_of(st.sampled_from(SCALARS), decimals)
types = st.recursive(scalars, nested(scalars, names, 4), max_leaves=8)


# --- Smaller types, and their values --------------------------------------------------------------

short_names = st.text(characters, min_size=1, max_size=5).filter(allowed)
small_scalars = st.sampled_from(
    [*SCALARS, *map(parse_type, ("DECIMAL(5, 2)", "DECIMAL(38, 38)", "DECIMAL(38, 0)"))]
)
small_types = st.recursive(small_scalars, nested(small_scalars, short_names, 3), max_leaves=4)

SCALAR_VALUES = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "REAL": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "VARCHAR": st.text(),
    "BINARY": st.binary(),
    "DATE": st.dates(),
    # In UTC no hour comes twice, so the fold that tells two apart means nothing.
    "TIMESTAMP": st.datetimes(timezones=st.just(UTC)).map(lambda when: when.replace(fold=0)),
    "INTERVAL": st.timedeltas(-LONGEST, LONGEST),
}


@cache  # to make a strategy, and have it validated, takes longer than to draw from it
def values_of(each, *, nullable=True):
    if each.kind in SCALAR_VALUES:
        values = SCALAR_VALUES[each.kind]
    elif each.kind == "DECIMAL":
        most, scale = 10**each.arrow.precision - 1, each.arrow.scale
        values = st.integers(-most, most).map(lambda n: Decimal(f"{n}e-{scale}"))
    elif each.kind == "ARRAY":
        values = st.lists(values_of(each.children[0]), max_size=3)
    elif each.kind == "STRUCT":
        fields = st.tuples(*map(values_of, each.children))
        values = fields.map(lambda row: dict(zip(each.names, row, strict=True)))
    else:
        key, value = each.children
        values = st.dictionaries(values_of(key, nullable=False), values_of(value), max_size=3)
    return st.one_of(st.none(), values) if nullable else values


# --- Schemas, and rows of them --------------------------------------------------------------------

named_types = named(short_names, small_types, 4)


@st.composite
def schemas(draw):
    columns = [Column(n, t, nullable=draw(st.booleans())) for n, t in draw(named_types)]
    scalar = [column.name for column in columns if not column.type.children]
    key = draw(st.lists(st.sampled_from(scalar), unique=True)) if scalar else ()
    return Schema(columns, key)


@st.composite
def filled(draw, most=8):
    """A schema and rows of it, in canonical form."""
    schema = draw(schemas())
    row = st.tuples(*(values_of(c.type, nullable=c.nullable) for c in schema.columns))
    return schema, draw(st.lists(row, max_size=most))
