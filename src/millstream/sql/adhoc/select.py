"""One SELECT: from its FROM to its LIMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.sql.adhoc.binder import TIME_WINDOWS, RowBinder, needs_groups, time_function
from millstream.sql.adhoc.draft import BoundQuery, Draft, OutputColumn
from millstream.sql.adhoc.from_clause import FromClause, FromItem, FromScope
from millstream.sql.adhoc.groups import GroupBinder, as_window
from millstream.sql.adhoc.window_functions import order_text
from millstream.sql.expressions.bind import struct_star
from millstream.sql.expressions.conditions import comparable
from millstream.sql.expressions.nodes import ColumnRef, Node
from millstream.sql.refusals import check_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_PARTS = {"expressions", "from_", "joins", "where", "group", "having", "distinct", "order"}
_LIMITS = {"limit", "offset", "with_"}

Item = tuple[str, Node]


def bind_select(
    draft: Draft,
    tree: exp.Select,
    ctes: Mapping[str, BoundQuery],
    outer: RowBinder | None,
    query: Callable[[exp.Expr, Mapping[str, BoundQuery], RowBinder | None], BoundQuery],
) -> BoundQuery:
    """Return a SELECT in DuckDB's SQL.

    Args:
        draft: what the plan gathers.
        tree: the SELECT.
        ctes: the queries of WITH that it can name.
        outer: the binder of the query around it.
        query: binds a subquery in FROM.
    """
    rows = RowBinder(draft, FromScope(), ctes, outer)
    check_parts(tree, _PARTS | _LIMITS, "a query", rows.sql)
    source = FromClause(rows, lambda inner: query(inner, ctes, None)).read(tree)
    where = tree.args.get("where")
    condition = None if where is None else rows.bind_boolean(where.this)
    binder = _grouped(rows, tree)
    items = _items(binder, tree.expressions)
    having = tree.args.get("having")
    kept = None if having is None else binder.bind_boolean(having.this)
    distinct = tree.args.get("distinct")
    if distinct is not None:
        check_parts(distinct, set(), "DISTINCT", rows.sql)
        for item, (_, node) in zip(tree.expressions, items, strict=False):
            comparable(binder, item, [node])
    order = _order(binder, tree, items, distinct=distinct is not None)
    text = "" if condition is None else draft.form.condition(condition)
    if isinstance(binder, GroupBinder):
        source, text = f"({binder.table(source, text)}) AS {binder.alias}", ""
        text = "" if kept is None else draft.form.condition(kept)
    columns = tuple(OutputColumn(name, node.type, node.nullable) for name, node in items)
    body = _select(draft, items, source, text, distinct=distinct is not None)
    return BoundQuery(body + _ordered(order) + limit_text(rows, tree), columns)


def _grouped(rows: RowBinder, tree: exp.Select) -> RowBinder:
    """Return what binds SELECT: over groups when there are any, else over rows."""
    by, order = tree.args.get("group"), tree.args.get("order")
    others = [*tree.expressions, *([order] if order is not None else [])]
    if by is None and tree.args.get("having") is None and not any(map(needs_groups, others)):
        return rows
    binder = GroupBinder(rows)
    if by is not None:
        check_parts(by, {"expressions"}, "GROUP BY", rows.sql)
        for each in by.expressions:
            binder.add_key(_key(rows, tree, each))
    return binder


def _key(rows: RowBinder, tree: exp.Select, key: exp.Expr) -> exp.Expr:
    """Return what a key stands for: a place or an alias in SELECT, or itself."""
    place = _place(rows, key, len(tree.expressions))
    if place is not None:
        return _named_item(rows, key, tree.expressions[place])
    if isinstance(key, exp.Column) and len(key.parts) == 1:
        if rows.scope.find(rows, key, [key.name]) is not None:
            return key
        for each in tree.expressions:
            if isinstance(each, exp.Alias) and each.alias.lower() == key.name.lower():
                return _named_item(rows, key, each)
    return key


def _named_item(rows: RowBinder, key: exp.Expr, item: exp.Expr) -> exp.Expr:
    found = item.this if isinstance(item, exp.Alias) else item
    if item.is_star or (needs_groups(found) and as_window(found) is None):
        hint = "Group by columns, expressions, or a window such as TUMBLE(ts, INTERVAL '1 minute')."
        rows.refuse(key, "GROUP BY does not take this expression", hint)
    return found


def _place(rows: RowBinder, tree: exp.Expr, count: int) -> int | None:
    """Return the place of ``ORDER BY 2``, from 0; None when a tree is no number."""
    if not isinstance(tree, exp.Literal) or tree.is_string or not tree.this.isdecimal():
        return None
    place = int(tree.this)
    if not 1 <= place <= count:
        rows.error(
            SqlColumnError,
            tree,
            f"there is no column {place}",
            f"The query selects {count}; count from 1.",
        )
    return place - 1


# --- What is selected -----------------------------------------------------------------------------


def _items(binder: RowBinder, trees: Sequence[exp.Expr]) -> list[Item]:
    binder.allows_over = True
    items: list[Item] = []
    for tree in trees:
        made = _item(binder, tree, len(items))
        items += made
        if isinstance(tree, exp.Alias):
            binder.aliases_last.setdefault(tree.alias.lower(), made[0][1])
    binder.allows_over = False
    return items


def _item(binder: RowBinder, tree: exp.Expr, place: int) -> list[Item]:
    if tree.is_star:
        return _star(binder, tree)
    if isinstance(tree, exp.Aliases):
        binder.refuse(tree, "a list of aliases is not supported", "Give each one alias: AS name.")
    inner = tree.this if isinstance(tree, exp.Alias) else tree
    if time_function(inner) in TIME_WINDOWS:
        word = time_function(inner)
        binder.refuse(inner, f"{word} cannot be selected", f"Select {word}_START or {word}_END.")
    node = binder.bind(inner)
    if node.type.kind == "NULL":
        binder.mismatch(tree, "NULL has no type here", "Write CAST(NULL AS INT).")
    if isinstance(tree, exp.Alias):
        return [(tree.alias, node)]
    inner = inner.unnest()  # (a) is the column a
    named = isinstance(inner, (exp.Column, exp.Dot))
    return [(inner.name if named else f"_c{place}", node)]


def _star(binder: RowBinder, tree: exp.Expr) -> list[Item]:
    star = tree.this if isinstance(tree, exp.Column) else tree
    if not isinstance(star, exp.Star):
        return struct_star(binder, tree)
    if any(star.args.values()):
        binder.refuse(tree, "only * and t.* are supported", "Name the columns.")
    if isinstance(binder, GroupBinder):
        binder.refuse(tree, "* is not allowed with GROUP BY", "Name the columns.")
    table = tree.args.get("table")
    found = None
    if table is None:
        found = binder.scope.star()
    elif not tree.args.get("db"):
        found = binder.scope.star_of(table.name)
    if found is None:
        return struct_star(binder, tree)
    if not found:
        binder.refuse(tree, "SELECT * needs a FROM clause", "Write FROM and what to select from.")
    for _, node in found:
        _use(binder.draft, node)
    return found


def _use(draft: Draft, node: Node) -> None:
    for each in getattr(node, "args", (node,)):
        if isinstance(each, ColumnRef):
            draft.use(each)


def _select(draft: Draft, items: Sequence[Item], source: str, where: str, *, distinct: bool) -> str:
    write = draft.key_text if distinct else draft.text
    texts = [f"{write(node)} AS c{place}" for place, (_, node) in enumerate(items)]
    text = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(texts)}"
    text += f" FROM {source}" if source else ""
    return f"{text} WHERE {where}" if where else text


# --- Order and limits -----------------------------------------------------------------------------


def _order(binder: RowBinder, tree: exp.Select, items: Sequence[Item], *, distinct: bool) -> str:
    order = tree.args.get("order")
    if order is None:
        return ""
    check_parts(order, {"expressions"}, "ORDER BY", binder.sql)
    binder.aliases_first = {name.lower(): node for name, node in reversed(items)}
    binder.allows_over = True

    def bind(key: exp.Expr) -> Node:
        place = _place(binder, key, len(items))
        node = binder.bind(key) if place is None else items[place][1]
        for at, (name, item) in enumerate(items):
            if item == node:  # by its name, so that it is not worked out again
                return binder.draft.column(name, node.type, f"c{at}", nullable=node.nullable)
        if distinct:
            binder.refuse(
                key, "SELECT DISTINCT can be ordered by its own columns only", "Select it, too."
            )
        return node

    text = order_text(binder, order.expressions, bind)
    binder.aliases_first, binder.allows_over = {}, False
    return text


def _ordered(order: str) -> str:
    return f" ORDER BY {order}" if order else ""


def limit_text(binder: RowBinder, tree: exp.Expr) -> str:
    """Return LIMIT and OFFSET as written: integers."""
    text = ""
    for name in ("limit", "offset"):
        part = tree.args.get(name)
        if part is None:
            continue
        if isinstance(part, exp.Fetch):
            binder.refuse(part, "FETCH is not supported", "Write LIMIT 10.")
        check_parts(part, {"expression"}, name.upper(), binder.sql)
        value = part.expression
        if not isinstance(value, exp.Literal) or value.is_string or not value.this.isdecimal():
            binder.refuse(
                part, f"{name.upper()} needs a constant number", "Write digits: LIMIT 10."
            )
        text += f" {name.upper()} {int(value.this)}"
    return text


def ordered_rows(
    draft: Draft, tree: exp.Expr, bound: BoundQuery, ctes: Mapping[str, BoundQuery]
) -> BoundQuery:
    """Return a query with the ORDER BY, LIMIT and OFFSET that stand behind a UNION."""
    order = tree.args.get("order")
    alias = draft.alias()
    columns = [
        draft.column(each.name, each.type, f"{alias}.c{place}", nullable=each.nullable)
        for place, each in enumerate(bound.columns)
    ]
    binder = RowBinder(draft, FromScope([FromItem("", columns)]), ctes)
    limit = limit_text(binder, tree)
    if order is None and not limit:
        return bound
    texts = ""
    if order is not None:
        items: list[Item] = [(each.name, each) for each in columns]

        def bind(key: exp.Expr) -> Node:
            place = _place(binder, key, len(items))
            return binder.bind(key) if place is None else items[place][1]

        texts = order_text(binder, order.expressions, bind)
    rows = f"SELECT * FROM ({bound.sql}) AS {alias}"  # noqa: S608 - all bound
    return BoundQuery(rows + _ordered(texts) + limit, bound.columns)
