"""What mkdocs.yml hooks into the making of the site.

Examples in docstrings become code blocks: ours stand where they explain something, not under a
heading of their own, and Markdown takes their prompts for quotations. Pipes in the code of a table
lose the backslash that GitHub needs and MkDocs shows.
"""

from __future__ import annotations

import re
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


_CODE = re.compile(r"`[^`]+`")


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401 - as MkDocs calls it
    """A page as MkDocs is to read it."""
    lines = markdown.split("\n")
    return "\n".join(_unescaped(line) if line.startswith("|") else line for line in lines)


def _unescaped(line: str) -> str:
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), line)
