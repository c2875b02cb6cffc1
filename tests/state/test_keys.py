"""Hashes and sameness: many rows and one agree, and both agree with GROUP BY."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.types import DOUBLE, REAL, VARCHAR, array_type, struct_type
from millstream.state.keys import hash_columns, same_rows, same_values

from ..model.strategies import (  # noqa: TID252 - tests have no name
    small_scalars,
    small_types,
    values_of,
)


def column(of, values):
    return pa.array(values, of.arrow)


@st.composite
def columns(draw, types):
    of = draw(types)
    return of, draw(st.lists(values_of(of), max_size=8))


def one_by_one(columns):
    """The hashes of rows, each hashed alone."""
    rows = zip(*(values for _, values in columns), strict=True)
    kinds = [of for of, _ in columns]
    return [
        int(hash_columns([column(of, [v]) for of, v in zip(kinds, row, strict=True)], 1)[0])
        for row in rows
    ]


class TestHashes:
    @given(columns(small_scalars), columns(small_scalars), st.data())
    def test_one_row_has_the_hash_that_it_has_among_many(self, one, other, data):
        rows = min(len(one[1]), len(other[1]))
        start = data.draw(st.integers(0, rows))
        columns = [(of, values[start:rows]) for of, values in (one, other)]
        arrays = [column(of, values[:rows]).slice(start) for of, values in (one, other)]
        assert hash_columns(arrays, rows - start).tolist() == one_by_one(columns)

    @given(st.lists(st.one_of(st.none(), st.text(max_size=600)), max_size=6))
    def test_long_texts(self, texts):
        hashes = hash_columns([column(VARCHAR, texts)], len(texts)).tolist()
        assert hashes == one_by_one([(VARCHAR, texts)])

    @given(columns(small_types))
    def test_what_is_the_same_has_the_same_hash(self, drawn):
        of, values = drawn
        array = column(of, values)
        hashes = hash_columns([array], len(values))
        for place in range(len(values)):
            shifted = array.take(pa.array([place] * len(values), pa.int64()))
            same = same_values(array, shifted)
            assert same[place]
            assert (hashes[same] == hashes[place]).all()

    @pytest.mark.parametrize("of", [REAL, DOUBLE])
    def test_zeros_and_nans(self, of):
        array = column(of, [0.0, -0.0, math.nan, -math.nan, None, 1.0])
        zero, minus, nan, other_nan, null, one = hash_columns([array], 6).tolist()
        assert zero == minus
        assert nan == other_nan
        assert len({zero, nan, null, one}) == 4

    def test_columns_have_their_order(self):
        a, b = column(VARCHAR, ["a"]), column(VARCHAR, ["b"])
        assert hash_columns([a, b], 1) != hash_columns([b, a], 1)
        assert hash_columns([], 1) == hash_columns([], 1)

    def test_few_collide(self):
        texts = [f"SYM{n}" for n in range(100_000)]
        assert len(set(hash_columns([column(VARCHAR, texts)], len(texts)).tolist())) == len(texts)


class TestSame:
    @given(small_types.flatmap(lambda of: st.tuples(st.just(of), *[st.lists(values_of(of))] * 2)))
    def test_as_python_says(self, drawn):
        of, left, right = drawn
        size = min(len(left), len(right))
        left, right = left[:size], right[:size]
        same = same_values(column(of, left), column(of, right)).tolist()
        # Dicts are equal in any order of their keys; as Spark's maps these differ.
        assert same == [repr(plain(a)) == repr(plain(b)) for a, b in zip(left, right, strict=True)]

    def test_nested_nulls_and_nans(self):
        of = array_type(struct_type({"x": DOUBLE}))
        left = [None, [], [None], [{"x": math.nan}], [{"x": 0.0}], [{"x": None}], [None]]
        right = [None, None, [None], [{"x": math.nan}], [{"x": -0.0}], [None], []]
        same = same_values(column(of, left), column(of, right)).tolist()
        assert same == [True, False, True, True, True, False, False]

    def test_rows_without_columns_are_the_same(self):
        assert same_rows([], 2).tolist() == [True, True]


def plain(value):
    """A value that looks the same as all that are."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return [(plain(key), plain(each)) for key, each in value.items()]
    return value
