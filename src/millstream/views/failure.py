"""Why a view failed that is kept up in this process."""

from __future__ import annotations

from millstream.errors import Error, ViewFailedError


def failure(name: str, raised: Exception) -> ViewFailedError:
    """The error that whoever reads the view is told."""
    if isinstance(raised, Error):
        return ViewFailedError(
            f"the view {name} failed: {raised.message}", view=name, hint=raised.hint
        )
    return ViewFailedError(
        f"the view {name} failed: {type(raised).__name__}: {raised}",
        view=name,
        hint="open the database again; this is a bug in Millstream, please report it",
    )
