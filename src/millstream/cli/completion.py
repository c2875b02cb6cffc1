"""Completion in the SQL shell: keywords, functions, and what the database has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from prompt_toolkit.completion import Completer, Completion

from millstream.errors import Error
from millstream.sql.function_names import AGGREGATES, COUNTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from millstream import Database

_WORDS: Final = """
    ALTER AND AS ASC BETWEEN BIGINT BOOLEAN BY CASE CAST CHANGES COLUMN CREATE DATE DECIMAL DELETE
    DESC DESCRIBE DISTINCT DOUBLE DROP ELSE EMIT END EXISTS EXPLAIN FALSE FOR FROM FULL GROUP HAVING
    HOP IF ILIKE IN INNER INSERT INTEGER INTERVAL INTO IS JOIN KEY LEFT LIKE LIMIT LISTEN LIVE
    MATERIALIZED NOT NOTIFY NULL ON OR ORDER OVER PARTITION PRIMARY REPLACE SELECT SESSION SET SHOW
    SINCE SOURCE SOURCES SUBSCRIBE SUBSCRIPTIONS TABLE TABLES THEN TIMESTAMP TO TRUE TUMBLE UNION
    UNLISTEN UPDATE USING VALUES VARCHAR VIEW VIEWS WATERMARK WHEN WHERE WITH
"""
KEYWORDS: Final = tuple(_WORDS.split())
_WORD: Final = re.compile(r"\w*\Z")
_KINDS: Final = ("SOURCES", "TABLES", "VIEWS", "STREAMS")


class SqlCompleter(Completer):
    """Completes the word before the cursor; names first, in the letters that they have."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        """What the word may become."""
        found = _WORD.search(document.text_before_cursor)
        word = found[0] if found else ""
        names, columns = self._catalog()
        if document.text_before_cursor.lstrip().startswith("\\d"):
            yield from _matching(word, names)
            return
        yield from _matching(word, names)
        yield from _matching(word, columns)
        if word:
            upper = sorted({*KEYWORDS, *COUNTS, *AGGREGATES})
            yield from _matching(
                word, [each.lower() for each in upper] if word.islower() else upper
            )

    def _catalog(self) -> tuple[list[str], list[str]]:
        """The names of sources, tables and views, and of their columns."""
        names: set[str] = set()
        columns: set[str] = set()
        try:
            for kind in _KINDS:
                for each in self._database.query(f"SHOW {kind}").to_pylist():
                    names.add(each["name"])
                    columns.update(self._database.schema(each["name"]).names)
        except Error:  # while something is dropped: complete what was found
            pass
        return sorted(names), sorted(columns - names)


def _matching(word: str, candidates: list[str]) -> Iterator[Completion]:
    for each in candidates:
        if each.lower().startswith(word.lower()):
            yield Completion(each, start_position=-len(word))
