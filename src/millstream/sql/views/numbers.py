"""Numbers: of which kind the value of an expression is, as far as the text shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from millstream.errors import Error
from millstream.model import parse_type
from millstream.sql.views.functions import function_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.types import SqlType
    from millstream.sql.views.flow import Ground

Kind = Literal["integer", "decimal", "float"]

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "integer"),
    **dict.fromkeys(("REAL", "DOUBLE"), "float"),
    "DECIMAL": "decimal",
}

_WHOLE = (
    "length char_length character_length octet_length size cardinality array_size year quarter "
)
_WHOLE += "month weekofyear day dayofmonth dayofweek dayofyear hour minute second datediff ascii "
_WHOLE += "unix_timestamp unix_seconds unix_millis unix_micros unix_date instr locate levenshtein"
_FUNCTIONS: dict[str, Kind] = {
    **dict.fromkeys(_WHOLE.split(), "integer"),
    **dict.fromkeys(("sqrt", "cbrt", "exp", "ln", "log", "log2", "log10", "pow", "power"), "float"),
}
_LIKE_ITS_ARGUMENTS = {"abs", "coalesce", "ifnull", "nvl", "greatest", "least", "mod", "round"}


def number_type(tree: exp.Expr, ground: Ground) -> SqlType | None:
    """Return the exact type of a column or a CAST; None for what would need a calculation."""
    if isinstance(tree, exp.Paren | exp.Neg):
        return number_type(tree.this, ground)
    if isinstance(tree, exp.If) and isinstance(tree.args.get("false"), exp.Null):
        return number_type(tree.args["true"], ground)
    if isinstance(tree, exp.Column):
        origin = ground.origins.get(tree.name)
        return origin.type if origin else None
    if isinstance(tree, exp.Dot | exp.Bracket):
        return _part_type(tree, number_type(tree.this, ground))
    return _cast_type(tree) if isinstance(tree, exp.Cast) else None


def _cast_type(tree: exp.Cast) -> SqlType | None:
    try:
        return parse_type(tree.to.sql(dialect="spark"))
    except Error:
        return None


def _part_type(tree: exp.Dot | exp.Bracket, of: SqlType | None) -> SqlType | None:
    """Return the type of a field of a STRUCT, or of an element of an ARRAY or a MAP."""
    if of is None or not of.children:
        return None
    if isinstance(tree, exp.Bracket):
        return None if of.kind == "STRUCT" else of.children[-1]
    names = [each.lower() for each in of.names] if of.kind == "STRUCT" else []
    name = tree.expression.name.lower()
    return of.children[names.index(name)] if name in names else None


def number_kind(tree: exp.Expr, ground: Ground) -> Kind | None:
    """Return whether a number is whole, decimal or of floating point; None when nobody knows.

    It is one of Spark's rules of types: ``/`` of whole numbers is a DOUBLE.
    """
    exact = number_type(tree, ground)
    if exact is not None:
        return _KINDS.get(exact.kind)
    if isinstance(tree, exp.Literal) and not tree.is_string:
        text = str(tree.this).lower()
        return "float" if "e" in text else "decimal" if "." in text else "integer"
    if isinstance(tree, exp.IntDiv):
        return "integer"
    parts = _parts(tree)
    if not parts:
        return _FUNCTIONS.get(function_name(tree))
    kinds = [number_kind(part, ground) for part in parts if not isinstance(part, exp.Null)]
    kind = _widest(kinds)
    return "float" if isinstance(tree, exp.Div) and kind == "integer" else kind


def widest_kind(trees: Sequence[exp.Expr], ground: Ground) -> Kind | None:
    """Return the kind of a column that is now one and now another of several expressions."""
    return _widest([number_kind(each, ground) for each in trees])


def _widest(kinds: list[Kind | None]) -> Kind | None:
    if not kinds or None in kinds:
        return None
    order: tuple[Kind, ...] = ("float", "decimal", "integer")
    return next(kind for kind in order if kind in kinds)


def _parts(tree: exp.Expr) -> list[exp.Expr]:
    """The operands whose kinds decide that of the whole."""
    if isinstance(tree, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
        return [tree.this, tree.expression]
    if isinstance(tree, exp.Neg | exp.Paren):
        return [tree.this]
    if isinstance(tree, exp.If):
        return [each for each in (tree.args["true"], tree.args.get("false")) if each is not None]
    if isinstance(tree, exp.Case):
        default = tree.args.get("default")
        values = [each.args["true"] for each in tree.args["ifs"]]
        return values if default is None else [*values, default]
    return tree.expressions if function_name(tree) in _LIKE_ITS_ARGUMENTS else []
