"""The form for rows: an expression as the text of a Python expression, compiled once.

A column is ``row[3]``. NULL is None, and is looked for only where a column may be NULL. Where it
only matters whether a condition is TRUE, NULL and FALSE are one, and the text is that of a usual
Python condition.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from millstream.errors import SqlUnsupportedError
from millstream.sql.expressions import runtime
from millstream.sql.expressions.nodes import (
    And,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    InList,
    IsNull,
    IsTrue,
    Literal,
    Node,
    Not,
    Op,
    Or,
    Value,
    conjuncts,
    disjuncts,
)
from millstream.sql.expressions.text_values import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Function = Any
"""A compiled function: what it takes and gives, its caller knows."""

AnyNode = Any
"""A node of the class that a method is registered for."""

_FUNCTIONS = runtime.FUNCTIONS | READERS
_INLINE = (bool, int, str, bytes)


class PythonForm:
    """Writes Python expressions, and keeps the values that they refer to by name.

    One method for each class of node as a value and one for each as a condition: hence so many.

    Args:
        column: the text of a column; ``row[index]`` when nothing else is said.
    """

    def __init__(self, column: Callable[[ColumnRef], str] | None = None) -> None:
        self.names: dict[str, Any] = dict(_FUNCTIONS)
        self._column = column or (lambda node: f"row[{node.index}]")
        self._count = 0

    def condition(self, node: Node) -> str:
        """Return a text that is true for the rows that a WHERE keeps.

        A row that fails a part of the conjunction is out; the parts after it are not evaluated.
        """
        return " and ".join(self.truth(part, wanted=True) for part in conjuncts(node))

    def value(self, node: Node) -> str:
        """Return a text whose value is the node's, None for NULL; it can stand anywhere."""
        return self._VALUES[type(node)](self, node)

    def truth(self, node: Node, *, wanted: bool) -> str:
        """Return a text that is true when the node is TRUE, or FALSE if that is wanted.

        Only what cannot raise is shortened: there, nothing shows what was evaluated.
        """
        write = None if node.raises else self._TRUTHS.get(type(node))
        if write is not None:
            return write(self, node, wanted)
        return f"({self.value(node)} is {wanted})"

    # --- Values -----------------------------------------------------------------------------------

    def _column_value(self, node: AnyNode) -> str:
        return self._column(node)

    def _literal(self, node: AnyNode) -> str:
        return self._constant(node.value)

    def _constant(self, value: Value) -> str:
        if (
            value is None
            or type(value) in _INLINE
            or (type(value) is float and math.isfinite(value))
        ):
            text = repr(value)
        else:
            text = self._name("k")
            self.names[text] = value
        return f"({text})" if text.startswith("-") else text

    def _call(self, node: AnyNode) -> str:
        checks, body = self._operands(node)
        if not checks:
            return f"({body})"
        missing = " or ".join(f"{check} is None" for check in checks)
        return f"(None if {missing} else {body})"

    def _and(self, node: AnyNode) -> str:
        if not node.nullable:
            return f"({self.value(node.left)} and {self.value(node.right)})"
        left, right = self._name("t"), self._name("t")
        return (
            f"(False if ({left} := {self.value(node.left)}) is False"
            f" else False if ({right} := {self.value(node.right)}) is False"
            f" else None if {left} is None or {right} is None else True)"
        )

    def _or(self, node: AnyNode) -> str:
        if not node.nullable:
            return f"({self.value(node.left)} or {self.value(node.right)})"
        left, right = self._name("t"), self._name("t")
        return (
            f"(True if ({left} := {self.value(node.left)}) is True"
            f" else True if ({right} := {self.value(node.right)}) is True"
            f" else None if {left} is None or {right} is None else False)"
        )

    def _not(self, node: AnyNode) -> str:
        if not node.nullable:
            return f"(not {self.value(node.arg)})"
        name = self._name("t")
        return f"(None if ({name} := {self.value(node.arg)}) is None else not {name})"

    def _is_null(self, node: AnyNode) -> str:
        return f"({self.value(node.arg)} is None)"

    def _is_true(self, node: AnyNode) -> str:
        return f"({self.value(node.arg)} is {node.wanted})"

    def _in_list(self, node: AnyNode) -> str:
        found = self._name("k")
        self.names[found] = frozenset(node.values)
        if node.with_null:
            return f"(True if {self.value(node.arg)} in {found} else None)"
        if not node.arg.nullable:
            return f"({self.value(node.arg)} in {found})"
        name = self._name("t")
        return f"(None if ({name} := {self.value(node.arg)}) is None else {name} in {found})"

    def _case(self, node: AnyNode) -> str:
        cases = "".join(
            f"{self.value(value)} if {self.truth(condition, wanted=True)} else "
            for condition, value in node.branches
        )
        return f"({cases}{self.value(node.default)})"

    def _coalesce(self, node: AnyNode) -> str:
        text = ""
        for arg in node.args[:-1]:
            name = self._name("t")
            text += f"{name} if ({name} := {self.value(arg)}) is not None else "
        return f"({text}{self.value(node.args[-1])})"

    # --- Conditions -------------------------------------------------------------------------------

    def _call_truth(self, node: AnyNode, wanted: bool) -> str:
        checks, body = self._operands(node, shorten=wanted)
        present = "".join(f"{check} is not None and " for check in checks)
        if node.op.partial or not node.op.strict:
            return f"({present}({body}) is {wanted})"
        return f"({present}({body}))" if wanted else f"({present}not ({body}))"

    def _and_truth(self, node: AnyNode, wanted: bool) -> str:
        joint = " and " if wanted else " or "
        return f"({joint.join(self.truth(part, wanted=wanted) for part in conjuncts(node))})"

    def _or_truth(self, node: AnyNode, wanted: bool) -> str:
        joint = " or " if wanted else " and "
        return f"({joint.join(self.truth(part, wanted=wanted) for part in disjuncts(node))})"

    def _not_truth(self, node: AnyNode, wanted: bool) -> str:
        return self.truth(node.arg, wanted=not wanted)

    def _is_null_truth(self, node: AnyNode, wanted: bool) -> str:
        return f"({self.value(node.arg)} {'is' if wanted else 'is not'} None)"

    def _is_true_truth(self, node: AnyNode, wanted: bool) -> str:
        text = self.truth(node.arg, wanted=node.wanted)
        return text if wanted else f"(not {text})"

    def _in_list_truth(self, node: AnyNode, wanted: bool) -> str:
        found = self._name("k")
        self.names[found] = frozenset(node.values)
        text = self.value(node.arg)
        if wanted:
            return f"({text} in {found})"
        if node.with_null:
            return "False"
        if not node.arg.nullable:
            return f"({text} not in {found})"
        name = self._name("t")
        return f"(({name} := {text}) is not None and {name} not in {found})"

    # --- Parts ------------------------------------------------------------------------------------

    def _operands(self, node: Call, *, shorten: bool = False) -> tuple[list[str], str]:
        """Return what must not be None, in the order of evaluation, and the operation's text."""
        op, args = node.op, node.args
        checks: list[str] = []
        texts = [""] * len(args)
        nullable = sum(each.nullable for each in args)
        unchecked = not op.strict or (shorten and op.null_is_false and nullable == 1)
        order = list(range(len(args)))
        for place in reversed(order) if op.backwards else order:
            arg, text = args[place], self.value(args[place])
            repeated = op.python.count(f"{{{place}}}") > 1 and not _is_atom(arg)
            if not repeated and (unchecked or not (arg.nullable or arg.raises)):
                texts[place] = text
            elif _is_atom(arg):
                texts[place] = text
                checks.append(text)
            else:
                texts[place] = self._name("t")
                checks.append(f"({texts[place]} := {text})")
        params = {f"p{place}": self._constant(each) for place, each in enumerate(op.params)}
        if "{t}" in op.python:
            params["t"] = self._name("t")
        return checks, op.python.format(*texts, **params)

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    _VALUES: dict[type, Callable[[PythonForm, Any], str]] = {  # noqa: RUF012
        ColumnRef: _column_value,
        Literal: _literal,
        Call: _call,
        And: _and,
        Or: _or,
        Not: _not,
        IsNull: _is_null,
        IsTrue: _is_true,
        InList: _in_list,
        Case: _case,
        Coalesce: _coalesce,
    }
    _TRUTHS: dict[type, Callable[[PythonForm, Any, bool], str]] = {  # noqa: RUF012
        Call: _call_truth,
        And: _and_truth,
        Or: _or_truth,
        Not: _not_truth,
        IsNull: _is_null_truth,
        IsTrue: _is_true_truth,
        InList: _in_list_truth,
    }


def compile_function(head: str, result: str, names: dict[str, Any], *, raises: bool) -> Function:
    """Return the function of a head such as ``rows`` and the text of what it returns.

    Python's own errors of arithmetic become ours in a clause that costs nothing until it is met.
    """
    if raises:
        body = (
            f" try:\n  return {result}\n"
            " except failures as error:\n  raise failed(error) from error"
        )
    else:
        body = f" return {result}"
    space = dict(names)
    try:
        exec(compile(f"def form({head}):\n{body}\n", "<expression>", "exec"), space)  # noqa: S102
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise SqlUnsupportedError(
            "the expression is nested too deep",
            hint="Make it flatter: a list in IN (...), or several columns.",
        ) from error
    return space["form"]


def compile_elements(node: Node, columns: Sequence[str]) -> Callable[..., list[Any]]:
    """Return a function of one list per name in ``columns`` to the list of the node's values.

    The node's columns are numbered by their place among the lists.
    """
    form = PythonForm(lambda ref: columns[ref.index])
    text = form.value(node)
    each = f"for {', '.join(columns)}, in zip({', '.join('l' + name for name in columns)})"
    head = ", ".join("l" + name for name in columns)
    made: Callable[..., list[Any]] = compile_function(
        head, f"[{text} {each}]", form.names, raises=node.raises
    )
    return made


def one_value(op: Op) -> Callable[[Any], Any]:
    """Return an operation of one argument, which is not NULL, as a Python function."""
    params = {f"p{place}": f"k{place}" for place in range(len(op.params))}
    names = _FUNCTIONS | {f"k{place}": each for place, each in enumerate(op.params)}
    text = op.python.format("value", **params)
    made: Callable[[Any], Any] = compile_function("value", text, names, raises=op.raises)
    return made


def _is_atom(node: Node) -> bool:
    return isinstance(node, (ColumnRef, Literal))
