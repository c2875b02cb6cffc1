"""Parameters: the values of ``?`` and ``:name`` in a text, as literals of its syntax tree.

A value never becomes a part of the text that is parsed: the grammar meets a parameter where an
operand may stand, and puts a literal of the value's type into the tree.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite, isnan
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sqlglot import TokenType, exp

from millstream.errors import InvalidOptionError, SchemaMismatchError, SqlParameterError
from millstream.model.names import quote_string
from millstream.model.types import MAX_PRECISION
from millstream.model.values import check_interval, check_timestamp, check_varchar
from millstream.sql.positions import place_at

if TYPE_CHECKING:
    from sqlglot import Token

    from millstream.model.types import SqlType

ParameterValues = Sequence[Any] | Mapping[str, Any] | None
"""What a caller gives: a list for ``?``, a dict for ``:name``."""

VALUES: Final = "None, bool, int, float, Decimal, str, bytes, date, datetime and timedelta"
COLLECTION: Final = "parameter"
"""The key in a tree's ``meta`` under which a list or a dict is kept."""

CALLED: Final = "called"
"""The key in a tree's ``meta`` under which the name of the function stands that gave its value."""

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_GIVE: Final = "Give the values beside the text: a list for ?, a dict for :name."


@dataclass(frozen=True, slots=True)
class Unknown:
    """Stands for the values of parameters that are not known yet: NULLs of their types.

    Attributes:
        types: those that are known, by the offsets of ``?``, or by names.
    """

    types: Mapping[int | str, SqlType] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class NoValue:
    """The value of a parameter that is not known yet.

    Attributes:
        type: its type; None: unknown.
    """

    type: SqlType | None


@dataclass(frozen=True, slots=True)
class Constant:
    """The value of a call that is the session's: see ``constants``.

    Attributes:
        name: the function.
        value: its value; None: NULL.
        type: the type of the value.
    """

    name: str
    value: object
    type: SqlType


class Parameters:
    """The values for one text, and which of them it has used.

    Args:
        sql: the text, for errors.
        tokens: all its tokens.
        given: a list for ``?``, a dict for ``:name``; or nothing is known of them yet.

    Attributes:
        refusal: why none may stand here, and what to do instead; empty where they may.
        marks: the parameters that were read: by their offsets, their names; empty for ``?``.
    """

    __slots__ = (
        "_constants",
        "_given",
        "_ordinals",
        "_sql",
        "_texts",
        "_used",
        "marks",
        "refusal",
    )

    def __init__(
        self, sql: str, tokens: Iterable[Token] = (), given: ParameterValues | Unknown = None
    ) -> None:
        if isinstance(given, (str, bytes, bytearray)) or not isinstance(
            given, (Sequence, Mapping, Unknown, type(None))
        ):
            kind = type(given).__name__
            raise InvalidOptionError(
                f"parameters: expected a list or a dict, got {kind}", hint=_GIVE
            )
        self._sql = sql
        self._given = given
        self.refusal = ("", "")
        self._used: set[str] = set()
        self._texts: dict[int, tuple[int, str]] = {}
        self._constants: dict[int, Constant] = {}
        self.marks: dict[int, str] = {}
        marks = [each.start for each in tokens if each.token_type is TokenType.PLACEHOLDER]
        self._ordinals = {start: number for number, start in enumerate(marks)}
        if isinstance(given, Sequence) and len(given) != len(marks):
            raise self._miscounted(len(given), marks)

    def _miscounted(self, given: int, marks: list[int]) -> SqlParameterError:
        at = marks[given] if given < len(marks) else marks[-1] if marks else 0
        values = f"{given} value{'' if given == 1 else 's'}"
        message = f"{values} for {len(marks)} parameter{'' if len(marks) == 1 else 's'}"
        return self._error(f"got {message}", at, "Give one value for each ? in the text.")

    def refused(self, message: str, hint: str) -> Parameters:
        """These parameters where none may stand: whoever reads one gets an error."""
        made = copy(self)
        made.refusal = (message, hint)
        return made

    def set_constant(self, at: int, constant: Constant) -> None:
        """Let what stands at an offset, a call of the session's, have a value."""
        self._constants[at] = constant

    def bind(self, name: str, at: int, end: int) -> exp.Expr:
        """The literal of a parameter: of ``:name``, or of the ``?`` at an offset.

        Raises:
            SqlParameterError: it has no value, or one that no SQL type has.
        """
        try:
            tree = literal(self.value(name, at))
            self._texts[at] = (end, text_of(tree))
        except SchemaMismatchError as error:
            mark = f":{name}" if name else "?"
            raise self._error(f"the value of {mark}: {error.message}", at, error.hint) from error
        return tree

    def value(self, name: str, at: int) -> object:
        """The value of ``:name``, or of the ``?`` at an offset, as it was given."""
        mark = f":{name}" if name else "?"
        message, hint = self.refusal
        if at in self._constants:
            return self._constants[at]
        if message:
            raise self._error(message, at, hint)
        self.marks[at] = name
        if isinstance(self._given, Unknown):
            return self._unknown(self._given, name, at)
        if self._given is None:
            raise self._error(f"the parameter {mark} has no value", at, _GIVE)
        value: object
        if not name:
            if isinstance(self._given, Mapping):
                hint = "Write :name for each value of the dict, or give a list."
                raise self._error("? takes its value from a list, not from a dict", at, hint)
            value = self._given[self._ordinals[at]]
            return value
        if not isinstance(self._given, Mapping):
            hint = "Write ? for each value of the list, or give a dict."
            raise self._error(f"{mark} takes its value from a dict, not from a list", at, hint)
        if name not in self._given:
            raise self._error(f"the parameter {mark} has no value", at, self._nearest(name))
        self._used.add(name)
        value = self._given[name]
        return value

    def _unknown(self, given: Unknown, name: str, at: int) -> object:
        """What stands for a value that is not known: a number where only one can stand."""
        if takes_number(self._sql, at):
            return 1
        return NoValue(given.types.get(name or at))

    def _nearest(self, name: str) -> str:
        known = [str(each) for each in self._given] if isinstance(self._given, Mapping) else []
        near = difflib.get_close_matches(name, known, n=1)
        return f"Did you mean :{near[0]}?" if near else f"Values are given for: {', '.join(known)}."

    def spread(self, tree: exp.Expr) -> list[exp.Expr]:
        """The literals of what stands in ``IN (...)``: of each value of a list, or itself."""
        held = tree.meta.get(COLLECTION)
        if not isinstance(held, (list, tuple, AbstractSet)):
            return [tree]
        at = tree.meta["start"]
        try:
            made = [literal(each) for each in held]
        except SchemaMismatchError as error:
            raise self._error(error.message, at, error.hint) from error
        for each in made:
            each.meta["start"] = at
        return made

    def text(self, sql: str, begin: int, end: int) -> str:
        """A part of the text, with the values in the place of the parameters.

        For people, and to distinguish queries; it is never parsed.
        """
        parts = []
        for at, (after, value) in sorted(self._texts.items()):
            if begin <= at < end:
                blank = " " if sql[after : after + 1].isalnum() else ""
                parts += [sql[begin:at], value, blank]
                begin = after
        return "".join([*parts, sql[begin:end]])

    def check_used(self) -> None:
        """Raise if a value of a dict was given for a name that the text does not have.

        Raises:
            SqlParameterError: it names the value.
        """
        if not isinstance(self._given, Mapping):
            return
        for name in self._given:
            if name not in self._used:
                near = difflib.get_close_matches(str(name), list(self._used), n=1)
                hint = f"Did you mean {near[0]}?" if near else "Leave it out, or write :name."
                raise self._error(f"the text has no parameter :{name}", 0, hint)

    def _error(self, message: str, at: int, hint: str) -> SqlParameterError:
        """An error at an offset of the text."""
        line, column = place_at(self._sql, at)
        return SqlParameterError(message, sql=self._sql, line=line, column=column, hint=hint)


_NUMBERS_ONLY: Final = ("LIMIT", "OFFSET", "AS OF")
NO_PARAMETERS: Final = Parameters("")


# --- Values ---------------------------------------------------------------------------------------


def takes_number(sql: str, at: int) -> bool:
    """Whether only a whole number can stand at an offset.

    >>> takes_number("SELECT a FROM t LIMIT ?", 22)
    True
    """
    return sql[:at].rstrip()[-6:].upper().endswith(_NUMBERS_ONLY)


def literal(value: object) -> exp.Expr:
    """Return the literal of a value; of a list or a dict, a placeholder that holds it.

    >>> literal(-7).sql(), literal("it's").sql(), literal(1.5).sql()
    ('-7', "'it''s'", '1.5e0')

    Raises:
        SchemaMismatchError: no SQL type has such a value.
    """
    if isinstance(value, (list, tuple, Mapping, AbstractSet)):
        placeholder = exp.Placeholder()
        placeholder.meta[COLLECTION] = value
        return placeholder
    if value is None:
        return exp.Null()
    if isinstance(value, NoValue | Constant):
        return _of_session(value)
    if isinstance(value, str):
        return exp.Literal.string(check_varchar(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return exp.HexString(this=bytes(value).hex())
    return _time(value) if isinstance(value, (date, timedelta)) else _number(value)


def _of_session(value: NoValue | Constant) -> exp.Expr:
    if isinstance(value, NoValue):
        return _null(value.type)
    made = _null(value.type) if value.value is None else literal(value.value)
    made.meta[CALLED] = value.name
    return made


def _null(of: SqlType | None) -> exp.Expr:
    """NULL of a type."""
    null = exp.Null()
    return null if of is None else exp.Cast(this=null, to=exp.DataType.build(of.sql, "spark"))


def _number(value: object) -> exp.Expr:
    if type(value).__name__ in {"bool", "bool_"}:  # numpy has its own
        return exp.Boolean(this=bool(value))
    if isinstance(value, Decimal):
        return _signed(_decimal(value))
    if hasattr(value, "__index__"):
        return _signed(_integer(value))
    if isinstance(value, Real):
        return _float(float(value))
    kind = type(value).__name__
    raise SchemaMismatchError(f"{kind} has no SQL type", hint=f"Parameters are {VALUES}.")


def _integer(value: Any) -> str:  # noqa: ANN401 - whatever says it is an integer
    whole = int(value.__index__())
    if abs(whole) >= 10**MAX_PRECISION:
        raise _too_long()
    return str(whole)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise SchemaMismatchError(f"DECIMAL has no {value}", hint="Give a float for NaN or Inf.")
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    if max(len(digits) + max(0, int(exponent)), scale) > MAX_PRECISION:
        raise _too_long()
    text = format(value, "f")
    return text if "." in text else f"{text}."  # without the point it would be an integer


def _too_long() -> SchemaMismatchError:
    return SchemaMismatchError("the number has more than 38 digits", hint="Give it as a float.")


def _float(value: float) -> exp.Expr:
    if not isfinite(value):
        text = "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return _cast(text, exp.DType.DOUBLE)
    text = repr(value).replace("e+", "e")
    return _signed(text if "e" in text else f"{text}e0")  # with an exponent it is a DOUBLE


def _signed(text: str) -> exp.Expr:
    number = exp.Literal.number(text.lstrip("-"))
    return exp.Neg(this=number) if text.startswith("-") else number


def _time(value: date | timedelta) -> exp.Expr:
    if isinstance(value, timedelta):
        return _interval(value)
    if isinstance(value, datetime):
        moment = check_timestamp(value)
        text = "" if moment is None else moment.replace(tzinfo=None).isoformat(sep=" ") + "Z"
        return _cast(text, exp.DType.TIMESTAMPTZ)
    return _cast(value.isoformat(), exp.DType.DATE)


def _interval(value: timedelta) -> exp.Expr:
    length = check_interval(value) or timedelta(0)
    if length % _DAY:
        sign = "-" if length < timedelta(0) else ""
        seconds, rest = divmod(abs(length), _SECOND)
        amount, unit = f"{sign}{seconds}.{rest.microseconds:06}", "SECOND"
    else:  # a DATE may have whole days added to it, and nothing else
        amount, unit = str(length // _DAY), "DAY"
    return exp.Interval(this=exp.Literal.string(amount), unit=exp.Var(this=unit))


def _cast(text: str, to: exp.DType) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType(this=to, nested=False))


def text_of(tree: exp.Expr) -> str:
    """Return a literal as text that reads as the same literal."""
    held = tree.meta.get(COLLECTION)
    if isinstance(held, (list, tuple, AbstractSet)):
        return ", ".join(text_of(literal(each)) for each in held)
    match tree:
        case exp.Placeholder():
            return "?"
        case exp.Literal(this=text, args={"is_string": True}):
            return quote_string(text)
        case exp.Cast(this=inner, to=to):
            return f"CAST({text_of(inner)} AS {to.this.name.removesuffix('TZ')})"
    return tree.sql(dialect="spark")
