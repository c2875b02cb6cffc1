"""The table of groups: the SELECT that makes one row of each group, for every kind of window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.adhoc.parts import Aggregate, Tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.adhoc.draft import Draft
    from millstream.sql.adhoc.scope import Scope
    from millstream.sql.adhoc.times import TimeWindow
    from millstream.sql.expressions.nodes import Node

WINDOW_COLUMNS = {"START": "w_start", "END": "w_end"}
"""What the ends of a window are called in the table, in microseconds."""


class GroupTable:
    """Writes the table of groups: keys are k0, k1 and so on, aggregates a0, a1.

    Args:
        draft: what the plan gathers.
        scope: the columns of the rows that are grouped.
        keys: what the rows of a group have in common.
        aggregates: what is made of the rows of a group.
    """

    def __init__(
        self, draft: Draft, scope: Scope, keys: Sequence[Node], aggregates: Sequence[Aggregate]
    ) -> None:
        self._draft = draft
        self._scope = scope
        self._keys = keys
        self._aggregates = aggregates

    def sql(self, source: str, where: str, window: TimeWindow | None) -> str:
        """Return the table.

        Args:
            source: what follows FROM.
            where: the condition of WHERE; empty when there is none.
            window: the window over event time, if there is one. Rows without a time are in none.
        """
        if window is None:
            return self._grouped(self._key_texts(), [], _from(source, where))
        time = self._draft.text(window.time)
        there = f"{time} IS NOT NULL"
        rest = _from(source, f"{where} AND {there}" if where else there)
        if window.kind == "SESSION":
            return self._sessions(window, f"epoch_us({time})", rest)
        return self._windows(window, f"epoch_us({time})", rest)

    def _key_texts(self) -> list[str]:
        return [self._draft.key_text(each) for each in self._keys]

    def _windows(self, window: TimeWindow, micros: str, rest: str) -> str:
        if window.kind == "TUMBLE":
            start = window.start(micros)
            return self._grouped(self._key_texts(), [start, f"{start} + {window.size}"], rest)
        # A row is in several windows: one row is made for each of them.
        rows, _ = self._moved([f"unnest({window.places(micros)}) AS w"], rest)
        ends = ["w", f"w + {window.size}"]
        if window.kind == "CUMULATE":
            ends = [window.start("(w - 1)"), "w"]
        return self._grouped(self._key_texts(), ends, rows)

    def _sessions(self, window: TimeWindow, micros: str, rest: str) -> str:
        names = [f"k{place}" for place in range(len(self._keys))]
        texts = zip(self._key_texts(), names, strict=True)
        added = [f"{micros} AS w", *(f"{text} AS {name}" for text, name in texts)]
        rows, alias = self._moved(added, rest)
        part = f"PARTITION BY {', '.join(names)} " if names else ""
        over = f"OVER ({part}ORDER BY w"
        within = f"w <= lag(w) {over}) + {window.size}"
        begun = f"SELECT *, CASE WHEN {within} THEN 0 ELSE 1 END AS begun{rows}"
        # Rows of one time are peers: RANGE gives all of them the same number.
        number = f"sum(begun) {over} RANGE UNBOUNDED PRECEDING) AS number"
        numbered = f" FROM (SELECT *, {number} FROM ({begun})) AS {alias}"  # noqa: S608 - all bound
        ends = ["min(w)", f"max(w) + {window.size}"]
        return self._grouped(names, ends, numbered, by=[*names, "number"])

    def _moved(self, added: list[str], rest: str) -> tuple[str, str]:
        """Return FROM a table of the columns that are used and of some more, and its name."""
        alias = self._draft.alias()
        hidden = [each.lsn for each in self._scope.relations if each.lsn is not None]
        used = [each for each in (*self._scope.columns, *hidden) if self._draft.is_used(each)]
        texts = [f"{self._draft.text(each)} AS c{each.index}" for each in used]
        for each in used:
            self._draft.move(each, f"{alias}.c{each.index}")
        return f" FROM (SELECT {', '.join([*texts, *added])}{rest}) AS {alias}", alias

    def _grouped(
        self, keys: list[str], ends: list[str], rest: str, *, by: list[str] | None = None
    ) -> str:
        items = [f"{text} AS k{place}" for place, text in enumerate(keys)]
        items += [f"{t} AS {n}" for t, n in zip(ends, WINDOW_COLUMNS.values(), strict=False)]
        if by is None:
            by = [str(place + 1) for place in range(len(items))]
        items += [f"{m.write(Tail())} AS a{place}" for place, m in enumerate(self._aggregates)]
        # SELECT 1 ... HAVING TRUE has a group, though nothing is asked of it.
        text = f"SELECT {', '.join(items or ['count(*) AS a0'])}{rest}"
        return f"{text} GROUP BY {', '.join(by)}" if by else text


def _from(source: str, where: str) -> str:
    text = f" FROM {source}" if source else ""
    return f"{text} WHERE {where}" if where else text
