"""``Cut``: the changes of several queries up to one common LSN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.model.batch import ChangeBatch, Kind


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cut:
    """All changes of several queries since the previous cut, up to one LSN.

    ``cut[query]``, with the query's text as given to ``subscribe``, is a tuple of batches, in
    order. Iterating yields pairs of a query and one of its batches. If you apply the batches to
    copies of the results, each copy shows what its query returns over the rows of sources and
    tables up to that LSN. The length of a cut is the number of rows of all batches.

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
        lsn: the cut includes everything up to this LSN, and nothing after it.
        batches: the batches of changes, by query.
        kind: ``"snapshot"`` if a batch is a snapshot, which replaces the reader's copy of that
            query's result; else ``"changes"``.
        token: pass it as ``start``, with the same queries, to resume after this cut.
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
        """Return a table of changes for each query that has changed.

        The tables have the columns ``_op``, ``_weight`` and ``_lsn`` besides those of the query.
        """
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
