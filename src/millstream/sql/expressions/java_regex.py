r"""Regular expressions of Java, read, and written for Python, as far as both mean the same.

Taken are characters, ``.``, ``^``, ``$``, classes, ``\d \w \s`` and their opposites, groups,
alternatives, and quantifiers, greedy and lazy. Where the two differ (which characters end a line,
which are digits) the Python form says what Java means. All else is refused: boundaries of words,
references to groups, what looks around, possessive quantifiers, classes within classes but after
``&&``, flags but for ``(?i)`` in front, and a quantifier of what can match nothing.

Whoever may ask writes them, so no match may take for ever, nor keep other threads from running: one
that is not soon found is looked for without Python's lock, and then given up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import regex

from millstream.errors import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_DIGIT, _WORD, _BLANK = "0-9", "a-zA-Z0-9_", r" \t\n\x0b\f\r"
_SETS = {"d": _DIGIT, "w": _WORD, "s": _BLANK}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ENDS = r"\n\r\x85\u2028\u2029"
_ANY = f"[^{_ENDS}]"
# At the end, or before a line's end that is the last; not between the two parts of one.
_END = r"(?:\Z|(?=\r\n\Z)|(?=[\r\x85\u2028\u2029]\Z)|(?<!\r)(?=\n\Z))"
_SPECIAL = frozenset("\\^$.|?*+()[]{}")
_COUNT = re.compile(r"\{([0-9]{1,3})(,([0-9]{1,3})?)?\}")
_STEPS: Final = 1_000_000
"""As many may be done at once, while other threads wait."""
_BRIEF: Final = 0.005
"""For so many seconds other threads wait, as they do for Python itself."""
_SECONDS: Final = 1.0
"""For so many seconds of the processor a match is looked for."""


class JavaRegexError(ValueError):
    """A regular expression that is not taken; the text says for what."""


class Pattern:
    """A pattern of Python whose matches end.

    Args:
        text: the pattern, for people.
        pattern: the same, compiled.
        short: a text of at most so many characters takes a moment, whatever it is; None: any does.
    """

    def __init__(self, text: str, pattern: regex.Pattern[str], short: int | None) -> None:
        self._text = text
        self._pattern = pattern
        self._short = short

    @property
    def is_bounded(self) -> bool:
        """Whether matching may be given up, which is an error."""
        return self._short is not None

    def search(self, text: str) -> regex.Match[str] | None:
        """Return the first match.

        Raises:
            ExpressionError: it takes too long.
        """
        if self._short is None or len(text) <= self._short:
            return self._pattern.search(text)
        return self._bounded(lambda **most: self._pattern.search(text, **most), text)

    def find_all(self, text: str) -> list[regex.Match[str]]:
        """Return all matches.

        Raises:
            ExpressionError: it takes too long.
        """
        return self._bounded(lambda **most: list(self._pattern.finditer(text, **most)), text)

    def replace(self, new: Callable[[regex.Match[str]], str], text: str) -> str:
        """Return a text whose matches are replaced.

        Raises:
            ExpressionError: it takes too long.
        """
        replaced: str = self._bounded(lambda **most: self._pattern.sub(new, text, **most), text)
        return replaced

    def _bounded(self, match: Callable[..., T], text: str) -> T:
        if self._short is None or len(text) <= self._short:
            return match()
        most: dict[str, Any] = {"timeout": _BRIEF, "concurrent": False}
        try:
            return match(**most)
        except TimeoutError:
            most = {"timeout": _SECONDS, "concurrent": True}
        try:
            return match(**most)
        except TimeoutError as error:
            raise ExpressionError(
                f"the regular expression {self._text!r} takes too long for a text of "
                f"{len(text)} characters",
                hint="repeat less of it: (a|b)+ as [ab]+, .*x as [^x]*x",
            ) from error


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression.

    Attributes:
        python: the same for Python, whose matches end.
        groups: how many groups it has.
        repeated: the numbers of the groups that may match several times; the last one is kept.
        empty: whether it can match nothing.
    """

    python: Pattern
    groups: int
    repeated: frozenset[int]
    empty: bool


@lru_cache(maxsize=256)
def read_regex(text: str) -> Regex:
    """Return a regular expression of Java.

    >>> read_regex("^[a-c]+$").python.search("abc") is not None
    True

    Raises:
        JavaRegexError: Python's may mean another, or it is none.
    """
    ignored = text.startswith("(?i)")
    reader = _Reader(text[4:] if ignored else text)
    python, empty = reader.alternatives()
    if reader.place < len(reader.text):
        raise JavaRegexError(f"{reader.text[reader.place]} without its beginning")
    flags = regex.V0 | regex.ASCII | (regex.IGNORECASE if ignored else 0)
    made = Pattern(text, regex.compile(python, flags), reader.short)
    return Regex(made, reader.groups, frozenset(reader.repeated), empty)


def literal_text(text: str) -> str | None:
    """Return the text that a regular expression stands for; None when it may match others.

    >>> literal_text(", "), literal_text("[|]"), literal_text("a.b")
    (', ', None, None)
    """
    made, place = "", 0
    while place < len(text):
        mark = text[place]
        if mark == "\\":
            place += 1
            mark = text[place : place + 1]
            if not mark or not mark.isascii() or mark.isalnum():
                return None
        elif mark in _SPECIAL:
            return None
        made += mark
        place += 1
    return made or None


class _Reader:
    """Reads one expression from left to right; each method gives Python's text of a part.

    Of what may match nothing, the second value is true.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.groups = 0
        self.repeated: set[int] = set()
        self._choices = 1  # in how many ways its parts can match that are not repeated
        self._repeats = 0  # how many of its parts repeat, each as often as the text is long
        self._nested = False  # whether what repeats has a choice within: its ways double each time

    @property
    def short(self) -> int | None:
        """How long a text is that takes a moment, whatever it is; None: any does."""
        if self._nested or self._choices > _STEPS:
            return 0
        if not self._repeats and self._choices == 1:
            return None
        return int((_STEPS / self._choices) ** (1 / (self._repeats + 1))) - 1

    def _next(self) -> str:
        return self.text[self.place] if self.place < len(self.text) else ""

    def _take(self) -> str:
        found = self._next()
        if not found:
            raise JavaRegexError("an end where more must follow")
        self.place += 1
        return found

    def alternatives(self) -> tuple[str, bool]:
        """Read up to a parenthesis that closes, or to the end."""
        parts, empty = [], False
        while True:
            part, nothing = self._sequence()
            parts.append(part)
            empty = empty or nothing
            if self._next() != "|":
                self._choices *= len(parts)
                return "|".join(parts), empty
            self.place += 1

    def _sequence(self) -> tuple[str, bool]:
        made, empty = "", True
        while self._next() not in {"", "|", ")"}:
            part, nothing = self._term()
            made, empty = made + part, empty and nothing
        return made, empty

    def _term(self) -> tuple[str, bool]:
        before, ways = self.groups, (self._choices, self._repeats)
        atom, empty, countable = self._atom()
        count, optional = self._quantifier()
        if not count:
            return atom, empty
        if count[0] == "?":
            self._choices *= 2
        else:
            self._nested |= ways != (self._choices, self._repeats)
            self._repeats += 1
        if empty or not countable:
            raise JavaRegexError("a quantifier of what can match nothing")
        if count[0] != "?":
            self.repeated.update(range(before + 1, self.groups + 1))
        return atom + count, optional

    def _quantifier(self) -> tuple[str, bool]:
        mark = self._next()
        if mark and mark in "*+?":
            self.place += 1
            return mark + self._laziness(), mark != "+"
        if mark != "{":
            return "", False
        found = _COUNT.match(self.text, self.place)
        if found is None:
            raise JavaRegexError("{ without a count")
        least, most = int(found[1]), found[3]
        if most is not None and int(most) < least:
            raise JavaRegexError(f"the count {found[0]}")
        self.place = found.end()
        return found[0] + self._laziness(), least == 0

    def _laziness(self) -> str:
        following = self._next()
        if following and following in "+*{":
            raise JavaRegexError("a possessive quantifier, or one after another")
        if following != "?":
            return ""
        self.place += 1
        if self._next() and self._next() in "?*+{":
            raise JavaRegexError("one quantifier after another")
        return "?"

    def _atom(self) -> tuple[str, bool, bool]:
        """Return the text, whether it can match nothing, and whether it may be counted."""
        mark = self._take()
        if mark == "(":
            inner, empty = self._group()
            return inner, empty, True
        if mark in "^$":
            return (r"\A" if mark == "^" else _END), True, False
        if mark == ".":
            return _ANY, False, True
        if mark == "[":
            return self._class(), False, True
        if mark == "\\":
            return self._escape(), False, True
        if mark in _SPECIAL:
            raise JavaRegexError(f"{mark} where nothing stands before it")
        return re.escape(mark), False, True

    def _group(self) -> tuple[str, bool]:
        head = "("
        if self._next() == "?":
            if self.text[self.place : self.place + 2] != "?:":
                raise JavaRegexError("a group that begins with (? and not with (?:")
            self.place += 2
            head = "(?:"
        else:
            self.groups += 1
        inner, empty = self.alternatives()
        if self._take() != ")":
            raise JavaRegexError("( without )")
        return f"{head}{inner})", empty

    def _escape(self) -> str:
        mark = self._take()
        if mark.lower() in _SETS:
            return f"[{'^' if mark.isupper() else ''}{_SETS[mark.lower()]}]"
        return re.escape(self._character(mark))

    def _character(self, mark: str) -> str:
        """Return the character that an escape stands for."""
        if mark in _CONTROLS:
            return _CONTROLS[mark]
        if mark.isascii() and not mark.isalnum():
            return mark
        raise JavaRegexError(f"\\{mark}")

    def _class(self) -> str:
        negated = self._next() == "^"
        self.place += negated
        parts = [self._items(first=True)]
        while self._is_intersection():
            self.place += 2
            parts.append(self._operand())
        self.place += 1
        if len(parts) == 1:
            return f"[{'^' if negated else ''}{parts[0]}]"
        classes = [each if each.startswith("(?") else f"[{each}]" for each in parts]
        both = "".join(f"(?={each})" for each in classes[:-1]) + classes[-1]
        return rf"(?:(?!{both})[\s\S])" if negated else f"(?:{both})"

    def _is_intersection(self) -> bool:
        return self.text[self.place : self.place + 2] == "&&"

    def _operand(self) -> str:
        """Read what follows && in a class: the characters of another class, or further ones."""
        if self._next() != "[":
            return self._items(first=False)
        self.place += 1
        inner = self._class()
        if self._next() != "]" and not self._is_intersection():
            raise JavaRegexError("a class within a class")
        return f"(?:{inner})"

    def _items(self, *, first: bool) -> str:
        """Read the characters of a class, up to its end or to &&."""
        made, count = "", 0
        while self._next() != "]" and not self._is_intersection():
            made += self._item(first=first and count == 0)
            count += 1
        if not count:
            raise JavaRegexError("a class of nothing")
        return made

    def _item(self, *, first: bool) -> str:
        mark = self._take()
        if mark == "\\":
            mark = self._take()
            if mark in _SETS:
                return _SETS[mark]
            low = self._character(mark)
        elif mark == "-":
            if not first and self._next() != "]":
                raise JavaRegexError("- between others in a class")
            return r"\-"
        elif mark == "[" or (mark == "^" and first):
            raise JavaRegexError(f"{mark} in a class")
        else:
            low = mark
        if self._next() != "-" or self.text[self.place + 1 : self.place + 2] == "]":
            return re.escape(low)
        self.place += 1
        high = self._take()
        if high == "\\":
            high = self._character(self._take())
        elif high == "[" or (high == "&" and self._next() == "&"):
            raise JavaRegexError(f"{high} in a class")
        if high < low:
            raise JavaRegexError(f"the range {low}-{high}")
        return f"{re.escape(low)}-{re.escape(high)}"
