"""Backpressure: what happens to a reader that is slower than its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from millstream.errors import InvalidOptionError

BLOCK: Final = "block"
DROP_OLDEST: Final = "drop_oldest"
DROP_NEWEST: Final = "drop_newest"
SAMPLE: Final = "sample"
CONFLATE: Final = "conflate"
DISCONNECT: Final = "disconnect"

_SAMPLE = re.compile(r"sample\s*\(\s*([0-9]+)\s*\)")
_KINDS = (BLOCK, DROP_OLDEST, DROP_NEWEST, CONFLATE, DISCONNECT)


@dataclass(frozen=True, slots=True)
class Policy:
    """One of the six policies.

    >>> Policy.parse("sample(10)")
    Policy(kind='sample', every=10)

    Attributes:
        kind: ``block``: nothing is lost, what does not fit the buffer stays in the log and is read
            from there; ``drop_oldest``, ``drop_newest``: the buffer is all there is; ``sample``:
            every n-th row only; ``conflate``: changes that were not read yet are netted by key;
            ``disconnect``: the subscription ends.
        every: for ``sample``, of how many rows one is kept.
    """

    kind: str
    every: int = 1

    def __str__(self) -> str:
        return f"sample({self.every})" if self.kind == SAMPLE else self.kind

    @classmethod
    def parse(cls, text: str) -> Policy:
        """The policy of a name.

        Raises:
            InvalidOptionError: there is none of that name.
        """
        if text in _KINDS:
            return cls(text)
        sample = _SAMPLE.fullmatch(text) if isinstance(text, str) else None
        if sample is not None and int(sample[1]) > 0:
            return cls(SAMPLE, int(sample[1]))
        raise InvalidOptionError(
            f"backpressure is {text!r}", hint=f"one of {', '.join(_KINDS)}, sample(n)"
        )
