"""Examples in docstrings as code blocks: an extension of Griffe, which mkdocs.yml names.

Our examples stand where they explain something, not under a heading of their own; without this,
Markdown takes their prompts for quotations.
"""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """A docstring with each example, from its first prompt to an empty line, as a code block."""
    lines: list[str] = []
    is_open = False
    for line in text.split("\n"):
        if is_open and not line.strip():
            lines.append("```")
            is_open = False
        elif not is_open and line.startswith(">>> "):
            lines.append("```pycon")
            is_open = True
        lines.append(line)
    return "\n".join([*lines, "```"] if is_open else lines)


class DocstringExamples(griffe.Extension):
    """Rewrites the docstrings of what is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 - Griffe's own
        """Rewrite one."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
