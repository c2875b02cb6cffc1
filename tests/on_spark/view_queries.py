"""Random queries over every kind of node, whose meaning Spark and DuckDB agree on.

What they do not agree on is not drawn, or in a form that they do agree on: division, AVG of
decimals (DECIMAL for Spark, DOUBLE for DuckDB), ties of MAX_BY, grouping sets over no rows,
COUNT_IF over none (0 and NULL), COUNT(DISTINCT a, b). Sums are of integers and decimals, and of
doubles that are quarters: exact in any order.
"""

from __future__ import annotations

from typing import NamedTuple

RELATIONS = {
    "t": {"id": "int", "a": "int", "b": "int", "s": "str"},
    "u": {"id": "int", "a": "int", "d": "dec", "f": "bool"},
    "w": {"id": "int", "b": "int", "s": "str", "d": "dec"},
    "e": {"a": "int", "b": "int", "s": "str", "d": "dec"},
}
"""Three tables, whose key is ``id``, and a source."""
TYPES = {"int": "INT", "str": "VARCHAR", "dec": "DECIMAL(8, 2)", "bool": "BOOLEAN"}
LITERALS = {
    "int": ["-2", "-1", "0", "1", "2", "3"],
    "str": ["''", "'a'", "'b'", "'ü'"],
    "dec": ["-1.25", "0.00", "0.50", "2.75"],
    "bool": ["TRUE", "FALSE"],
    "double": ["0", "1", "1.5"],
}
INNER = ["JOIN", "JOIN", "INNER JOIN"]
OUTER = ["LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN"]
HALF = ["SEMI JOIN", "ANTI JOIN"]
SET_OPERATIONS = ["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]


class Column(NamedTuple):
    """A column that an expression may use, with its kind: one of ``LITERALS``.

    ``inexact`` is a kind, too: such a value depends on the order of additions, and is only shown.
    """

    text: str
    kind: str


class Query(NamedTuple):
    """A SELECT whose columns are named c0, c1, ..., with their kinds."""

    sql: str
    kinds: tuple[str, ...]

    @property
    def columns(self):
        """The columns that another query may use."""
        return {f"c{place}": kind for place, kind in enumerate(self.kinds) if kind != "inexact"}


class Generator:
    """Draws queries.

    Args:
        dice: all that is random.
        views: further relations to read, the columns of each with their kinds.
    """

    def __init__(self, dice, views=None):
        self._dice = dice
        self._relations = {**RELATIONS, **(views or {})}
        self._aliases = 0

    def query(self, form=None, depth=2):
        """A query of a form, or of any; the fewer levels, the simpler."""
        return getattr(self, form or self._dice.choice(FORMS))(depth - 1)

    # ---- forms

    def inner_join(self, depth):
        return self._rows(*self._from(depth, INNER, at_least=1))

    def outer_join(self, depth):
        return self._rows(*self._from(depth, OUTER, at_least=1))

    def half_join(self, depth):
        return self._rows(*self._from(depth, HALF, at_least=1))

    def asof_join(self, depth):
        """By the key of a table as the time: no two rows have the same."""
        text, scope = self._from(depth)
        times = [column.text for column in scope if column.kind == "int"]
        if not times:
            return self.inner_join(depth)
        relation, name = self._dice.choice(["t", "u", "w"]), self._alias()
        columns = [Column(f"{name}.{column}", kind) for column, kind in RELATIONS[relation].items()]
        pairs = [(a.text, b.text) for a in scope for b in columns[1:] if a.kind == b.kind]
        test = self._dice.choice([">=", ">", "<=", "<"])
        on = f"{self._dice.choice(times)} {test} {name}.id"
        if pairs and self._chance(0.7):
            on += " AND {} = {}".format(*self._dice.choice(pairs))
        join = self._dice.choice(["ASOF JOIN", "ASOF LEFT JOIN"])
        return self._rows(f"{text} {join} {relation} {name} ON {on}", [*scope, *columns])

    def cross_join(self, depth):
        left, scope = self._relation(depth)
        right, more = self._base()
        scope = [*scope, *more]
        return self._rows(f"{left} CROSS JOIN {right}", scope, self._predicate(scope))

    def in_subquery(self, depth):
        text, scope = self._from(depth)
        return self._rows(text, scope, self._with_in(scope))

    def exists(self, depth):
        text, scope = self._from(depth)
        return self._rows(text, scope, self._with_exists(scope))

    def scalar_subquery(self, depth):
        text, scope = self._from(depth)
        where = f" WHERE {self._with_scalar(scope)}" if self._chance(0.5) else ""
        shown = self._scalar(scope) if self._chance(0.7) else self._flag(scope)
        columns = [*self._sample(scope, 2), Column(shown, "int")]
        return self._select(columns, f"{text}{where}")

    def lateral(self, depth):
        text, scope = self._relation(depth)
        inner, columns = self._base()
        where = self._correlated(scope, columns)
        name = self._alias()
        found = self._aggregate(columns, shown=False)
        query = f"SELECT COUNT(*) AS n, {found.text} AS m FROM {inner} WHERE {where}"
        columns = [Column(f"{name}.n", "int"), Column(f"{name}.m", found.kind)]
        return self._rows(f"{text}, LATERAL ({query}) {name}", [*scope, *columns])

    def grouped(self, depth):
        """One aggregate, of groups or of all rows."""
        text, scope = self._from(depth)
        keys = self._sample(scope, self._dice.randint(0, 2))
        text += f" WHERE {self._predicate(scope)}" if self._chance(0.4) else ""
        return self._group(text, scope, keys)

    def having(self, depth):
        text, scope = self._from(depth)
        keys = [self._expression(scope) for _ in range(self._dice.randint(1, 2))]
        found = self._aggregate(scope, shown=False)
        condition = self._comparison(found)
        if self._chance(0.3):
            condition = f"{self._of_ints('MAX', scope)} >= {self._scalar([])}"
        return self._group(text, scope, keys, having=f"COUNT(*) > 1 OR {condition}")

    def aggregates_twice(self, depth):
        text, scope = self._derived(self.grouped(depth))
        return self._group(text, scope, self._sample(scope, self._dice.randint(0, 1)))

    def grouping_sets(self, depth):
        text, scope = self._from(depth)
        keys = self._sample(scope, 2)
        names = [key.text for key in keys]
        sets = self._dice.choice(
            [
                f"ROLLUP ({', '.join(names)})",
                f"CUBE ({', '.join(names)})",
                f"GROUPING SETS (({names[0]}), ({names[-1]}), ({', '.join(names)}), ())",
            ]
        )
        level = Column(f"GROUPING({names[0]})", "int")
        columns = [*keys, level, *self._aggregates(scope)]
        # Over no rows DuckDB gives the row of the empty set, as the standard says, and Spark none.
        return self._select(columns, f"{text} GROUP BY {sets} HAVING COUNT(*) > 0")

    def distinct(self, depth):
        text, scope = self._from(depth)
        return self._select(self._sample(scope, 2), text, "SELECT DISTINCT")

    def set_operation(self, depth):
        kinds = [self._dice.choice(["int", "str", "dec"]) for _ in range(self._dice.randint(1, 2))]
        parts = [self._of_kinds(kinds, depth) for _ in range(self._dice.choice([2, 2, 3]))]
        text = parts[0]
        for part in parts[1:]:
            text = f"({text}) {self._dice.choice(SET_OPERATIONS)} ({part})"
        return Query(text, tuple(kinds))

    def read_twice(self, depth):
        """A common table expression, joined with itself."""
        query, name = self.query(depth=depth), self._alias()
        left, right = self._alias(), self._alias()
        ours, theirs = (
            [Column(f"{alias}.{column}", kind) for column, kind in query.columns.items()]
            for alias in (left, right)
        )
        join, on = self._dice.choice([*INNER, *OUTER]), self._on(ours, theirs)
        rows = self._rows(f"{name} {left} {join} {name} {right} ON {on}", [*ours, *theirs])
        return Query(f"WITH {name} AS ({query.sql}) {rows.sql}", rows.kinds)

    def top(self, depth):
        """The first rows, in an order without ties but of equal rows."""
        query, name = self.query(depth=depth), self._alias()
        columns = [Column(f"{name}.{column}", kind) for column, kind in query.columns.items()]
        if not columns:
            return self.grouped(depth)
        order = self._ordered(columns)
        rows = self._select(columns, f"({query.sql}) {name}")
        limit = self._dice.choice([1, 3, 3, 10])
        return Query(f"{rows.sql} ORDER BY {order} LIMIT {limit}", rows.kinds)

    def over(self, depth):
        """Functions over rows in order; in an order without ties but of equal rows."""
        query, name = self.query(depth=depth), self._alias()
        columns = [Column(f"{name}.{column}", kind) for column, kind in query.columns.items()]
        if not columns:
            return self.grouped(depth)
        keys = ", ".join(key.text for key in self._sample(columns, self._dice.choice([0, 1, 1])))
        by = f"PARTITION BY {keys} " if keys else ""
        order = f"ORDER BY {self._ordered(columns)}"
        found = [self._over(columns, by, order) for _ in range(self._dice.randint(1, 2))]
        shown = [*self._sample(columns, 2), *found]
        if self._chance(0.3):
            rank = self._dice.choice(["ROW_NUMBER", "RANK", "DENSE_RANK"])
            test = self._dice.choice(["= 1", "<= 3", "= 2", "> 2"])
            rows = self._select(
                shown, f"({query.sql}) {name} QUALIFY {rank}() OVER ({by}{order}) {test}"
            )
        else:
            rows = self._select(shown, f"({query.sql}) {name}")
        return rows

    def nested(self, depth):
        """By a STRUCT or an ARRAY: groups, distinct values, joins, sets, partitions."""
        text, scope = self._from(depth)
        number, word = self._pick(scope, "int").text, self._pick(scope, "str").text
        made, part = f"array_repeat(COALESCE({number}, 0), 2)", "array_max({}.k)"
        if self._chance(0.6):
            made = f"named_struct('x', COALESCE({number}, 0), 'y', COALESCE({word}, ''))"
            part = "{}.k.x"
        rows = f"SELECT {made} AS k, {number} AS n FROM {text}"
        one, other = self._alias(), self._alias()
        shown, n = Column(part.format(one), "int"), Column(f"{one}.n", "int")
        form = self._dice.choice(["groups", "counts", "joins", "sets", "partitions"])
        if form == "groups":
            columns = [shown, *self._aggregates([n])]
            return self._select(columns, f"({rows}) {one} GROUP BY {one}.k")
        if form == "counts":
            counts = [Column(f"COUNT(DISTINCT {one}.k)", "int"), Column("COUNT(*)", "int")]
            return self._select([n, *counts], f"({rows}) {one} GROUP BY {one}.n")
        if form == "joins":
            join = self._dice.choice([*INNER, *OUTER, *HALF])
            columns = [shown, n]
            if join not in HALF:
                columns.append(Column(f"{other}.n", "int"))
            return self._select(
                columns, f"({rows}) {one} {join} ({rows}) {other} ON {one}.k = {other}.k"
            )
        if form == "sets":
            keys, more = (f"SELECT k FROM ({rows}) {self._alias()}" for _ in range(2))
            condition = f"n {self._dice.choice(['IS NULL', '> 1', '<= 1'])}"
            united = f"{keys} {self._dice.choice(SET_OPERATIONS)} {more} WHERE {condition}"
            return self._select([shown], f"({united}) {one}")
        over = f"OVER (PARTITION BY {one}.k ORDER BY {one}.n NULLS FIRST)"
        ranks = [Column(f"RANK() {over}", "int"), Column(f"SUM({one}.n) {over}", "int")]
        return self._select([shown, n, *ranks], f"({rows}) {one}")

    def qualified(self, depth):
        """Groups, some of which are left out by an aggregate that is not selected."""
        text, scope = self._from(depth)
        keys = self._sample(scope, self._dice.randint(1, 2))
        names = ", ".join(key.text for key in keys)
        order = f"{self._of_ints('MAX', scope)} NULLS FIRST, COUNT(*) DESC"
        by = f"PARTITION BY {names} " if self._chance(0.2) else ""
        rank = self._dice.choice(["RANK()", "DENSE_RANK()", "SUM(COUNT(*))"])
        test = self._dice.choice(["= 1", "<= 3", "> 2"])
        text += f" GROUP BY {names} QUALIFY {rank} OVER ({by}ORDER BY {order}) {test}"
        return self._select([*keys, *self._aggregates(scope)][: self._dice.randint(1, 3)], text)

    def ordered(self, depth):
        """Rows in the order of a column that is not selected."""
        text, scope = self._from(depth)
        rows = self._rows(text, scope)
        return Query(f"{rows.sql} ORDER BY {self._ordered(self._sample(scope, 2))}", rows.kinds)

    def _ordered(self, columns):
        ways = ["NULLS FIRST", "NULLS LAST", "DESC NULLS FIRST", "DESC NULLS LAST"]
        return ", ".join(f"{each.text} {self._dice.choice(ways)}" for each in columns)

    def _over(self, columns, by, order):
        """One function over the rows of a partition."""
        column = self._dice.choice(columns)
        draw = self._dice.random()
        if draw < 0.3:
            rank = self._dice.choice(["ROW_NUMBER()", "RANK()", "DENSE_RANK()", "NTILE(3)"])
            return Column(f"{rank} OVER ({by}{order})", "int")
        if draw < 0.55:
            offset = self._dice.choice(["", ", 1", ", 2"])
            function = self._dice.choice(["LAG", "LEAD"])
            return Column(f"{function}({column.text}{offset}) OVER ({by}{order})", column.kind)
        found = self._dice.choice(
            [
                Column(f"COUNT({column.text})", "int"),
                Column(f"MIN({column.text})", column.kind),
                Column(f"FIRST_VALUE({column.text})", column.kind),
                Column(f"LAST_VALUE({column.text})", column.kind),
                *([Column(f"SUM({column.text})", "int")] * 3 if column.kind == "int" else []),
            ]
        )
        # FIRST_VALUE of a whole partition depends on the order: it has one, with all frames.
        frame = self._dice.choice(
            [
                "",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            ]
        )
        return Column(f"{found.text} OVER ({by}{order}{frame})", found.kind)

    # ---- what is read

    def _from(self, depth, joins=None, at_least=0):
        """Some relations, joined: the text after FROM, and the columns in scope."""
        text, scope = self._relation(depth)
        kinds = joins or [*INNER, *OUTER, *HALF]
        for _ in range(at_least + (self._chance(0.4) if depth > 0 else 0)):
            right, columns = self._relation(depth - 1)
            join = self._dice.choice(kinds)
            text += f" {join} {right} ON {self._on(scope, columns)}"
            scope = scope if join in HALF else [*scope, *columns]
        return text, scope

    def _relation(self, depth):
        if depth > 0 and self._chance(0.35):
            return self._derived(self.query(depth=depth))
        if self._chance(0.08):
            name, rows = self._alias(), "(1, 'a'), (2, 'b'), (2, 'b'), (CAST(NULL AS INT), 'ü')"
            columns = [Column(f"{name}.a", "int"), Column(f"{name}.s", "str")]
            return f"(VALUES {rows}) AS {name}(a, s)", columns
        return self._base()

    def _base(self):
        relation, name = self._dice.choice(list(self._relations)), self._alias()
        columns = self._relations[relation].items()
        return f"{relation} {name}", [Column(f"{name}.{column}", kind) for column, kind in columns]

    def _derived(self, query):
        if not query.columns:
            return self._base()
        name = self._alias()
        columns = [Column(f"{name}.{column}", kind) for column, kind in query.columns.items()]
        return f"({query.sql}) {name}", columns

    def _alias(self):
        self._aliases += 1
        return f"x{self._aliases}"

    # ---- what is given

    def _select(self, columns, text, verb="SELECT"):
        named = ", ".join(f"{column.text} AS c{place}" for place, column in enumerate(columns))
        return Query(f"{verb} {named} FROM {text}", tuple(column.kind for column in columns))

    def _rows(self, text, scope, where=None):
        """Columns and expressions of them; without a condition, sometimes with any."""
        if where is None and self._chance(0.3):
            where = self._predicate(scope)
        text += f" WHERE {where}" if where else ""
        count = self._dice.randint(1, 3)
        return self._select([self._expression(scope) for _ in range(count)], text)

    def _of_kinds(self, kinds, depth):
        text, scope = self._from(depth)
        columns = [self._pick(scope, kind) for kind in kinds]
        return self._select(columns, text).sql

    def _group(self, text, scope, keys, having=None):
        text += f" GROUP BY {', '.join(key.text for key in keys)}" if keys else ""
        text += f" HAVING {having}" if having else ""
        return self._select([*keys, *self._aggregates(scope)], text)

    # ---- expressions

    def _expression(self, scope):
        column = self._dice.choice(scope)
        text, kind = column
        if kind == "int":
            other = self._pick(scope, "int").text
            forms = [text, text, f"{text} + {other}", f"{text} % 3", f"COALESCE({text}, -1)"]
            forms.append(f"CASE WHEN {self._predicate(scope, 0)} THEN {text} ELSE {other} END")
            return Column(self._dice.choice(forms), kind)
        if kind == "str":
            forms = [text, text, f"UPPER({text})", f"{text} || '!'", f"COALESCE({text}, '-')"]
            return Column(self._dice.choice(forms), kind)
        return column

    def _pick(self, scope, kind):
        """A column of a kind, or a literal when there is none."""
        found = [column for column in scope if column.kind == kind]
        return self._dice.choice(found or [Column(self._literal(kind), kind)])

    def _literal(self, kind):
        return self._dice.choice(LITERALS[kind])

    def _aggregates(self, scope):
        found = [self._aggregate(scope) for _ in range(self._dice.randint(1, 3))]
        if any("DISTINCT" in each.text for each in found):
            # Spark's optimizer fails on LISTAGG with an order beside several of these.
            found = [each for each in found if "LISTAGG" not in each.text]
        return [Column("COUNT(*)", "int"), *found]

    def _aggregate(self, scope, shown=True):
        """An aggregate of a column; ``shown``: it is only shown, so it may be inexact."""
        text, kind = self._dice.choice(scope)
        if kind == "int" and self._chance(0.06):
            text = f"({text} + {self._scalar([])})"
        forms = [(f"COUNT({text})", "int"), (f"COUNT(DISTINCT {text})", "int")]
        if kind == "bool":
            forms += [(f"BOOL_OR({text})", kind), (f"BOOL_AND({text})", kind)]
        else:
            forms += [(f"MIN({text})", kind), (f"MAX({text})", kind)]
        if kind in {"int", "dec"}:
            forms += [(f"SUM({text})", kind), (f"SUM(DISTINCT {text})", kind)]
            forms += [(f"AVG(CAST({text} AS DOUBLE))", "double")]
        if kind == "int":
            by = f"CAST({self._pick(scope, 'int').text} AS BIGINT) * 100000 + {text}"
            forms += [(f"MAX_BY({text}, {by})", kind), (f"MIN_BY({text}, {by})", kind)]
        if kind == "str":
            by = f"{self._pick(scope, 'int').text}{self._dice.choice(['', ' DESC'])}"
            if " " not in text:
                forms += [(f"LISTAGG({text}, ',') WITHIN GROUP (ORDER BY {by})", kind)] * 2
        if kind == "int" and shown:
            forms += [(f"STDDEV_POP({text})", "inexact"), (f"VAR_SAMP({text})", "inexact")]
        form, kind = self._dice.choice(forms)
        if self._chance(0.2):
            form += f" FILTER (WHERE {self._predicate(scope, 0)})"
        return Column(form, kind)

    def _of_ints(self, function, scope):
        return f"{function}({self._pick(scope, 'int').text})"

    # ---- conditions

    def _on(self, left, right):
        """How two sides belong together: by equality and more, or by an inequality alone."""
        pairs = [(a.text, b.text) for a in left for b in right if a.kind == b.kind]
        if not pairs:
            return self._predicate([*left, *right], 0)
        a, b = self._dice.choice(pairs)
        if self._chance(0.15):
            return f"{a} {self._dice.choice(['<', '>=', '<>'])} {b}"
        condition = f"{a} {self._dice.choice(['=', '=', '=', 'IS NOT DISTINCT FROM'])} {b}"
        if self._chance(0.25):
            condition += " AND {} = {}".format(*self._dice.choice(pairs))
        if self._chance(0.35):
            condition += f" AND {self._predicate([*left, *right], 0)}"
        if self._chance(0.05):
            condition += f" AND {self._pick([*left, *right], 'int').text} <> {self._scalar([])}"
        return condition

    def _predicate(self, scope, depth=1):
        if depth > 0 and self._chance(0.3):
            parts = [self._predicate(scope, depth - 1) for _ in range(2)]
            return f"({parts[0]} {self._dice.choice(['AND', 'OR'])} {parts[1]})"
        column = self._dice.choice(scope)
        forms = [
            self._comparison(column),
            self._comparison(column),
            f"{column.text} IS NULL",
            f"{column.text} IS NOT NULL",
            f"NOT {self._comparison(column)}",
        ]
        if column.kind in {"int", "str"}:
            values = ", ".join(self._dice.sample(LITERALS[column.kind], 2))
            forms += [f"{column.text} IN ({values})", f"{column.text} NOT IN ({values})"]
        same = [each.text for each in scope if each.kind == column.kind]
        forms.append(f"{column.text} <= {self._dice.choice(same)}")
        return self._dice.choice(forms)

    def _comparison(self, column):
        operator = self._dice.choice(["=", "<>", "<", ">="])
        return f"({column.text} {operator} {self._literal(column.kind)})"

    def _with_in(self, scope):
        """IN or NOT IN, alone or under OR: the latter is a join that keeps whether it matched."""
        inner, columns = self._base()
        text, kind = self._dice.choice(columns)
        outer = self._pick(scope, kind).text
        where = self._predicate(columns, 0)
        if self._chance(0.3):
            where += f" AND {self._correlated(scope, columns)}"
        negated = self._dice.choice(["", "NOT "])
        subquery = f"SELECT {text} FROM {inner} WHERE {where}"
        return self._or_else(scope, f"{outer} {negated}IN ({subquery})")

    def _with_exists(self, scope):
        inner, columns = self._base()
        where = self._correlated(scope, columns)
        pairs = [(a.text, b.text) for a in scope for b in columns if a.kind == b.kind]
        if pairs and self._chance(0.4):
            where += " AND {} <> {}".format(*self._dice.choice(pairs))
        negated = self._dice.choice(["", "NOT "])
        return self._or_else(scope, f"{negated}EXISTS (SELECT 1 FROM {inner} WHERE {where})")

    def _with_scalar(self, scope):
        return f"{self._pick(scope, 'int').text} <= {self._scalar(scope)}"

    def _scalar(self, scope):
        """A subquery of one integer, correlated when there is a scope."""
        inner, columns = self._base()
        of = self._dice.choice(["MIN", "MAX", "SUM", "COUNT"])
        where = self._correlated(scope, columns) if scope and self._chance(0.6) else None
        text = f"SELECT {self._of_ints(of, columns)} FROM {inner}"
        return f"({text} WHERE {where})" if where else f"({text})"

    def _flag(self, scope):
        """Whether there are such rows, as a number."""
        test = self._dice.choice([self._with_in, self._with_exists])
        return f"CASE WHEN {test(scope)} THEN 1 ELSE 0 END"

    def _correlated(self, scope, columns):
        pairs = [(a.text, b.text) for a in scope for b in columns if a.kind == b.kind]
        if not pairs:
            return self._predicate(columns, 0)
        left, right = self._dice.choice(pairs)
        text = f"{left} {'=' if self._chance(0.8) else '<'} {right}"
        return f"{text} AND {self._predicate(columns, 0)}" if self._chance(0.4) else text

    def _or_else(self, scope, condition):
        return f"{condition} OR {self._predicate(scope, 0)}" if self._chance(0.3) else condition

    # ---- dice

    def _sample(self, scope, count):
        return self._dice.sample(scope, min(count, len(scope)))

    def _chance(self, share):
        return self._dice.random() < share


FORMS = (
    "outer_join",
    "half_join",
    "in_subquery",
    "exists",
    "scalar_subquery",
    "grouped",
    "having",
    "aggregates_twice",
    "grouping_sets",
    "distinct",
    "set_operation",
    "read_twice",
    "lateral",
    "cross_join",
    "inner_join",
    "top",
    "asof_join",
    "over",
    "nested",
    "qualified",
    "ordered",
)
"""What a query is at its top; below that it may have any of the others."""
