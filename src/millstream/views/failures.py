"""Why a view cannot go on: the errors that its readers get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import Error, ViewFailedError
from millstream.views.planning import OutdatedRowsError
from millstream.views.run.failures import CORRECT, REPLACE, view_failure

if TYPE_CHECKING:
    from millstream.catalog import Definition
    from millstream.views.bad_rows import BadRows


def view_failed(name: str, raised: Exception) -> ViewFailedError:
    """The error that readers of a view get for what was raised in one of its threads."""
    if isinstance(raised, ViewFailedError) and raised.view == name:
        return raised
    return view_failure(
        name,
        raised,
        f"{type(raised).__name__}: {raised}",
        "open the database again; this is a bug in Millstream, please report it",
    )


def no_value(name: str, bad: BadRows, *, retracts: bool) -> ViewFailedError:
    """The error of a view whose query has no value for some rows of its input.

    Args:
        name: the view.
        bad: these rows.
        retracts: whether they may be corrected or deleted.
    """
    row, raised = bad.first()
    error = view_failure(name, raised, str(raised), "", row)
    error.hint = f"{error.hint} {CORRECT if retracts else REPLACE}".strip()
    return error


def unrepeatable(definition: Definition, state: str) -> ViewFailedError:
    """The error of a view that would have to read its inputs again, and cannot.

    Args:
        definition: the view.
        state: what its checkpoint is.
    """
    gone = "are, too" if state == "gone" else "are gone"
    return ViewFailedError(
        f"the checkpoint of {definition.name} is {state}, and rows that it has read {gone}",
        view=definition.name,
        hint=f"CREATE OR REPLACE MATERIALIZED VIEW {definition.name} begins with what is kept",
    )


def unopened(definition: Definition, error: Exception) -> ViewFailedError:
    """The error of a view that could not be opened."""
    kind = definition.kind.upper()
    what = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    failed = ViewFailedError(
        f"{definition.name} could not be opened: {what}",
        view=definition.name,
        hint=error.hint
        if isinstance(error, OutdatedRowsError)
        else f"SHOW CREATE {definition.name} shows it; CREATE OR REPLACE it, or DROP {kind} it",
    )
    failed.__cause__ = error
    return failed


def half_dropped(name: str, error: Error) -> ViewFailedError:
    """The error of a view that was stopped and could not be dropped."""
    return ViewFailedError(
        f"{name} was to be dropped: {error.message}",
        view=name,
        hint="drop it again, or open the database again",
    )
