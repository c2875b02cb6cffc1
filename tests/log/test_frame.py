from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.log.frame import (
    HEADER_SIZE,
    NO_WATERMARK,
    Kind,
    decode_header,
    encode,
    is_whole,
    link,
    tail_of,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)

frames = st.builds(
    encode,
    st.sampled_from(Kind),
    st.binary(max_size=200),
    flags=st.integers(0, 255),
    version=st.integers(0, 2**16 - 1),
    topic=UINT32,
    first_lsn=st.integers(0, 2**63 - 1),
    span=UINT32,
    committed_at=INT64,
    watermark=INT64,
    durable_lsn=st.integers(0, 2**63 - 1),
)


@given(frames)
def test_what_is_encoded_is_decoded(encoded):
    data = b"".join(encoded.buffers)
    frame = decode_header(data)
    assert frame == encoded.frame
    assert len(data) == frame.size
    assert len(data) % 8 == 0
    assert is_whole(frame, data[HEADER_SIZE : HEADER_SIZE + frame.payload_size])


@given(frames, st.data())
def test_any_flipped_bit_is_found(encoded, data):
    intact = b"".join(encoded.buffers)
    used = HEADER_SIZE + encoded.frame.payload_size
    place = data.draw(st.integers(0, used - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(intact)
    damaged[place] ^= 1 << bit
    frame = decode_header(bytes(damaged))
    payload = bytes(damaged[HEADER_SIZE:used])
    assert frame is None or not is_whole(frame, payload)


@given(frames, st.integers(0, HEADER_SIZE - 1))
def test_a_header_that_is_cut_short_is_none(encoded, length):
    assert decode_header(b"".join(encoded.buffers)[:length]) is None


def test_a_header_is_found_at_an_offset():
    encoded = encode(Kind.ROWS, b"abc", topic=7)
    data = bytes(16) + b"".join(encoded.buffers)
    assert decode_header(data, 16) == encoded.frame
    assert decode_header(data, 8) is None


@pytest.mark.parametrize("size", range(17))
def test_the_layout_is_the_one_that_is_written_down(size):
    """docs/log-format.md promises these offsets."""
    payload = bytes(range(size))
    header, body, padding = encode(
        Kind.WATERMARK,
        payload,
        flags=3,
        version=5,
        topic=9,
        first_lsn=11,
        span=13,
        committed_at=17,
        durable_lsn=19,
    ).buffers
    assert header[:4] == b"MSF3"
    assert int.from_bytes(header[8:12], "little") == size
    assert (header[16], header[17]) == (2, 3)
    assert int.from_bytes(header[18:20], "little") == 5
    assert int.from_bytes(header[20:24], "little") == 9
    assert int.from_bytes(header[24:32], "little") == 11
    assert int.from_bytes(header[32:36], "little") == 13
    assert int.from_bytes(header[40:48], "little") == 17
    assert int.from_bytes(header[48:56], "little", signed=True) == NO_WATERMARK
    assert int.from_bytes(header[56:64], "little") == 19
    assert header[72:80] == bytes(8)
    assert body == payload
    assert (len(body) + len(padding)) % 8 == 0


def test_a_frame_says_what_was_before_it():
    one, other = encode(Kind.ROWS, b"abc", topic=7), encode(Kind.ROWS, b"defg", topic=8)
    first, second = link([one, other], (6, 600))
    assert (first.frame.previous_topic, first.frame.previous_size) == (6, 600)
    assert (second.frame.previous_topic, second.frame.previous_size) == (7, one.frame.size)
    header = second.buffers[0]
    assert int.from_bytes(header[72:76], "little") == 7
    assert int.from_bytes(header[76:80], "little") == one.frame.size
    assert tail_of([first, second], (0, 0)) == (8, other.frame.size)
    assert tail_of([], (1, 2)) == (1, 2)
