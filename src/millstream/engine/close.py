"""Closing a database: what is done, in which order, whatever a step raises."""

from __future__ import annotations

import contextlib
import shutil
import threading
import warnings
from typing import TYPE_CHECKING

from millstream.errors import LogError

if TYPE_CHECKING:
    from millstream.engine.engine import Engine


def close_engine(engine: Engine, temporary: str | None) -> None:
    """Commit what was pushed, complete the subscriptions, close the log.

    Args:
        engine: the database.
        temporary: the directory, if it is to be removed.

    Raises:
        LogFullError: the disk is full; ``rows_lost`` rows that were pushed are lost.
    """
    engine.is_closed = True
    if engine.dispatcher.is_forked:  # the database is its parent's
        return
    with contextlib.ExitStack() as last:  # done whatever a step before raises, the lowest first
        if temporary is not None:
            engine.saver.abandon()
            last.callback(shutil.rmtree, temporary, ignore_errors=True)
        last.push(lambda _, raised, __: _close_log(engine, raised))
        last.callback(engine.registry.end_all)
        _stop(engine)


def _stop(engine: Engine) -> None:
    """Stop all threads; what was pushed before is committed."""
    engine.connections.close()
    engine.inlets.stop_watching()
    engine.views.close()
    engine.relations.close()
    engine.inlets.close()
    try:
        engine.positions.write()
    finally:
        engine.dispatcher.stop()
        engine.inlets.abandon()
        engine.tables.close()


def _close_log(engine: Engine, raised: BaseException | None) -> None:
    """Close the log; rows that are lost here and rows that were lost before are one number."""
    try:
        engine.log.close()
    except LogError as error:
        before = raised.rows_lost if isinstance(raised, LogError) else 0
        if before and isinstance(error.__cause__, LogError):
            raise error.__cause__.with_lost(before + error.rows_lost) from error
        if before:
            raise error.with_lost(before) from error
        raise


def close_forgotten(engine: Engine, temporary: str | None) -> None:
    """Close a database that was not closed and is not referenced any more."""
    try:
        path = engine.log.path
        warnings.warn(f"the database {path} was not closed", ResourceWarning, stacklevel=2)
    finally:
        # The collector may run in one of its own threads, which cannot wait for itself.
        if threading.current_thread() is threading.main_thread():
            close_engine(engine, temporary)
        else:
            threading.Thread(target=close_engine, args=(engine, temporary)).start()
