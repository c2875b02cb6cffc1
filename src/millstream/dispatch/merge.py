"""What was drained, in handy sizes: small batches joined, bulk loads parted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

_MERGED_ROWS: Final = 1 << 14
"""Small batches are joined up to this many rows: one commit, one filter, one delivery for all."""

_COMMIT_ROWS: Final = 1 << 17
"""A bulk load is committed in pieces of about this many rows."""


def commits(batches: list[tuple[str, ChangeBatch]]) -> Iterator[list[tuple[str, ChangeBatch]]]:
    """What is committed together: the whole cut, or, of one source alone, some rows at a time.

    While one commit is written, the next one is filtered.
    """
    if batches[0][0] != batches[-1][0]:
        yield batches
        return
    commit: list[tuple[str, ChangeBatch]] = []
    rows = 0
    for each in batches:
        commit.append(each)
        rows += len(each[1])
        if rows >= _COMMIT_ROWS:
            yield commit
            commit, rows = [], 0
    yield commit


def joined(batches: list[ChangeBatch]) -> list[ChangeBatch]:
    """Small neighbours as one: insert-only, in one form, without a watermark between them."""
    if len(batches) < 2:
        return batches
    done: list[ChangeBatch] = []
    run: list[ChangeBatch] = []
    rows = 0
    for batch in batches:
        rows += len(batch)
        if run and not (rows <= _MERGED_ROWS and _may_join(run[-1], batch)):
            done.append(_join(run))
            run, rows = [], len(batch)
        run.append(batch)
    done.append(_join(run))
    return done


def _may_join(one: ChangeBatch, other: ChangeBatch) -> bool:
    return (
        one.is_arrow == other.is_arrow
        and one.watermark is None
        and other.watermark is None
        and one.schema is other.schema
        and one.is_insert_only
        and other.is_insert_only
    )


def _join(run: list[ChangeBatch]) -> ChangeBatch:
    if len(run) == 1:
        return run[0]
    schema = run[0].schema
    if run[0].is_arrow:
        return ChangeBatch(schema, None, pa.concat_batches([b.arrow for b in run]), None)
    return ChangeBatch(schema, [row for batch in run for row in batch.held_rows], None, None)
