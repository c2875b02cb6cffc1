"""Arrow arrays as others make them: of every bit pattern, sliced, with garbage under NULLs."""

import pyarrow as pa
from hypothesis import strategies as st

DAYS = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([-719163, -719162, -1, 0, 1, 2932896, 2932897]),
    st.integers(-30000, 30000),
)
MICROS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [-62135596800000001, -62135596800000000, -1, 0, 253402300799999999, 253402300800000000]
    ),
    st.integers(0, 2 * 10**15),
)
SPANS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([106751991 * 86400 * 10**6 + n for n in (0, 1)]),
    st.sampled_from([-106751991 * 86400 * 10**6 - n for n in (0, 1)]),
)
TEXTS = st.one_of(
    st.text(max_size=4).map(str.encode), st.binary(max_size=3), st.sampled_from([b"\xff", b"\xc3"])
)

STORED = {
    "DATE": (DAYS, pa.int32()),
    "TIMESTAMP": (MICROS, pa.int64()),
    "INTERVAL": (SPANS, pa.int64()),
    "VARCHAR": (TEXTS, pa.binary()),
    "BOOLEAN": (st.booleans(), pa.bool_()),
    "REAL": (st.floats(width=32), pa.float32()),
    "DOUBLE": (st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]), pa.float64()),
    "BINARY": (st.binary(max_size=3), pa.binary()),
}


def wild_arrays(of, size, *, nulls=True):
    """A strategy of arrays of ``of.arrow``, of so many values, with whatever bits they can have."""
    hidden = st.lists(st.booleans(), min_size=size, max_size=size) if nulls else st.just([])
    return st.builds(_masked, _plain_arrays(of, size), hidden)


def _plain_arrays(of, size):
    kind = of.kind
    if kind == "DECIMAL":
        values = st.integers(-(2**127), 2**127 - 1) | st.integers(-(10**5), 10**5)
        return st.lists(values, min_size=size, max_size=size).map(
            lambda numbers: pa.Array.from_buffers(of.arrow, size, [None, _decimals(numbers)])
        )
    if kind in {"ARRAY", "MAP"}:
        return st.lists(st.integers(0, 2), min_size=size, max_size=size).flatmap(
            lambda lengths: _nested_lists(of, lengths)
        )
    if kind == "STRUCT":
        return st.tuples(*(wild_arrays(each, size) for each in of.children)).map(
            lambda fields: pa.StructArray.from_arrays(list(fields), fields=list(of.arrow))
        )
    if kind in STORED:
        values, stored = STORED[kind]
        return st.lists(values, min_size=size, max_size=size).map(
            lambda each: pa.array(each, stored).view(of.arrow)
        )
    bits = of.arrow.bit_width - 1
    numbers = st.integers(-(2**bits), 2**bits - 1) | st.integers(0, 2)
    return st.lists(numbers, min_size=size, max_size=size).map(lambda n: pa.array(n, of.arrow))


def _decimals(numbers):
    return pa.py_buffer(b"".join(n.to_bytes(16, "little", signed=True) for n in numbers))


def _nested_lists(of, lengths):
    ends = [sum(lengths[:place]) for place in range(len(lengths) + 1)]
    offsets, total = pa.array(ends, pa.int32()), ends[-1]
    if of.kind == "ARRAY":
        return wild_arrays(of.children[0], total).map(
            lambda each: pa.ListArray.from_arrays(offsets, each, type=of.arrow)
        )
    key, value = of.children
    return st.tuples(wild_arrays(key, total, nulls=False), wild_arrays(value, total)).map(
        lambda pair: pa.MapArray.from_arrays(offsets, *pair, type=of.arrow)
    )


def _masked(array, hidden):
    """The same buffers below, with NULLs over some of them."""
    if not any(hidden):
        return array
    bits = sum(1 << place for place, is_null in enumerate(hidden) if not is_null)
    validity = pa.py_buffer(bits.to_bytes(len(hidden) // 8 + 1, "little"))
    kind = array.type
    if pa.types.is_map(kind):
        children = [pa.StructArray.from_arrays([array.keys, array.items], fields=_entry(kind))]
    elif pa.types.is_list(kind):
        children = [array.values]
    elif pa.types.is_struct(kind):
        children = [array.field(place) for place in range(kind.num_fields)]
    else:
        children = None
    own = [validity, *array.buffers()[1 : kind.num_buffers]]
    return pa.Array.from_buffers(kind, len(array), own, children=children)


def _entry(kind):
    return [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
