"""Regular expressions of Java: what is taken means the same in Python, the rest is refused."""

import contextlib
import threading

import pytest

from millstream.errors import ExpressionError, SqlUnsupportedError
from millstream.model import Schema
from millstream.sql.expressions import bind, java_regex
from millstream.sql.expressions.java_regex import JavaRegexError, read_regex
from millstream.sql.statements.parse import parse_expression
from millstream.testing import TIMEOUT

SCHEMA = Schema.of(s="VARCHAR", u="VARCHAR")


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"\bword\b",
            r"(a)\1",
            "(?=a)b",
            "(?<!a)b",
            "(?<name>a)",
            "a(?i)b",
            "(?s).",
            "a++",
            "a*+",
        ),
        *("(a*)*", "(a|)+", "(?:a?)+", "^*", "$+", "()+", "a*+", "a**", "a+{2}", "a+??", "a{"),
        *("a{3,2}", "a{1000}", "*a", "+", "(a", "a)", "[a", "[]", "[]a]", "[^]", "[z-a]"),
        *("a{,3}", "[&&a]", "[a&&]", "[a-c&&[b]d]", "[%-&&a]", "[a-z&&-b]"),
        *(
            "[[a]b]",
            "[a-c-e]",
            "[^^]",
            r"[\D]",
            r"\Qa.b\E",
            r"\p{L}",
            r"\x41",
            "\\u0041",
            "a]",
            "}",
        ),
        *("\\", "[\\", "[a-", r"\A", r"\z", r"\R", r"\h"),
    ],
)
def test_refused(pattern):
    with pytest.raises(JavaRegexError):
        read_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "groups", "repeated", "empty"),
    [
        ("", 0, set(), True),
        ("^$", 0, set(), True),
        ("a|b", 0, set(), False),
        ("a|", 0, set(), True),
        ("(a)(?:b)(c)?", 2, set(), False),
        ("((a)b)+(c){2}", 3, {1, 2, 3}, False),
        ("(?i)a{0,2}", 0, set(), True),
    ],
)
def test_what_is_known_of_it(pattern, groups, repeated, empty):
    regex = read_regex(pattern)
    assert (regex.groups, regex.repeated, regex.empty) == (groups, repeated, empty)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("[a&b]", "&ab"),
        ("[%-&]", "%&"),
        ("[a&&b]", ""),
        ("[a-f&&[^be]]", "acdf"),
        ("[a-f&&c-z]", "cdef"),
        ("[a-f&&[b-z]&&[^c]]", "bdef"),
        ("[^ -`&&[^B]&&[^{-~]]", "Babcdefghijklmnopqrstuvwxyz{|}~"),
        (r"[\w&&[^\da-z]&&[^D-Z]]", "ABC_"),
        ("(?i)[a-d&&[^b]]", "ACDacd"),
    ],
)
def test_classes(pattern, matches):
    """What Java's own matches, of the characters of ASCII."""
    python = read_regex(pattern).python
    assert "".join(filter(python.search, map(chr, range(32, 127)))) == matches


@pytest.mark.parametrize(
    ("pattern", "short"),
    [
        *[("abc", None), ("[a-z]$", None), ("^a|b", 499_999), ("a?b", 499_999), ("a+b", 999)],
        *[(".*a.*", 98), ("a{3}", 999), ("(a|b)+", 0), ("(a+)+", 0), ("(a?b)*", 0), ("(ab)+", 999)],
        ("a?" * 30, 0),
    ],
)
def test_what_may_take_long_is_known(pattern, short):
    """Up to that length of a text, a match is looked for with no eye on the time."""
    python = read_regex(pattern).python
    assert (python._short, python.is_bounded) == (short, short is not None)


SLOW = [
    ("(a|aa)+$", "a" * 60 + "b"),
    ("(a|a)*b", "a" * 60 + "c"),
    ("a+b", "a" * 1_000_000),
    ("a?" * 40 + "a" * 40 + "b", "a" * 40),
]


@pytest.fixture
def given_up_soon(monkeypatch):
    monkeypatch.setattr(java_regex, "_SECONDS", 0.1)


@pytest.mark.usefixtures("given_up_soon")
@pytest.mark.parametrize(("pattern", "text"), SLOW)
def test_a_match_that_takes_long_is_given_up_while_others_go_on(pattern, text):
    python = read_regex(pattern).python
    for match in (
        lambda: python.search(text),
        lambda: python.find_all(text),
        lambda: python.replace(lambda _: "", text),
    ):
        beats, done = [], threading.Event()
        beating = threading.Thread(target=lambda: beat(beats, done))
        beating.start()
        with contextlib.suppress(ExpressionError):  # it may be found to have no match in time
            match()
        done.set()
        beating.join(TIMEOUT)
    assert beats


def beat(beats, done):
    while not done.is_set():
        beats.append(len(beats))
        done.wait(0.001)


@pytest.mark.usefixtures("given_up_soon")
def test_what_is_given_up_says_why():
    with pytest.raises(ExpressionError, match="takes too long for a text of 1000000 characters"):
        read_regex("a+b").python.search("a" * 1_000_000)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("s RLIKE u", "must be a constant"),
        ("REGEXP_LIKE(s, 'a++')", "a possessive quantifier"),
        ("REGEXP_COUNT(s, 'a*')", "can match nothing"),
        ("REGEXP_REPLACE(s, 'a?', '')", "can match nothing"),
        ("SPLIT(s, '')", "can match nothing"),
        ("REGEXP_EXTRACT(s, 'a')", "there is no group 1"),
        ("REGEXP_EXTRACT(s, '(a)+', 1)", "a quantifier repeats it"),
        ("REGEXP_EXTRACT(s, '(a)', LENGTH(u))", "a constant number"),
        ("REGEXP_REPLACE(s, '(a)', '$2')", r"\$2 in what replaces it"),
        ("REGEXP_REPLACE(s, '(a)', '$12')", r"\$1 in what replaces it"),
        ("REGEXP_REPLACE(s, '(a)', '${x}')", r"\$ in what replaces it"),
        (r"REGEXP_REPLACE(s, 'a', 'b\\')", "in what replaces it"),
        ("REGEXP_REPLACE(s, 'a', u)", "must be a constant"),
    ],
)
def test_refused_with_a_hint(sql, message):
    with pytest.raises(SqlUnsupportedError, match=message) as caught:
        bind(parse_expression(sql), SCHEMA, sql=sql)
    assert caught.value.hint
