"""The order of rows: by event time, and by their place in the log, carried up from the logs.

Rows in a dataflow have no order. What goes by one, such as FIRST, has to read it from
columns. So a log that only grows can be read with ``_row_lsn`` and ``_wm`` besides its own columns,
and the subqueries between it and an aggregate pass these on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from millstream.sql.refusals import common_of
from millstream.views.plan.functions import function_name, has_aggregate
from millstream.views.plan.plan import dated_relation, log_relation
from millstream.views.plan.trees import alias, column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.inputs import Input

LSN: Final = "_row_lsn"
WATERMARK: Final = "_wm"
_TIME: Final = "_event_time"
_NOT_ROW_BY_ROW: Final = ("group", "having", "distinct", "limit", "offset", "qualify", "sample")


@dataclass(frozen=True, slots=True)
class RowOrder:
    """What puts the rows of a SELECT in order, as columns of what it reads.

    Attributes:
        grows: whether they are rows of logs that only grow, filtered and projected.
        time: the event time; None when there is none.
        lsn: the place in the log, the same when a row comes and when it goes; None without one.
        watermark: the one before the row.
    """

    grows: bool = False
    time: exp.Expr | None = None
    lsn: exp.Expr | None = None
    watermark: exp.Expr | None = None

    @property
    def keys(self) -> list[exp.Expr]:
        """By what the rows are ordered; empty if they have no order."""
        return [each for each in (self.time, self.lsn) if each is not None]


class LogOrder:
    """Finds the order of rows, and has subqueries pass on the columns that it needs.

    Args:
        logs: what a query reads, by their numbers.

    Attributes:
        dated: the numbers of the logs that are read with ``_row_lsn`` and ``_wm``.
    """

    def __init__(self, logs: Sequence[Input]) -> None:
        self._logs = {log_relation(log): (log, given) for log, given in enumerate(logs)}
        self._known: dict[int, tuple[exp.Expr, RowOrder]] = {}
        self.dated: set[int] = set()

    def of(self, query: exp.Expr) -> RowOrder:
        """The order of the rows that a SELECT filters, groups and selects from."""
        known = self._known.get(id(query))
        if known is None:
            known = self._known[id(query)] = (query, self._found(query))
        return known[1]

    def grows(self, tree: exp.Expr) -> bool:
        """Whether a query filters, projects and unites logs that only grow."""
        if tree.args.get("pivots") or not _is_row_by_row(tree):
            return False
        if isinstance(tree, exp.Subquery) and not tree.args.get("joins"):
            return self.grows(tree.this)
        if isinstance(tree, exp.Union):
            return self.grows(tree.this) and self.grows(tree.expression)
        if isinstance(tree, exp.Table):
            common = common_of(tree)
            log = self._logs.get(_plain_name(tree.name))
            return self.grows(common.this) if common else log is not None and not log[1].retracts
        if not isinstance(tree, exp.Select):
            return False
        return not any(map(reads_others, tree.expressions)) and self.reads_growing(tree)

    def reads_growing(self, query: exp.Expr) -> bool:
        """Whether a SELECT reads rows that only come, one for one row of a log, but for EXPLODE."""
        source = query.args.get("from_")
        if source is None or query.args.get("joins") or source.this.args.get("joins"):
            return False
        read = [query.args.get("where"), *(query.args.get("laterals") or [])]
        return self.grows(source.this) and not any(each and each.find(exp.Query) for each in read)

    def is_event_time(self, time: exp.Expr, query: exp.Expr) -> bool:
        """Whether an expression in a SELECT that reads growing logs is the event time of them."""
        if not isinstance(time, exp.Column) or query.args.get("from_") is None:
            return False
        source = query.args["from_"].this
        if time.table and time.table.lower() != source.alias_or_name.lower():
            return False
        return self._has_time(time.name, source)

    def _has_time(self, name: str, tree: exp.Expr) -> bool:
        """Whether a column of what follows FROM is the event time of the logs in it."""
        if isinstance(tree, exp.Table) and common_of(tree) is None:
            event_time = self._logs[_plain_name(tree.name)][1].event_time
            return event_time is not None and event_time.lower() == name.lower()
        given = tree.args.get("alias")
        if isinstance(tree, exp.Table):
            common = common_of(tree)
            if common is None:
                return False
            given = given if given and given.args.get("columns") else common.args.get("alias")
            tree = common
        names = [each.name.lower() for each in given.args.get("columns") or []] if given else []
        place = names.index(name.lower()) if name.lower() in names else None
        if names and place is None:
            return False
        parts = _parts(tree.this)
        item, place = _item(parts[0], name, place)  # the first part of a union names its columns
        items = [item, *(_item(part, name, place)[0] for part in parts[1:])]
        return all(
            each is not None and self.is_event_time(each, part)
            for each, part in zip(items, parts, strict=True)
        )

    def _found(self, query: exp.Expr) -> RowOrder:
        source = query.args.get("from_")
        if source is None:
            return RowOrder()
        joins = [*(source.this.args.get("joins") or []), *(query.args.get("joins") or [])]
        if not all(map(self._is_lookup, joins)):
            return RowOrder()
        found = self._relation(source.this, query)
        if joins and found.lsn is None:
            return RowOrder()
        # A row of a join comes and goes with the tables, and is ordered as the log's row.
        return replace(found, grows=found.grows and not joins)

    def _is_lookup(self, join: exp.Join) -> bool:
        """Whether a join keeps the order of its left side: one with a log that retracts."""
        names = [each for each in join.this.find_all(exp.Table) if common_of(each) is None]
        logs = [self._logs.get(_plain_name(each.name)) for each in names]
        retracts = bool(logs) and all(log is not None and log[1].retracts for log in logs)
        sides = {str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()}
        plain = sides <= {"", "LEFT", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"}
        is_asof = str(join.args.get("method") or "").upper() == "ASOF"
        return plain and not is_asof and retracts

    def _relation(self, tree: exp.Expr, query: exp.Expr) -> RowOrder:
        """The order of what follows FROM, by the names that it has in its SELECT."""
        if tree.args.get("pivots"):
            return RowOrder()
        if isinstance(tree, exp.Table):
            common = common_of(tree)
            if common is None:
                return self._log(tree, query)
            tree = _inlined(tree, common)
        if not isinstance(tree, exp.Subquery):
            return RowOrder()
        found = self._passed_on(tree.this)
        parts = {_TIME: found.time, LSN: found.lsn, WATERMARK: found.watermark}
        names = [name for name, each in parts.items() if each is not None]
        named = tree.args.get("alias")
        if named is None:
            tree.set("alias", exp.TableAlias(this=exp.to_identifier("_rows", quoted=True)))
        elif named.args.get("columns"):
            for name in names:
                named.append("columns", exp.to_identifier(name, quoted=True))
        leave_out(query, tree.alias, names)
        return RowOrder(
            found.grows,
            *(None if each is None else column(name, tree.alias) for name, each in parts.items()),
        )

    def _log(self, table: exp.Table, query: exp.Expr) -> RowOrder:
        log = self._logs.get(_plain_name(table.name))  # a copy may be dated already
        if log is None:
            return RowOrder()
        number, given = log
        time = None if given.event_time is None else column(given.event_time, table.alias)
        if given.retracts:
            return RowOrder(time=time)
        self.dated.add(number)
        table.set("this", exp.to_identifier(dated_relation(number), quoted=True))
        leave_out(query, table.alias, [LSN, WATERMARK])
        return RowOrder(True, time, column(LSN, table.alias), column(WATERMARK, table.alias))

    def _passed_on(self, query: exp.Expr) -> RowOrder:
        """The order of a query's rows; it gives the columns for it besides its own."""
        if not _is_row_by_row(query):
            return RowOrder()
        if isinstance(query, exp.Subquery) and not query.alias:
            return self._passed_on(query.this)
        if isinstance(query, exp.Union):
            return self._of_union(query)
        if not isinstance(query, exp.Select):
            return RowOrder()
        found = self.of(query)
        _pass_on(query, found)
        return found

    def _of_union(self, query: exp.Union) -> RowOrder:
        parts = _parts(query)
        if not all(isinstance(each, exp.Select) and _is_row_by_row(each) for each in parts):
            return RowOrder()
        found = [self.of(each) for each in parts]
        shared = RowOrder(
            all(each.grows for each in found),
            *(
                getattr(found[0], name) if all(getattr(each, name) for each in found) else None
                for name in ("time", "lsn", "watermark")
            ),
        )
        for part, each in zip(parts, found, strict=True):
            _pass_on(
                part,
                RowOrder(
                    shared.grows,
                    *(
                        getattr(each, name) if getattr(shared, name) is not None else None
                        for name in ("time", "lsn", "watermark")
                    ),
                ),
            )
        return shared


def _plain_name(relation: str) -> str:
    """The relation of a log's own columns, which may be read with others besides."""
    return relation.replace(dated_relation(0)[:-1], log_relation(0)[:-1])


def reads_others(item: exp.Expr) -> bool:
    """Whether an expression reads more than one row: those of a subquery, or of a partition."""
    return item.find(exp.Query, exp.Window) is not None


def _is_row_by_row(query: exp.Expr) -> bool:
    """Whether each row of a query is made of one row that it reads."""
    if any(query.args.get(part) for part in _NOT_ROW_BY_ROW):
        return False
    return not isinstance(query, exp.Select) or not any(map(has_aggregate, query.expressions))


def _item(query: exp.Expr, name: str, place: int | None) -> tuple[exp.Expr | None, int | None]:
    """What a SELECT gives as a column, by its name or its place, and the place."""
    if not isinstance(query, exp.Select):
        return None, None
    items = query.expressions
    if place is None:
        named = [n for n, each in enumerate(items) if each.alias_or_name.lower() == name.lower()]
        if not named and any(isinstance(each, exp.Star) for each in items):
            return column(name), None
        place = named[0] if len(named) == 1 else None
    if place is None or any(each.is_star for each in items[: place + 1]) or place >= len(items):
        return None, None
    return items[place].unalias(), place


def _parts(query: exp.Expr) -> list[exp.Expr]:
    """The parts of a UNION ALL."""
    if _is_row_by_row(query):
        if isinstance(query, exp.Subquery) and not query.alias:
            return _parts(query.this)
        if isinstance(query, exp.Union):
            return [*_parts(query.this), *_parts(query.expression)]
    return [query]


def _pass_on(query: exp.Expr, order: RowOrder) -> None:
    """Have a SELECT give the columns of its order."""
    for name, each in ((_TIME, order.time), (LSN, order.lsn), (WATERMARK, order.watermark)):
        if each is not None:
            query.append("expressions", alias(each, name))


def leave_out(query: exp.Expr, known_as: str, names: Sequence[str]) -> None:
    """Have the stars of a SELECT not give columns that are there for Millstream only.

    Args:
        query: the SELECT, which is changed.
        known_as: by which name it knows what the columns are of; empty if that has none.
        names: the columns.
    """
    for each in query.walk(prune=lambda each: isinstance(each, exp.Query) and each is not query):
        if not isinstance(each, exp.Star) or counts_rows(each):
            continue
        of = each.parent.table if isinstance(each.parent, exp.Column) else ""
        if of.lower() in {"", known_as.lower()}:
            known = {name.name for name in each.args.get("except_") or []}
            for name in names:
                if name not in known:
                    each.append("except_", exp.to_identifier(name, quoted=True))


def counts_rows(star: exp.Star) -> bool:
    """Whether a star is that of COUNT(*), which stands for no columns."""
    return function_name(star.parent) == "count" if star.parent is not None else False


def _inlined(table: exp.Table, common: exp.CTE) -> exp.Subquery:
    """Write a common table expression in place of its name; others that read it are unchanged."""
    named = table.args.get("alias") or exp.TableAlias(
        this=exp.to_identifier(table.name, quoted=True)
    )
    given = common.args.get("alias")
    if not named.args.get("columns") and given is not None and given.args.get("columns"):
        named.set("columns", [each.copy() for each in given.args["columns"]])
    made = exp.Subquery(this=common.this.copy(), alias=named)
    for part in ("joins", "laterals", "pivots", "sample"):
        made.set(part, table.args.get(part))
    table.replace(made)
    return made
