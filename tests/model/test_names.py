"""Names: what is allowed, what is refused and how it is reported, and quoting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidNameError
from millstream.model.names import check_column_name, check_name, quote_name


@pytest.mark.parametrize(
    "name", ["a", "_x", "market.trades-v2", "preis_€"[:6], "größe", "t$1", "株価"]
)
def test_good_names_pass(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("1st", "begins with '1'"),
        (".hidden", "begins with '.'"),
        ("a b", "' ' at position 1"),
        ("a/b", "'/' at position 1"),
        ("..", "begins with '.'"),
        ("a\x00", "position 1"),
        ("a\ud800", "position 1"),
        ("x" * 256, "256 characters"),
        ("a²", "position 1"),
        (7, "must be a str"),
    ],
)
def test_bad_names_are_refused_with_the_reason(name, reason):
    with pytest.raises(InvalidNameError, match=reason) as caught:
        check_name(name)
    assert caught.value.hint


@given(st.text(max_size=300))
def test_what_is_suggested_is_allowed(name):
    try:
        check_name(name, "view")
    except InvalidNameError as error:
        suggested = error.hint.rpartition("'$'. ")[2].removesuffix(" would do.")
        check_name(suggested.strip("'\""), "view")


def test_the_kind_of_thing_is_named():
    with pytest.raises(InvalidNameError, match="of a view"):
        check_name("", "view")


@pytest.mark.parametrize(
    "name", ["a", "unit price", 'a"b', "1", "_lsn_old", "_", "größe", "x" * 255]
)
def test_columns_may_have_nearly_any_name(name):
    assert check_column_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 256, "a\x00b", "a\nb", "\x7f", "\x85", "\ud800", "_lsn", "_OP", "_Weight", 5]
)
def test_columns_may_not_have_these_names(name):
    with pytest.raises(InvalidNameError) as caught:
        check_column_name(name)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "text"),
    [("price", "price"), ("A1_", "A1_"), ("Order", '"Order"'), ('a"b', '"a""b"'), ("é", '"é"')],
)
def test_names_are_quoted_when_they_must_be(name, text):
    assert quote_name(name) == text
