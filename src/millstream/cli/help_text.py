"""The docstring of a command as its ``--help``."""

from __future__ import annotations

import inspect
from typing import Final

_EXAMPLES: Final = "Examples:\n"


def flowing(docstring: str) -> str:
    r"""A docstring whose paragraphs flow; the lines of its examples stay lines.

    >>> flowing("Do it.\n\nIn two\nlines.\n\nExamples:\n    do it\n    do more\n")
    'Do it.\n\nIn two lines.\n\n[bold]Examples[/bold]\n\n  do it\n\n  do more'
    """
    text, _, examples = inspect.cleandoc(docstring).partition(_EXAMPLES)
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    if examples:
        shown = [line.strip().replace("[", "\\[") for line in examples.splitlines()]
        parts += ["[bold]Examples[/bold]", *(f"  {line}" for line in shown)]
    return "\n\n".join(part for part in parts if part)
