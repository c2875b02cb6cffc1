"""``Cut``: the changes of several queries up to one LSN, which belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.model.batch import ChangeBatch, Kind


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cut:
    """What has changed in several queries since the cut before, all of it up to one LSN.

    ``cut[query]``, with the query as it was given to ``subscribe``, is the batches of its changes,
    in order; iterating gives each query that has changed, and a batch of it. A copy of each result
    to which they are applied is what the query gives over the rows of sources and tables up to that
    LSN. Its length is that of all batches.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE orders (id BIGINT); CREATE SOURCE payments (id BIGINT)")
    ...     subscription = db.subscribe(["orders", "payments"])
    ...     db.insert("orders", [(1,), (2,)])
    ...     cut = subscription.recv(timeout=10)
    ...     [batch.rows for batch in cut["orders"]], cut["payments"]
    2
    ([[(1,), (2,)]], ())

    Attributes:
        lsn: everything up to this LSN counts in it, and nothing after it.
        batches: by query, the batches of its changes.
        kind: ``"snapshot"`` when some batch of it is, so that it replaces what a reader had of that
            query; else ``"changes"``.
        token: the text from which ``subscribe`` with the same queries resumes after it.
    """

    lsn: int
    batches: dict[str, tuple[ChangeBatch, ...]]
    kind: Kind
    token: str

    def __getitem__(self, query: str) -> tuple[ChangeBatch, ...]:
        return self.batches[query]

    def __iter__(self) -> Iterator[tuple[str, ChangeBatch]]:
        return ((query, batch) for query, batches in self.batches.items() for batch in batches)

    def __len__(self) -> int:
        return sum(len(batch) for _, batch in self)

    def __bool__(self) -> bool:
        """True, even without rows: a gap is news, too."""
        return True

    def to_arrow(self) -> dict[str, pa.Table]:
        """By query, its changes with ``_op``, ``_weight`` and ``_lsn``; no query without any."""
        return {
            query: pa.concat_tables(
                [pa.Table.from_batches([batch.to_arrow()]) for batch in batches],
                promote_options="default",  # columns may have been added in between
            )
            for query, batches in self.batches.items()
            if batches
        }

    def __repr__(self) -> str:
        kind = "" if self.kind == "changes" else f" {self.kind}"
        changed = ", ".join(
            f"{query}: {sum(map(len, batches))} rows"
            for query, batches in self.batches.items()
            if batches
        )
        return f"<Cut{kind} at LSN {self.lsn}: {changed or 'nothing'}>"
