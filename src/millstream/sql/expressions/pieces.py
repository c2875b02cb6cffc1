"""Pieces of text: RIGHT, INSTR, SPLIT_PART, TRANSLATE, each operation with its binding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ExpressionError
from millstream.model.types import INTEGER, VARCHAR
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.nodes import Literal, Node, Op
from millstream.sql.expressions.text import integer_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

    from millstream.sql.expressions.bind import Binder


def last_characters(text: str, count: int) -> str:
    """Return the last characters of a text.

    >>> last_characters("abc", 2), last_characters("abc", -1), last_characters("abc", 9)
    ('bc', '', 'abc')
    """
    return text[-count:] if count > 0 else ""


def split_part(text: str, mark: str, place: int) -> str:
    """Return one of the parts of a text between marks, from 1, or from -1 counted from the end.

    >>> split_part("a,b,c", ",", 2), split_part("a,b,c", ",", -1), split_part("a,b,c", ",", 4)
    ('b', 'c', '')
    """
    if place == 0:
        raise ExpressionError(
            "SPLIT_PART counts from 1", hint="Write 1 for the first part, -1 for the last."
        )
    parts = text.split(mark) if mark else [text]
    at = place - 1 if place > 0 else len(parts) + place
    return parts[at] if 0 <= at < len(parts) else ""


def translation(old: str, new: str) -> dict[int, str]:
    """Return what each character becomes: that of its first place, or nothing.

    >>> "abc".translate(translation("bc", "x"))
    'ax'
    """
    return {ord(mark): new[place : place + 1] for place, mark in reversed(list(enumerate(old)))}


RIGHT = Op("RIGHT", "RIGHT({0}, {1})", "{p0}({0}, {1})", params=(last_characters,))
INSTR = Op("INSTR", "INSTR({0}, {1})", "{0}.find({1}) + 1")
SPLIT_PART = Op(
    "SPLIT_PART",
    "SPLIT_PART({0}, {1}, {2})",
    "{p0}({0}, {1}, {2})",
    params=(split_part,),
    raises=True,
)


# --- Binding --------------------------------------------------------------------------------------


def _right(binder: Binder, tree: exp.Anonymous) -> Node:
    text, count = tree.expressions
    return call(RIGHT, text_of(binder, text), integer_of(binder, count), of=VARCHAR)


def _instr(binder: Binder, tree: exp.Anonymous) -> Node:
    return call(INSTR, *(text_of(binder, each) for each in tree.expressions), of=INTEGER)


def _split_part(binder: Binder, tree: exp.Anonymous) -> Node:
    text, mark, place = tree.expressions
    args = (text_of(binder, text), text_of(binder, mark), integer_of(binder, place))
    return call(SPLIT_PART, *args, of=VARCHAR)


def _translate(binder: Binder, tree: exp.Anonymous) -> Node:
    text, *others = tree.expressions
    node, (old, new) = text_of(binder, text), (text_of(binder, each) for each in others)
    if not isinstance(old, Literal) or not isinstance(new, Literal):
        binder.refuse(
            tree, "TRANSLATE needs constant characters", "Write TRANSLATE(s, 'ab', 'xy')."
        )
    if old.value is None or new.value is None:
        return Literal(None, VARCHAR)
    shown = f"{old.sql}, {new.sql}".replace("{", "{{").replace("}", "}}")
    table = translation(old.value, new.value)
    op = Op(
        f"TRANSLATE {shown}",
        f"TRANSLATE({{0}}, {shown})",
        "{0}.translate({p0})",
        params=(table,),
    )
    return call(op, node, of=VARCHAR)


NAMED: dict[str, Callable[[Binder, exp.Anonymous], Node]] = {
    "INSTR": _instr,
    "RIGHT": _right,
    "SPLIT_PART": _split_part,
    "TRANSLATE": _translate,
}
