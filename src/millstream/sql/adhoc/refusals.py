"""Clauses that no one would miss if they were passed over: they are refused instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from millstream.sql.expressions.bind import Binder

_WORDS = {
    "laterals": "LATERAL VIEW",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "grouping_sets": "GROUPING SETS",
    "with_": "WITH",
    "by_name": "UNION BY NAME",
    "method": "NATURAL or ASOF",
    "windows": "WINDOW",
    "expressions": "an argument",
    "db": "a name of two parts",
    "kind": "SELECT AS",
}
_HINTS = {
    "laterals": "Store one row for each element, and select from those.",
    "sort": "Write ORDER BY.",
    "cluster": "Write ORDER BY.",
    "distribute": "Leave it out.",
    "qualify": "Use a subquery, and filter around it.",
    "pivots": "Write SUM(x) FILTER (WHERE column = value) for each column.",
    "rollup": "Write one SELECT for each level, with UNION ALL between.",
    "cube": "Write one SELECT for each level, with UNION ALL between.",
    "grouping_sets": "Write one SELECT for each level, with UNION ALL between.",
    "alias": "Write the window itself after OVER.",
    "windows": "Write the window itself after OVER.",
    "method": "Write JOIN ... ON, or USING.",
    "db": "Name the source, table or view itself.",
    "recursive": "Leave RECURSIVE out, if no query in WITH reads itself.",
}


def refuse_others(binder: Binder, tree: exp.Expr, known: set[str], where: str) -> None:
    """Refuse a tree with a part that is not among those that are known.

    Raises:
        SqlUnsupportedError: to pass over the part would change the meaning.
    """
    for name, part in tree.args.items():
        if part and name not in known:
            at = part[0] if isinstance(part, list) else part
            word = _WORDS.get(name, name.rstrip("_").replace("_", " ").upper())
            hint = _HINTS.get(name, "Leave it out, or rewrite the query without.")
            binder.refuse(
                at if isinstance(at, exp.Expr) else tree,
                f"{word} is not supported in {where}",
                hint,
            )
