"""Resume tokens: one text each, and no damage goes unseen."""

import base64
import re
import string
from uuid import UUID

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ForeignTokenError, InvalidTokenError, TokenError
from millstream.model.lsn import ResumeToken

HOME, AWAY = UUID(int=7), UUID(int=8)
numbers = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 300))
tokens = st.builds(ResumeToken, st.uuids(), numbers, numbers)
alphabet = string.ascii_letters + string.digits + "-_=+/ .\n\x00é"


def sealed(body):
    """A text with a right checksum, whatever its body."""
    data = body + google_crc32c.value(body).to_bytes(4, "big")
    return "ms1" + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@given(tokens)
def test_tokens_come_back(token):
    text = str(token)
    assert ResumeToken.parse(text) == token
    assert ResumeToken.parse(text, token.database) == token
    assert re.fullmatch(r"ms1[A-Za-z0-9_-]{31,52}", text)


@given(tokens, st.data())
def test_any_changed_character_is_seen(token, data):
    text = str(token)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(alphabet).filter(lambda c: c != text[place]))
    with pytest.raises(InvalidTokenError):
        ResumeToken.parse(text[:place] + other + text[place + 1 :])


@given(tokens, st.data())
def test_any_missing_character_is_seen(token, data):
    text = str(token)
    place = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InvalidTokenError):
        ResumeToken.parse(text[:place] + text[place + 1 :])


@given(tokens, st.data())
def test_any_added_character_is_seen(token, data):
    text = str(token)
    place = data.draw(st.integers(0, len(text)))
    added = data.draw(st.sampled_from(alphabet))
    with pytest.raises(InvalidTokenError):
        ResumeToken.parse(text[:place] + added + text[place:])


def test_every_single_change_of_some_tokens_is_seen():
    for lsn in (0, 127, 128, 2**63 - 1):  # each length modulo 4, and so each number of spare bits
        text = str(ResumeToken(HOME, 3, lsn))
        for place in range(len(text)):
            for other in set(alphabet) - {text[place]}:
                with pytest.raises(InvalidTokenError):
                    ResumeToken.parse(text[:place] + other + text[place + 1 :])


@given(st.text() | st.binary() | st.none() | st.integers())
def test_anything_else_is_no_token(text):
    with pytest.raises(InvalidTokenError, match="not a resume token"):
        ResumeToken.parse(text)


def test_the_token_of_another_database_is_foreign():
    with pytest.raises(ForeignTokenError, match=str(AWAY)) as caught:
        ResumeToken.parse(str(ResumeToken(AWAY, 1, 1)), HOME)
    assert isinstance(caught.value, TokenError)
    assert caught.value.hint


def test_the_token_of_a_newer_version_says_so():
    newer = sealed(bytes((2,)) + HOME.bytes + b"whatever comes")
    with pytest.raises(InvalidTokenError, match="newer"):
        ResumeToken.parse(newer)
    with pytest.raises(InvalidTokenError, match="newer"):
        ResumeToken.parse("ms2" + newer[3:])


@pytest.mark.parametrize(
    "rest",
    [
        b"\x01",  # no LSN
        b"\x01\x81",  # an LSN cut short
        b"\x01\x81\x00",  # the LSN 1 in two bytes
        b"\x80\x00\x01",  # the epoch 0 in two bytes
        b"\x01\x01\x01",  # a third number
        b"\x01" + b"\xff" * 9 + b"\x01",  # an LSN of 64 bits
    ],
)
def test_numbers_have_one_form_only(rest):
    with pytest.raises(InvalidTokenError, match="damaged"):
        ResumeToken.parse(sealed(b"\x01" + HOME.bytes + rest))


def test_version_zero_never_was():
    with pytest.raises(InvalidTokenError, match="damaged"):
        ResumeToken.parse(sealed(b"\x00" + HOME.bytes + b"\x01\x01"))


@pytest.mark.parametrize(("epoch", "lsn"), [(-1, 0), (0, -1), (2**63, 0), (0, 2**63)])
def test_numbers_out_of_range_make_no_token(epoch, lsn):
    with pytest.raises(InvalidTokenError, match="cannot be"):
        ResumeToken(HOME, epoch, lsn)


def test_the_format_stays_as_it_is():
    assert str(ResumeToken(HOME, 1, 42)) == "ms1AQAAAAAAAAAAAAAAAAAAAAcBKiCleUI"
