"""Scopes: what the names in a query mean, as expressions over the ground."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.statements.cursor import did_you_mean
from millstream.sql.views.functions import check_function, function_name, is_aggregate
from millstream.sql.views.trees import call, closed, column, moved, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Columns

_WINDOW_WORDS = {"window_start", "window_end"}


@dataclass(frozen=True, slots=True)
class Relation:
    """One thing in FROM: its name, in small letters, and its columns.

    Attributes:
        hidden: columns, in small letters, that ``*`` leaves out because USING merged them.
    """

    name: str
    columns: Columns
    hidden: frozenset[str] = frozenset()

    def find(self, name: str) -> exp.Expr | None:
        """Return the column of a name in any case."""
        return next((tree for each, tree in self.columns if each.lower() == name.lower()), None)


@dataclass(slots=True)
class Scope:
    """The names that expressions of one SELECT may use.

    Attributes:
        errors: raises errors.
        relations: what FROM names.
        aliases: what the SELECT has named so far; columns go first.
        windowed: whether WINDOW_START and WINDOW_END may be meant.
        keys: in HAVING, what the groups are by: there a name that is no key may be an alias.
    """

    errors: ErrorReporter
    relations: tuple[Relation, ...]
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    windowed: bool = False
    keys: Sequence[exp.Expr] | None = None

    def resolve_having(self, tree: exp.Expr, keys: Sequence[exp.Expr]) -> exp.Expr:
        """Return what HAVING says, over the ground.

        As in Spark, keys go before aliases, and aliases before other columns, which have no value
        there outside of an aggregate.
        """
        self.keys = keys
        made = self.resolve(tree)
        self.keys = None
        return made

    def resolve(self, tree: exp.Expr, *, aliases: bool = True) -> exp.Expr:
        """Return an expression over the ground; its parts keep their places in the text.

        Raises:
            SqlColumnError: a column that is not there, or that may be one of two.
            SqlUnsupportedError: a function whose value is not one of the row alone, a subquery.
        """
        if isinstance(tree, exp.Column):
            return self._column(tree, aliases=aliases)
        check_function(tree, self.errors)
        if self.keys is not None and is_aggregate(tree):
            keys, self.keys = self.keys, None
            made = self.resolve(tree, aliases=aliases)
            self.keys = keys
            return made
        if isinstance(tree, exp.Anonymous):
            tree = self._call(tree)
        made = tree.copy()
        for key, value in tree.args.items():
            if isinstance(value, exp.Expr):
                made.set(key, self._part(value, aliases=aliases))
            elif isinstance(value, list):
                parts = [
                    self._part(each, aliases=aliases) if isinstance(each, exp.Expr) else each
                    for each in value
                ]
                made.set(key, parts)
        return made

    def _call(self, tree: exp.Anonymous) -> exp.Expr:
        """Return a call with the columns that ``*`` means, and with names for STRUCT's fields."""
        name = function_name(tree)
        args: list[exp.Expr] = []
        for each in tree.expressions:
            if each.is_star and not (name == "count" and isinstance(each, exp.Star)):
                args += [moved(column(*pair), each) for pair in self._starred(each)]
            else:
                args.append(each)
        if name == "struct":
            # Else Spark would name the fields by what has become of the columns.
            args = [part for place, each in enumerate(args, 1) for part in _field(each, place)]
            name = "named_struct"
        made = tree.copy()
        made.set("this", name)
        made.set("expressions", args)
        return made

    def _starred(self, tree: exp.Expr) -> list[tuple[str, str]]:
        """The columns that a star means, and whose they are."""
        only = tree.table.lower() if isinstance(tree, exp.Column) else ""
        return [
            (name, relation.name)
            for relation in self.relations
            if only in {"", relation.name}
            for name, _ in relation.columns
            if only or name.lower() not in relation.hidden
        ]

    def _part(self, tree: exp.Expr, *, aliases: bool) -> exp.Expr:
        made = self.resolve(tree, aliases=aliases)
        # What stood for itself alone may now be an operator beside another one.
        return closed(made) if isinstance(tree, exp.Column) else made

    def written(self, name: str) -> str:
        """Return a column's name in the case that its log writes it."""
        for relation in self.relations:
            for each, _ in relation.columns:
                if each.lower() == name.lower():
                    return each
        return name

    def star(self, tree: exp.Expr) -> Columns:
        """Return the columns that ``*`` or ``t.*`` means."""
        star = tree.this if isinstance(tree, exp.Column) else tree
        odd = [each for each in ("replace", "rename") if star.args.get(each)]
        if odd:
            self.errors.refuse(tree, f"* {odd[0].upper()} is not supported", "Name the columns.")
        left_out = {each.name.lower() for each in star.args.get("except_") or []}
        relations = self.relations
        if isinstance(tree, exp.Column) and tree.table:
            relations = (self._relation(tree, tree.table),)
        columns = [
            (name, each)
            for relation in relations
            for name, each in relation.columns
            if len(relations) == 1 or name.lower() not in relation.hidden
        ]
        unknown = left_out - {name.lower() for name, _ in columns}
        if unknown:
            self.errors.no_column(tree, f"there is no column {min(unknown)}", "Leave it out.")
        return tuple(pair for pair in columns if pair[0].lower() not in left_out)

    def _relation(self, tree: exp.Expr, name: str) -> Relation:
        for relation in self.relations:
            if relation.name == name.lower():
                return relation
        names = ", ".join(relation.name for relation in self.relations)
        raise self.errors.column_error(tree, f"{name} is not in FROM", f"There is {names}.")

    def _column(self, tree: exp.Column, *, aliases: bool) -> exp.Expr:
        parts = [part.name for part in tree.parts]
        found, rest = self._qualified(tree, parts)
        if found is None:
            found, rest = self._unqualified(tree, parts[0]), parts[1:]
        is_alias = aliases and parts[0].lower() in self.aliases
        if is_alias and (found is None or (self.keys is not None and found not in self.keys)):
            found = self.aliases[parts[0].lower()]
        if found is None and self.windowed and parts[0].lower() in _WINDOW_WORDS:
            found = call(parts[0].upper())
        if found is None:
            raise self._unknown(tree, parts[0])
        made = moved(found, tree)
        for name in rest:
            made = exp.Dot(this=closed(made), expression=exp.to_identifier(name, quoted=True))
        return made

    def _qualified(self, tree: exp.Column, parts: list[str]) -> tuple[exp.Expr | None, list[str]]:
        for relation in self.relations:
            if len(parts) > 1 and relation.name == parts[0].lower():
                found = relation.find(parts[1])
                if found is None:
                    raise self._unknown(tree, parts[1], relation)
                return found, parts[2:]
        return None, parts

    def _unqualified(self, tree: exp.Column, name: str) -> exp.Expr | None:
        found = [
            each
            for relation in self.relations
            if name.lower() not in relation.hidden
            for each in [relation.find(name)]
            if each is not None
        ]
        if len(found) > 1:
            hint = f"Write {self.relations[0].name}.{name}."
            self.errors.no_column(tree, f"{name} may be a column of several tables", hint)
        return found[0] if found else None

    def _unknown(self, tree: exp.Column, name: str, of: Relation | None = None) -> Exception:
        relations = self.relations if of is None else (of,)
        names = [each for relation in relations for each, _ in relation.columns]
        hint = did_you_mean(name, names, f"Available columns: {', '.join(names)}.")
        return self.errors.column_error(tree, f"there is no column {name}", hint)


def _field(tree: exp.Expr, place: int) -> tuple[exp.Expr, exp.Expr]:
    """A field of STRUCT: its name, as Spark gives it, and its value."""
    is_named = isinstance(tree, exp.Alias | exp.Column | exp.Dot)
    name = tree.alias_or_name if is_named else f"col{place}"
    return text(name), tree.this if isinstance(tree, exp.Alias) else tree
