"""Queries of the catalog, from PostgreSQL's dialect to DuckDB's."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millstream.errors import SchemaError
from millstream.formats.text import bytea
from millstream.model.clock import MICROSECOND
from millstream.model.types import NUMERIC, SqlType, array_type, parse_type
from millstream.server.postgres.catalog.functions import ALLOWED, OWN_FUNCTIONS
from millstream.server.postgres.catalog.relations import COLUMNS
from millstream.server.postgres.errors import PostgresError
from millstream.server.postgres.text import spaced
from millstream.server.postgres.types import OIDS
from millstream.sql.function_names import COUNTS
from millstream.sql.spark_functions import SPARK_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.server.postgres.text import Text, Token

_SPARKS: Final = (
    SPARK_FUNCTIONS - COUNTS.keys() - {"AND", "ANY", "ARRAY", "CASE", "IN", "NOT", "OR"}
)
_SCHEMAS: Final = {"pg_catalog", "information_schema"}
_OPERATOR: Final = re.compile(r"OPERATOR\s*\(\s*pg_catalog\s*\.\s*([^\s)]+)\s*\)", re.IGNORECASE)
_COLLATE: Final = re.compile(
    r"""\bCOLLATE\s+(?:pg_catalog\s*\.\s*)?(?:"[^"]*"|\w+)""", re.IGNORECASE
)
_PREFIX: Final = re.compile(
    r"\bpg_catalog\s*\.\s*(?=\w)|\binformation_schema\s*\.\s*(?=_pg_)", re.IGNORECASE
)
_OIDS: Final = re.compile(r"::\s*oid\s*\[\s*\]", re.IGNORECASE)
"""A type that sqlglot does not read."""
_TABLES: Final = (exp.GenerateSeries, exp.ExplodingGenerateSeries, exp.Unnest, exp.Explode)
"""Functions that give rows."""
_MOST: Final = 10_000
_GROWING: Final = {
    **dict.fromkeys(("repeat", "lpad", "rpad", "list_resize", "array_resize"), slice(1, 2)),
    **dict.fromkeys(("range", "generate_series"), slice(0, 2)),
    **dict.fromkeys(("space", "bar"), slice(0, 4)),
}
"""Functions whose value is as large as some of their arguments say, and which these are."""
_REPLACING: Final = {
    **dict.fromkeys(("replace", "regexp_replace"), slice(2, 3)),
    **dict.fromkeys(("array_to_string", "string_agg", "group_concat", "listagg"), slice(1, 2)),
}
"""Functions that put one of their arguments into the value again and again, and which that is."""
_DOUBLING: Final = {"quote_ident", "quote_literal", "to_json", "json_array", "json_object", "hex"}
"""Functions that escape: at most every character becomes two."""
_USUAL: Final = 100
_MOST_BYTES: Final = 100_000_000
_SERIES: Final = (exp.GenerateSeries, exp.ExplodingGenerateSeries)
_FORMATS: Final = {"printf", "format", "format_number"}
_CALL: Final = re.compile(r"\s*(\w+)\s*\(")
_LONG_NUMBER: Final = re.compile(r"\d{4,}|\|\||\*")
_COUNTS: Final = (
    "array_upper(",
    "array_lower(",
    "array_length(",
    "len(",
    "length(",
    "cardinality(",
)


@dataclass(frozen=True, slots=True)
class Translated:
    """A query for DuckDB.

    Attributes:
        sql: the text.
        relations: those that it reads: their names there, and here.
    """

    sql: str
    relations: dict[str, str]


def reads_catalog(text: Text) -> bool:
    """Whether a query asks for what exists."""
    return any(each.identifier in _SCHEMAS or _is_relation(each) for each in text.tokens)


def _is_relation(token: Token) -> bool:
    return token.identifier in COLUMNS


def calls_catalog(text: Text) -> bool:
    """Whether a query calls a function that only PostgreSQL has, of its catalog."""
    return any(
        token.identifier in OWN_FUNCTIONS and after.text == "("
        for token, after in pairwise(text.tokens)
    )


def reads_nothing(text: Text) -> bool:
    """Whether a query reads no relation: it has no FROM."""
    return not any(token.word in {"FROM", "TABLE"} for token in text.tokens)


def calls_spark(text: Text) -> bool:
    """Whether a query calls a function that is Spark's to answer: it may mean another there."""
    return any(
        token.word in _SPARKS and after.text == "(" for token, after in pairwise(text.tokens)
    )


def cast_types(text: Text) -> tuple[SqlType | None, ...]:
    """The types of the parameters of a query of the catalog: those that they are cast to."""
    tokens = text.tokens
    types: list[SqlType | None] = [None] * text.rewritten.count
    for place, token in enumerate(tokens[:-2]):
        if token.kind == "parameter" and tokens[place + 1].text == "::":
            after = tokens[place + 2 :]
            after = after[2:] if after[0].identifier == "pg_catalog" else after
            of = _cast_type(after[0].identifier if after else "")
            is_array = [each.text for each in after[1:3]] == ["[", "]"]
            number = int(token.text[1:]) - 1
            if is_array and of is not None:
                of = OIDS if after[0].identifier == "oid" else array_type(of)
            if types[number] is None:
                types[number] = of
    return tuple(types)


def _cast_type(name: str) -> SqlType | None:
    try:
        return parse_type(_CASTS.get(name, name))
    except SchemaError:
        return None


def translate(
    text: Text,
    values: Sequence[Any],
    oid_of: Callable[[str], int | None],
    named: dict[str, str],
) -> Translated:
    """Return a query for DuckDB.

    Args:
        text: the query.
        values: of its parameters; they become literals.
        oid_of: the number of a relation; None when there is none of that name.
        named: what ``current_database`` and their like are.

    Raises:
        PostgresError: it cannot be read, or reads what is not in the catalog.
    """
    sql = _COLLATE.sub("", _OPERATOR.sub(r" \1 ", spaced(text)))
    sql = _OIDS.sub("::bigint[]", _PREFIX.sub("", sql))
    try:
        tree = sqlglot.parse_one(sql, dialect="postgres")
    except (SqlglotError, RecursionError) as error:
        why = str(error).splitlines()[0]
        raise PostgresError("the query cannot be read", sqlstate="42601", hint=why) from error
    if not isinstance(tree, exp.Query | exp.Values):
        raise PostgresError("only queries read the catalog", sqlstate="0A000")
    relations: dict[str, str] = {}
    tree = _relations(tree, relations)
    names = Names(values, oid_of, named, relations)
    for node in reversed(list(tree.walk())):  # the inner ones first
        made = names.replaced(node)
        if made is node:
            continue
        if node is tree:
            tree = made
        else:
            node.replace(made)
    _check_functions(tree)
    _check_sizes(tree)
    return Translated(tree.sql(dialect="duckdb"), relations)


def _check_functions(tree: exp.Expr) -> None:
    """Refuse a function that is not on the allow-list.

    Raises:
        PostgresError: it is not.
    """
    for node in tree.find_all(exp.Func):
        found = _CALL.match(node.sql(dialect="duckdb"))
        name = node.name if isinstance(node, exp.Anonymous) else found and found[1]
        if name and name.lower() not in ALLOWED:
            raise PostgresError(
                f"the catalog has no function {name}",
                sqlstate="42883",
                hint="docs/postgres.md says what there is of pg_catalog",
            )


def _check_sizes(tree: exp.Expr) -> None:
    """Refuse what makes a value of any size: DuckDB makes it in one step that nothing ends.

    Raises:
        PostgresError: a function that does so has no small number.
    """
    for node in tree.find_all(exp.Func):
        if isinstance(node.parent, exp.Table):
            continue  # its rows come one by one
        name, _, rest = node.sql(dialect="duckdb").partition("(")
        name = "generate_series" if isinstance(node, _SERIES) else name.strip().lower()
        counts = _GROWING.get(name)
        if counts is None and name not in _FORMATS:
            continue
        given = [each for each in node.iter_expressions() if isinstance(each, exp.Expr)]
        small = (
            not _LONG_NUMBER.search(rest) if counts is None else all(map(_is_small, given[counts]))
        )
        if not small:
            raise PostgresError(
                f"{name} may make too large a value here",
                sqlstate="54000",
                hint=f"give a number up to {_MOST:,}",
            )

    if _most_bytes(tree) > _MOST_BYTES:
        raise PostgresError(
            "the query may make too large a value here",
            sqlstate="54000",
            hint="nest no functions such as repeat, replace and list_transform in each other",
        )


def _most_bytes(tree: exp.Expr) -> float:
    """How large a value the query can make: each function that grows makes it larger by a factor.

    The factors of the whole query are multiplied, wherever they are: a value may come from a
    subquery.
    """
    texts = [len(each.this) for each in tree.find_all(exp.Literal) if each.is_string]
    found = float(max([_USUAL, *texts]))
    for node in tree.walk():
        if isinstance(node, exp.Select):
            found *= max(map(_repetitions, node.expressions), default=1)
        elif isinstance(node, exp.Func) and not isinstance(node, exp.Binary):
            found *= _factor(node)
    return found


def _repetitions(projection: exp.Expr) -> int:
    """How often a projection has the column that it has most often."""
    names = Counter(each.name.lower() for each in projection.find_all(exp.Column))
    return max(names.values(), default=1)


def _factor(node: exp.Func) -> float:
    """How many times as large as its arguments the value of a function may be."""
    name = node.sql(dialect="duckdb").partition("(")[0].strip().lower()
    name = "generate_series" if isinstance(node, _SERIES) else name
    given = [each for each in node.iter_expressions() if isinstance(each, exp.Expr)]
    if name in _GROWING:
        return max(map(_number, given[_GROWING[name]]), default=1.0)
    if name in _REPLACING:
        return max([1, *map(_length, given[_REPLACING[name]])])
    if name in _DOUBLING:
        return 2
    return max(1, len(given)) if name in _FORMATS or name == "concat_ws" else 1


def _number(tree: exp.Expr) -> float:
    is_number = isinstance(tree, exp.Literal) and not tree.is_string
    return max(1.0, float(tree.this)) if is_number else _USUAL


def _length(tree: exp.Expr) -> int:
    """The length of a constant text; of any other value, the most that it may be."""
    return _MOST if tree.find(exp.Column, exp.Func, exp.Query) else len(tree.sql())


def _is_small(tree: exp.Expr) -> bool:
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return len(tree.this) <= len(str(_MOST)) and float(tree.this) <= _MOST
    # Of what there is in the catalog: arrays of a few elements.
    return isinstance(tree, exp.Func) and tree.sql(dialect="duckdb").lower().startswith(_COUNTS)


def _relations(tree: exp.Expr, found: dict[str, str]) -> exp.Expr:
    """Replace the relations in FROM by those that are registered."""
    common = {each.alias_or_name.lower() for each in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            _function_rows(table)
            continue
        name, schema = table.name.lower(), table.db.lower()
        if not schema and name in common:
            continue
        whole = f"{schema}.{name}" if schema == "information_schema" else name
        if whole not in COLUMNS or schema not in {"", *_SCHEMAS}:
            shown = ".".join(filter(None, (table.db, table.name)))
            raise PostgresError(
                f'relation "{shown}" does not exist in the catalog',
                sqlstate="42P01",
                hint="a query reads pg_catalog and information_schema, or data, not both",
            )
        local = "ms_" + whole.replace(".", "_").removeprefix("ms_")
        found[local] = whole
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
        table.set("this", exp.to_identifier(local))
        table.set("db", None)
        table.set("catalog", None)
    return tree


def _function_rows(table: exp.Table) -> None:
    """A function in FROM: its rows have one column of its alias; one value is one row."""
    alias = table.args.get("alias")
    name = alias.name if alias else "f"
    if isinstance(table.this, _TABLES):
        if alias and not alias.columns:
            alias.set("columns", [exp.to_identifier(name)])
        return
    query = exp.select(exp.alias_(table.this.copy(), name))
    table.replace(query.subquery(name))


class Names:
    """Replaces what stands for something of the catalog: casts to its types, functions over it.

    Args:
        values: of the parameters.
        oid_of: the number of a relation; None when there is none of that name.
        named: what ``current_database`` and their like are.
        relations: the relations that a query reads; those that a replacement reads are added.
    """

    def __init__(
        self,
        values: Sequence[Any],
        oid_of: Callable[[str], int | None],
        named: dict[str, str],
        relations: dict[str, str],
    ) -> None:
        self._values = values
        self._oid_of = oid_of
        self._named = named
        self._relations = relations
        self._functions: dict[str, Callable[[list[exp.Expr]], exp.Expr]] = {
            "pg_get_viewdef": lambda given: self._looked_up("definition", given[0]),
            "pg_get_indexdef": lambda given: self._looked_up("definition", given[0]),
            "pg_get_constraintdef": self._key,
            "current_setting": self._setting,
            "set_config": lambda given: given[1],
            "to_regclass": lambda _: exp.Null(),
            "json_build_object": lambda _: exp.Null(),
        }

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """What takes the place of a node; the node itself when nothing does."""
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Column):
            is_bare = not node.table and not node.this.args.get("quoted")
            return self._word(node, node.name.lower() if is_bare else "")
        if isinstance(node, exp.Parameter):
            return _converted(self._values[int(node.name) - 1])
        if isinstance(node, exp.Func):
            return self._function(node)
        return node

    def _cast(self, node: exp.Cast) -> exp.Expr:
        name = node.to.sql(dialect="postgres").lower()
        if name == "regclass":
            if isinstance(node.this, exp.Literal) and node.this.is_string:
                is_text = isinstance(node.parent, exp.Cast) and node.parent.is_type("text")
                oid = self._oid(node.this.name)
                return node.this if is_text else exp.Literal.number(oid)
            return self._looked_up("name", node.this)
        if name == "bytea" and isinstance(node.this, exp.Literal) and node.this.is_string:
            escaped = "".join(f"\\x{byte:02X}" for byte in bytea(node.this.name))
            return exp.cast(exp.Literal.string(escaped), "blob", dialect="duckdb")
        to = _CASTS.get(name)
        return node if to is None else exp.cast(node.this, to, dialect="duckdb")

    def _oid(self, name: str) -> str:
        if name.isdecimal():
            return name
        bare = name.rsplit(".", 1)[-1].strip('"')
        if bare in COLUMNS:
            return str(1000 + list(COLUMNS).index(bare))
        found = self._oid_of(bare)
        if found is None:
            raise PostgresError(f'relation "{name}" does not exist', sqlstate="42P01")
        return str(found)

    def _looked_up(self, column: str, oid: exp.Expr) -> exp.Expr:
        """A column of the relation with an OID; without it, the OID itself as text."""
        self._relations["ms_definitions"] = "ms_definitions"
        number = exp.cast(oid.copy(), "BIGINT", dialect="duckdb")
        query = exp.select(exp.column(column, "d")).from_("ms_definitions AS d")
        found = exp.paren(query.where(exp.EQ(this=exp.column("oid", "d"), expression=number)))
        if column == "definition":
            return found
        text = exp.cast(oid.copy(), "VARCHAR", dialect="duckdb")
        return exp.func("coalesce", found, text)

    def _key(self, given: list[exp.Expr]) -> exp.Expr:
        found = self._looked_up("definition", given[0])
        columns = exp.func("regexp_extract", found, exp.Literal.string(r"\(.*\)"))
        return exp.DPipe(this=exp.Literal.string("PRIMARY KEY "), expression=columns)

    def _setting(self, given: list[exp.Expr]) -> exp.Expr:
        return exp.Literal.string(self._named.get(f"setting {given[0].name.lower()}", ""))

    def _word(self, node: exp.Expr, name: str) -> exp.Expr:
        return exp.Literal.string(self._named[name]) if name in _WORDS else node

    def _function(self, node: exp.Func) -> exp.Expr:
        is_plain = isinstance(node, exp.Anonymous)
        name = node.name.lower() if is_plain else node.sql_name().lower()
        if name in self._named:
            return exp.Literal.string(self._named[name])
        if name == "current_schemas":
            return exp.array(exp.Literal.string("pg_catalog"), exp.Literal.string("public"))
        make = self._functions.get(name) if is_plain and node.expressions else None
        return node if make is None else make(node.expressions)


def _converted(value: Any) -> exp.Expr:  # noqa: ANN401 - of any type
    if isinstance(value, timedelta):
        text = exp.Literal.string(f"{value // MICROSECOND} microseconds")
        return exp.cast(text, "INTERVAL", dialect="duckdb")
    return exp.convert(value)


_CASTS: Final = {
    **dict.fromkeys(("regtype", "regproc", "regprocedure", "regnamespace", "regrole"), "VARCHAR"),
    **dict.fromkeys(("oid", "xid"), "BIGINT"),
    **dict.fromkeys(("numeric", "decimal"), NUMERIC.sql),
    **dict.fromkeys(("name", '"char"', "cstring", "pg_node_tree", "text"), "VARCHAR"),
    **dict.fromkeys(("name[]", '"char"[]', "text[]"), "VARCHAR[]"),
    **dict.fromkeys(("oid[]", "int2[]", "int2vector", "oidvector"), "BIGINT[]"),
}
_WORDS: Final = {"current_user", "session_user", "user", "current_catalog", "current_schema"}
