"""VARCHAR: LIKE and the functions of text, each operation with its binding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millstream.model.types import BOOLEAN, INTEGER, VARCHAR
from millstream.sql.expressions import kernels
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.nodes import (
    Datum,
    Literal,
    Node,
    Not,
    Op,
    Tree,
    Value,
    string_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder


# --- LIKE -----------------------------------------------------------------------------------------

ANY, ONE = object(), object()
"""In a pattern that was taken apart: any text, and any one character."""


class PatternError(ValueError):
    """A pattern whose escape stands before something that needs none."""


def pattern_parts(pattern: str, escape: str) -> list[Any]:
    r"""Return the parts of a pattern: texts, and ``ANY`` for ``%`` and ``ONE`` for ``_``.

    >>> pattern_parts("50\\%%", "\\") == ["50%", ANY]
    True
    """
    parts: list[Any] = []
    text = ""
    places = iter(pattern)
    for mark in places:
        if mark == escape:
            following = next(places, "")
            if following not in {"%", "_", escape}:
                raise PatternError(pattern)
            text += following
        elif mark in "%_":
            parts += [text] if text else []
            parts.append(ANY if mark == "%" else ONE)
            text = ""
        else:
            text += mark
    return [*parts, text] if text or not parts else parts


def like(pattern: str, escape: str) -> Op:
    """Return LIKE with a pattern that is known.

    Raises:
        PatternError: the pattern has no meaning.
    """
    parts = pattern_parts(pattern, escape)
    match parts:
        case [str() as text]:
            python, arrow = "{0} == {p0}", lambda value: pc.equal(value, text)
        case [str() as text, mark] if mark is ANY:
            python, arrow = "{0}.startswith({p0})", lambda value: pc.starts_with(value, text)
        case [mark, str() as text] if mark is ANY:
            python, arrow = "{0}.endswith({p0})", lambda value: pc.ends_with(value, text)
        case [first, str() as text, last] if first is ANY and last is ANY:
            python, arrow = "{p0} in {0}", lambda value: pc.match_substring(value, text)
        case _:
            return _regular(pattern, escape, parts)
    name, sql = _like_text(pattern, escape)
    return Op(name, sql, python, arrow, params=(text,), null_is_false="==" in python)


def _regular(pattern: str, escape: str, parts: list[Any]) -> Op:
    wild = {id(ANY): ".*", id(ONE): "."}
    python = _python(parts)
    # RE2 reads \x{..} where Python has escapes of its own; outside of ASCII neither needs any.
    arrow = "".join(wild.get(id(each)) or _escaped(each) for each in parts)
    found = re.compile(python, re.DOTALL).fullmatch
    expression = f"(?s)\\A{arrow}\\z"
    name, sql = _like_text(pattern, escape)
    return Op(
        name,
        sql,
        "({p0}({0}) is not None)",
        lambda value: pc.match_substring_regex(value, expression),
        params=(found,),
    )


def _python(parts: list[Any]) -> str:
    """Return the pattern of Python: what is between two ``%`` stays where it is first found.

    Looking for another place would find no more, and take time without end.
    """
    pieces = [""]
    for each in parts:
        if each is ANY:
            pieces.append("")
        else:
            pieces[-1] += "." if each is ONE else re.escape(each)
    first, *between = pieces
    last = f".*{between.pop()}" if between else ""
    return first + "".join(f"(?>.*?{each})" for each in between if each) + last


def _escaped(text: str) -> str:
    return "".join(
        each if each.isalnum() or not each.isascii() else f"\\x{{{ord(each):x}}}" for each in text
    )


def _like_text(pattern: str, escape: str) -> tuple[str, str]:
    tail = "" if escape == "\\" else f" ESCAPE {string_text(escape)}"
    text = (string_text(pattern) + tail).replace("{", "{{").replace("}", "}}")
    return f"LIKE {text}", f"{{0}} LIKE {text}"


# --- Functions ------------------------------------------------------------------------------------


def _cased(name: str, ascii_kernel: Callable[[Any], Any]) -> Op:
    """Return UPPER or LOWER: kernels for ASCII, Python, which knows ß and final sigmas, else."""
    change = str.upper if name == "UPPER" else str.lower

    def arrow(value: Datum) -> Datum:
        if kernels.is_ascii(value):
            return ascii_kernel(value)
        if isinstance(value, pa.Scalar):
            return pa.scalar(change(value.as_py()))
        values = kernels.python_values(VARCHAR, value)
        texts = [None if each is None else change(each) for each in values]
        return pa.array(texts, pa.string())

    return Op(name, f"{name}({{0}})", f"{{0}}.{name.lower()}()", arrow)


UPPER = _cased("UPPER", pc.ascii_upper)
LOWER = _cased("LOWER", pc.ascii_lower)
LENGTH = Op("LENGTH", "LENGTH({0})", "len({0})", pc.utf8_length)
OCTETS = Op(
    "LENGTH BINARY", "LENGTH({0})", "len({0})", lambda v: pc.cast(pc.binary_length(v), pa.int32())
)
REVERSE = Op("REVERSE", "REVERSE({0})", "{0}[::-1]", pc.utf8_reverse)

_SIDES: dict[str, tuple[str, Callable[..., Any]]] = {
    "BOTH": ("strip", pc.utf8_trim),
    "LEADING": ("lstrip", pc.utf8_ltrim),
    "TRAILING": ("rstrip", pc.utf8_rtrim),
}


def trim_op(side: str, characters: str) -> Op:
    """Return TRIM of some characters, which are known, from one side or both."""
    method, kernel = _SIDES[side]
    shown = string_text(characters).replace("{", "{{").replace("}", "}}")
    text = f"TRIM({side} {shown} FROM {{0}})"
    if not characters:
        return Op(text, text, "{0}", lambda value: value)
    return Op(
        text,
        text,
        f"{{0}}.{method}({{p0}})",
        lambda value: kernel(value, characters=characters),
        params=(characters,),
    )


def substring(start: int | None, length: int | None, *, has_length: bool) -> Op:
    """Return SUBSTRING; start and length if they are known, else None."""
    count = 3 if has_length else 2
    inner = ", ".join(f"{{{place}}}" for place in range(count))
    arrow = None
    if start is not None and start >= 0 and (length is not None or not has_length):
        first = max(start - 1, 0)
        stop = None if length is None else first + max(length, 0)

        def arrow(value: Datum, *_known: Datum) -> Datum:
            return pc.utf8_slice_codeunits(value, start=first, stop=stop)

    return Op(
        f"SUBSTRING {start} {length}",
        f"SUBSTRING({inner})",
        f"substring({inner})",
        arrow,
    )


def concat(count: int) -> Op:
    """Return the texts one after the other; all are evaluated, even after a NULL."""
    inner = ", ".join(f"{{{place}}}" for place in range(count))

    def arrow(*values: Datum) -> Datum:
        return pc.binary_join_element_wise(*values, "")

    return Op(
        f"CONCAT {count}", f"CONCAT({inner})", f"concat({inner})", arrow, strict=False, partial=True
    )


def search(name: str, known: str | None) -> Op:
    """Return STARTSWITH, ENDSWITH or CONTAINS; ``known`` is what is searched, if it is."""
    python, kernel = _SEARCHES[name]
    arrow = None
    if known is not None:

        def arrow(value: Datum, _known: Datum) -> Datum:
            return kernel(value, known)

    return Op(f"{name} {known!r}", f"{name}({{0}}, {{1}})", python, arrow)


_SEARCHES: dict[str, tuple[str, Callable[..., Any]]] = {
    "STARTSWITH": ("{0}.startswith({1})", pc.starts_with),
    "ENDSWITH": ("{0}.endswith({1})", pc.ends_with),
    "CONTAINS": ("({1} in {0})", pc.match_substring),
}


def replacement(old: str | None, new: str | None) -> Op:
    """Return REPLACE; the texts if they are known."""
    arrow = None
    if old and new is not None:

        def arrow(value: Datum, _old: Datum, _new: Datum) -> Datum:
            return pc.replace_substring(value, pattern=old, replacement=new)

    return Op(f"REPLACE {old!r} {new!r}", "REPLACE({0}, {1}, {2})", "replace({0}, {1}, {2})", arrow)


# --- Binding --------------------------------------------------------------------------------------


def text_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be text."""
    node = binder.bind(tree)
    if node.type.kind == "NULL":
        return Literal(None, VARCHAR)
    if node.type != VARCHAR:
        binder.mismatch(tree, f"expected VARCHAR, got {node.type.sql}", "CAST it AS VARCHAR.")
    return node


def _known(node: Node) -> Value:
    return node.value if isinstance(node, Literal) else None


def _of_text(op: Op, of: SqlType = VARCHAR) -> Callable[[Binder, Tree], Node]:
    return lambda binder, tree: call(op, text_of(binder, tree.this), of=of)


def _length(binder: Binder, tree: exp.Length) -> Node:
    node = binder.bind(tree.this)
    if node.type.kind == "BINARY":
        return call(OCTETS, node, of=INTEGER)
    return call(LENGTH, text_of(binder, tree.this), of=INTEGER)


def trim(binder: Binder, tree: exp.Trim) -> Node:
    """Return TRIM, from one side or both."""
    characters = tree.expression
    known = Literal(" ", VARCHAR) if characters is None else text_of(binder, characters)
    if not isinstance(known, Literal) or known.value is None:
        binder.refuse(tree, "TRIM needs constant characters", "Write TRIM(BOTH 'x' FROM text).")
    side = str(tree.args.get("position") or "BOTH").upper()
    return call(trim_op(side, known.value), text_of(binder, tree.this), of=VARCHAR)


def _substring(binder: Binder, tree: exp.Substring) -> Node:
    text, length = text_of(binder, tree.this), tree.args.get("length")
    args = [integer_of(binder, tree.args.get("start"))]
    if length is not None:
        args.append(integer_of(binder, length))
    return _part(text, *args)


def _part(text: Node, *args: Node) -> Node:
    size = _known(args[1]) if len(args) > 1 else None
    op = substring(_known(args[0]), size, has_length=len(args) > 1)
    return call(op, text, *args, of=VARCHAR)


def _left(binder: Binder, tree: exp.Left) -> Node:
    return _part(
        text_of(binder, tree.this), Literal(1, INTEGER), integer_of(binder, tree.expression)
    )


def integer_of(binder: Binder, tree: exp.Expr | None) -> Node:
    """Return the node of a tree that must be an INTEGER, or a smaller one."""
    node = binder.bind(tree)
    place = tree or exp.Null()
    if node.type.kind not in {"NULL", "TINYINT", "SMALLINT", "INTEGER"}:
        binder.mismatch(place, f"expected INTEGER, got {node.type.sql}", "CAST it AS INTEGER.")
    return binder.coerce(place, node, INTEGER)


def _concat(binder: Binder, tree: Tree) -> Node:
    trees = tree.expressions if isinstance(tree, exp.Concat) else [tree.this, tree.expression]
    nodes = [binder.coerce(each, binder.bind(each), VARCHAR) for each in trees]
    return nodes[0] if len(nodes) == 1 else call(concat(len(nodes)), *nodes, of=VARCHAR)


def _search(name: str) -> Callable[[Binder, Tree], Node]:
    def bind(binder: Binder, tree: Tree) -> Node:
        text, part = text_of(binder, tree.this), text_of(binder, tree.expression)
        return call(search(name, _known(part)), text, part, of=BOOLEAN)

    return bind


def _replace(binder: Binder, tree: exp.Replace) -> Node:
    text, old = text_of(binder, tree.this), text_of(binder, tree.expression)
    other = tree.args.get("replacement")
    new = Literal("", VARCHAR) if other is None else text_of(binder, other)
    return call(replacement(_known(old), _known(new)), text, old, new, of=VARCHAR)


def _like(binder: Binder, tree: Tree, escape: str = "\\") -> Node:
    if isinstance(tree.expression, (exp.Any, exp.All)):
        binder.refuse(tree, "LIKE ANY and ALL are not supported", "Write several LIKE with OR.")
    text, pattern = text_of(binder, tree.this), text_of(binder, tree.expression)
    if not isinstance(pattern, Literal):
        binder.refuse(
            tree,
            "LIKE needs a constant pattern",
            "Use STARTSWITH, ENDSWITH or CONTAINS of two columns.",
        )
    if pattern.value is None:
        return Literal(None, BOOLEAN)
    known = pattern.value
    if isinstance(tree, exp.ILike):
        known, text = known.lower(), call(LOWER, text, of=VARCHAR)
    try:
        node = call(like(known, escape), text, of=BOOLEAN)
    except PatternError:
        binder.refuse(
            tree,
            f"in the pattern, {escape} does not stand before %, _ or {escape}",
            f"Write {escape}{escape} for the character itself.",
        )
    return Not(node) if tree.args.get("negate") else node


def _escape(binder: Binder, tree: exp.Escape) -> Node:
    mark = tree.expression.name if isinstance(tree.expression, exp.Literal) else ""
    if not isinstance(tree.this, (exp.Like, exp.ILike)) or len(mark) != 1 or mark in "%_":
        binder.refuse(tree, "ESCAPE takes one character", "Write LIKE '5!%' ESCAPE '!'.")
    return _like(binder, tree.this, mark)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    exp.Upper: _of_text(UPPER),
    exp.Lower: _of_text(LOWER),
    exp.Reverse: _of_text(REVERSE),
    exp.Length: _length,
    exp.Trim: trim,
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.StartsWith: _search("STARTSWITH"),
    exp.EndsWith: _search("ENDSWITH"),
    exp.Contains: _search("CONTAINS"),
    exp.Replace: _replace,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
}
