"""What goes wrong while an expression is evaluated, as errors that say what to do."""

from __future__ import annotations

from typing import NoReturn

from millstream.errors import ExpressionError

failures = (ZeroDivisionError, OverflowError)
"""What Python raises in the middle of arithmetic; ``failed`` makes one of ours of it."""


def failed(error: Exception) -> ExpressionError:
    """Return our error for one of Python's."""
    return division_by_zero() if isinstance(error, ZeroDivisionError) else overflow()


def division_by_zero() -> ExpressionError:
    """Return the error of a divisor that is zero."""
    return ExpressionError(
        "division by zero", hint="Divide by NULLIF(divisor, 0), which gives NULL instead."
    )


def overflow() -> ExpressionError:
    """Return the error of a value that its type cannot hold."""
    return ExpressionError(
        "a value is out of the range of its type", hint="CAST an operand to a wider type first."
    )


def too_large() -> NoReturn:
    """Raise the error of a value that its type cannot hold."""
    raise overflow()


def malformed(text: str, kind: str) -> ExpressionError:
    """Return the error of a text that cannot be read as a type."""
    return ExpressionError(
        f"{text!r} cannot be read as {kind}", hint="TRY_CAST gives NULL instead."
    )


def missing(name: str) -> ExpressionError:
    """Return the error of a NULL for a column that is NOT NULL."""
    return ExpressionError(
        f"column {name} is NOT NULL, and would become NULL", hint="Give a value with COALESCE."
    )
