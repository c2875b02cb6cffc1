from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.delivery.policy import Policy
from millstream.errors import InvalidOptionError

KINDS = ["block", "drop_oldest", "drop_newest", "conflate", "disconnect"]


@pytest.mark.parametrize("kind", KINDS)
def test_is_known_by_its_name(kind):
    assert Policy.parse(kind) == Policy(kind)
    assert str(Policy(kind)) == kind


@given(st.integers(1, 10**9))
def test_a_sample_has_a_number(every):
    policy = Policy.parse(f"sample({every})")
    assert (policy.kind, policy.every) == ("sample", every)
    assert Policy.parse(str(policy)) == policy
    assert Policy.parse(f"sample ( {every} )") == policy


@pytest.mark.parametrize(
    "text",
    [
        *("", "Block", "block ", "drop", None, 5),
        *(
            "sample",
            "sample()",
            "sample(0)",
            "sample(-1)",
            "sample(1.5)",
            "sample(x)",
            "sample(1) ",
        ),
    ],
)
def test_others_are_refused_with_those_there_are(text):
    with pytest.raises(InvalidOptionError) as caught:
        Policy.parse(text)
    assert all(kind in caught.value.hint for kind in [*KINDS, "sample(n)"])
