"""Regular expressions: RLIKE, SPLIT, REGEXP_EXTRACT and its kin, each with its binding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.model.types import BOOLEAN, INTEGER, VARCHAR, array_type
from millstream.sql.expressions import kernels
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.java_regex import (
    JavaRegexError,
    Pattern,
    Regex,
    literal_text,
    read_regex,
)
from millstream.sql.expressions.nodes import Call, Literal, Node, Op, Tree, string_text
from millstream.sql.expressions.text import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import regex

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder

TEXTS = array_type(VARCHAR)
_HINT = "Write what Java and Python read alike (docs/sql.md), or LIKE; a view takes all of Java's."


# --- What Python runs -----------------------------------------------------------------------------


def extract(text: str, pattern: Pattern, group: int) -> str:
    """Return a group of the first match; nothing where there is none."""
    found = pattern.search(text)
    return (found[group] or "") if found else ""


def extract_all(text: str, pattern: Pattern, group: int) -> list[str]:
    """Return a group of every match."""
    return [found[group] or "" for found in pattern.find_all(text)]


def substring(text: str, pattern: Pattern) -> str | None:
    """Return the first match; None where there is none, or nothing was matched."""
    found = pattern.search(text)
    return (found[0] or None) if found else None


def count(text: str, pattern: Pattern) -> int:
    """Return the number of matches."""
    return len(pattern.find_all(text))


def split(text: str, pattern: Pattern, limit: int) -> list[str]:
    """Return the parts between matches, at most so many; 0 or less: all."""
    parts: list[str] = []
    start = 0
    for found in pattern.find_all(text):
        if len(parts) == limit - 1:
            break
        parts.append(text[start : found.start()])
        start = found.end()
    return [*parts, text[start:]]


def replacer(template: str, groups: int) -> Callable[[regex.Match[str]], str]:
    r"""Return what replaces a match by a template of Java.

    >>> replacer("$2-$1", 2)(read_regex("(a)(b)").python.search("ab"))
    'b-a'

    Raises:
        JavaRegexError: it refers to a group that is not there, or may be.
    """
    parts: list[str | int] = []
    place = 0
    while place < len(template):
        mark, following = template[place], template[place + 1 : place + 2]
        place += 1 if mark not in "$\\" else 2
        if mark == "\\" and following:
            parts.append(following)
        elif mark == "$" and following.isascii() and following.isdigit():
            if int(following) > groups or template[place : place + 1].isdigit():
                raise JavaRegexError(f"${following} in what replaces it")
            parts.append(int(following))
        elif mark in "$\\":
            raise JavaRegexError(f"{mark} in what replaces it")
        else:
            parts.append(mark)
    if not any(isinstance(each, int) for each in parts):
        constant = "".join(map(str, parts))
        return lambda _found: constant
    return lambda found: "".join(
        [each if isinstance(each, str) else found[each] or "" for each in parts]
    )


# --- Binding --------------------------------------------------------------------------------------


def _known(binder: Binder, tree: exp.Expr) -> Literal:
    node = text_of(binder, tree)
    if not isinstance(node, Literal):
        binder.refuse(tree, "a regular expression must be a constant", "Write it as a text: '...'.")
    return node


def _regex(binder: Binder, tree: exp.Expr, text: str, *, empty: bool = True) -> Regex:
    try:
        made = read_regex(text)
    except JavaRegexError as error:
        binder.refuse(tree, f"this regular expression is not supported: {error}", _HINT)
    if made.empty and not empty:
        what = "this regular expression can match nothing, which is not supported here"
        binder.refuse(tree, what, "Write + for *, or leave out the ? at its end.")
    return made


def _called(name: str, *texts: object) -> tuple[str, str]:
    """Return the name and the text of an operation with constants after its first argument."""
    shown = [string_text(each) if isinstance(each, str) else str(each) for each in texts]
    text = ", ".join(shown).replace("{", "{{").replace("}", "}}")
    return f"{name} {text}", f"{name}({{0}}, {text})"


def _matches(binder: Binder, tree: Tree, text: exp.Expr, pattern: exp.Expr) -> Node:
    known, node = _known(binder, pattern), text_of(binder, text)
    if known.value is None:
        return Literal(None, BOOLEAN)
    regex = _regex(binder, tree, known.value)
    name, sql = _called("REGEXP_LIKE", known.value)
    op = Op(
        name,
        sql,
        "({p0}({0}) is not None)",
        params=(regex.python.search,),
        raises=regex.python.is_bounded,
    )
    return call(op, node, of=BOOLEAN)


def _operator(binder: Binder, tree: exp.RegexpLike) -> Node:
    return _matches(binder, tree, tree.this, tree.expression)


def _function(binder: Binder, tree: exp.Anonymous) -> Node:
    return _matches(binder, tree, *tree.expressions)


def _number(binder: Binder, tree: exp.Anonymous, place: int, default: int) -> int:
    if len(tree.expressions) <= place:
        return default
    node = binder.bind(tree.expressions[place])
    if not isinstance(node, Literal) or node.type != INTEGER or node.value is None:
        binder.refuse(tree, f"{tree.name.upper()} needs a constant number", "Write 1, say.")
    return int(node.value)


def _grouped(
    name: str, function: Callable[..., object], of: SqlType, *, empty: bool
) -> Callable[[Binder, exp.Anonymous], Node]:
    """Return the binding of a function of a text, a pattern and the number of a group."""

    def bind(binder: Binder, tree: exp.Anonymous) -> Node:
        text, pattern = tree.expressions[:2]
        known, node = _known(binder, pattern), text_of(binder, text)
        group = _number(binder, tree, 2, 1)
        if known.value is None:
            return Literal(None, of)
        regex = _regex(binder, tree, known.value, empty=empty)
        if not 0 <= group <= regex.groups or group in regex.repeated:
            what = f"there is no group {group}, or a quantifier repeats it"
            binder.refuse(tree, what, "Groups count from 1; 0 is the whole match.")
        named, sql = _called(name, known.value, group)
        params = (function, regex.python, group)
        slow = regex.python.is_bounded
        op = Op(named, sql, "{p0}({0}, {p1}, {p2})", params=params, raises=slow)
        return _made(op, node, of)

    return bind


def _made(op: Op, node: Node, of: SqlType) -> Node:
    """Return a call; there are no literals of ARRAY, so that its value cannot stand for it."""
    is_null = isinstance(node, Literal) and node.value is None
    return Call(op, (node,), of) if of == TEXTS and not is_null else call(op, node, of=of)


def _simple(
    name: str, function: Callable[..., object], of: SqlType, *, empty: bool
) -> Callable[[Binder, exp.Anonymous], Node]:
    """Return the binding of a function of a text and a pattern."""

    def bind(binder: Binder, tree: exp.Anonymous) -> Node:
        text, pattern = tree.expressions
        known, node = _known(binder, pattern), text_of(binder, text)
        if known.value is None:
            return Literal(None, of)
        regex = _regex(binder, tree, known.value, empty=empty)
        named, sql = _called(name, known.value)
        params = (function, regex.python)
        slow = regex.python.is_bounded
        op = Op(named, sql, "{p0}({0}, {p1})", params=params, partial=empty, raises=slow)
        return call(op, node, of=of)

    return bind


def _replace(binder: Binder, tree: exp.Anonymous) -> Node:
    text, pattern, other = tree.expressions
    known, new, node = _known(binder, pattern), _known(binder, other), text_of(binder, text)
    if known.value is None or new.value is None:
        return Literal(None, VARCHAR)
    regex = _regex(binder, tree, known.value, empty=False)
    try:
        replace = replacer(new.value, regex.groups)
    except JavaRegexError as error:
        binder.refuse(tree, f"this replacement is not supported: {error}", _HINT)
    named, sql = _called("REGEXP_REPLACE", known.value, new.value)
    params, slow = (regex.python.replace, replace), regex.python.is_bounded
    op = Op(named, sql, "{p0}({p1}, {0})", params=params, raises=slow)
    return call(op, node, of=VARCHAR)


def _split(binder: Binder, tree: exp.Anonymous) -> Node:
    text, pattern = tree.expressions[:2]
    known, node = _known(binder, pattern), text_of(binder, text)
    limit = _number(binder, tree, 2, -1)
    if known.value is None:
        return Literal(None, TEXTS)
    regex = _regex(binder, tree, known.value, empty=False)
    named, sql = _called("SPLIT", known.value, limit)
    mark = literal_text(known.value)
    if mark is not None:
        most = max(limit - 1, -1)
        op = Op(
            named,
            sql,
            "{0}.split({p0}, {p1})",
            arrow=lambda value: kernels.split(value, mark, most),
            params=(mark, most),
        )
        return _made(op, node, TEXTS)
    params = (split, regex.python, limit)
    slow = regex.python.is_bounded
    op = Op(named, sql, "{p0}({0}, {p1}, {p2})", params=params, raises=slow)
    return _made(op, node, TEXTS)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {exp.RegexpLike: _operator}
NAMED: dict[str, Callable[[Binder, exp.Anonymous], Node]] = {
    **dict.fromkeys(("REGEXP", "REGEXP_LIKE", "RLIKE"), _function),
    "REGEXP_COUNT": _simple("REGEXP_COUNT", count, INTEGER, empty=False),
    "REGEXP_EXTRACT": _grouped("REGEXP_EXTRACT", extract, VARCHAR, empty=True),
    "REGEXP_EXTRACT_ALL": _grouped("REGEXP_EXTRACT_ALL", extract_all, TEXTS, empty=False),
    "REGEXP_REPLACE": _replace,
    "REGEXP_SUBSTR": _simple("REGEXP_SUBSTR", substring, VARCHAR, empty=True),
    "SPLIT": _split,
}
