"""Waiting until everything that was pushed so far is in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.dispatch.dispatcher import Dispatcher
    from millstream.log import Log


def make_durable(dispatcher: Dispatcher, log: Log) -> int:
    """Wait until all pushed rows are on the disk and delivered; returns the last LSN.

    Raises:
        LogFullError: the disk is full; pushed rows are kept in memory until there is room.
    """
    lsn = dispatcher.barrier(complete=True)
    log.flush()
    return lsn


def make_readable(dispatcher: Dispatcher, log: Log) -> int:
    """Wait until all pushed rows can be read from the log; returns the last LSN.

    Raises:
        LogFullError: the disk is full; pushed rows are kept in memory until there is room.
    """
    lsn = dispatcher.barrier(complete=True)
    log.appender.wait_written(lsn)
    return lsn
