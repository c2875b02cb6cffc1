"""ORDER BY: NULLs come first going up and last going down, unless the query says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.expressions.conditions import comparable
from millstream.sql.expressions.nodes import Literal, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.sql.adhoc.binder import RowBinder


def order_text(
    binder: RowBinder, trees: Sequence[exp.Expr], bind: Callable[[exp.Expr], Node]
) -> str:
    """Return what follows ORDER BY; empty when only constants do, which order nothing."""
    texts = []
    for tree in trees:
        if not isinstance(tree, exp.Ordered) or tree.args.get("with_fill"):
            binder.refuse(tree, "this ORDER BY is not supported", "Write ORDER BY a, b DESC.")
        node = bind(tree.this)
        comparable(binder, tree, [node])
        if isinstance(node, Literal):
            continue
        way = "DESC" if tree.args.get("desc") else "ASC"
        nulls = "FIRST" if tree.args.get("nulls_first") else "LAST"
        texts.append(f"{binder.draft.text(node)} {way} NULLS {nulls}")
    return ", ".join(texts)
