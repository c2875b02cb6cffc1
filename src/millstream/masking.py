"""Masking: texts that may be shown, without the passwords in them. Pure.

What is shown is listed, and the rest is masked: the value of an option whose name is misspelt may
be a password, and so may whatever stands where a list of options cannot be read.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

MASK: Final = "***"

_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^}]+\}")
_SECRET_NAME: Final = re.compile(
    r"(?:pass|pwd|secret|token|key|pem|credential)[^.]*$|oauthbearer\.config$", re.IGNORECASE
)
_URL_USER: Final = re.compile(
    r"(?P<head>\b(?!abfs|wasb)[a-z][a-z0-9+.-]*://"  # whose users are containers
    r"(?:[^\s:/@?#']*:(?=[^\s']*@))?)(?P<password>(?<=://)[^\s:/?#']*|(?<!://)[^\s']*)@",
    re.IGNORECASE,
)
_PARAMETER: Final = re.compile(
    r"(?P<head>\b[\w.-]*(?:pass|pwd|secret|token|key|sig|auth|credential)[\w.-]*\s?=\s?)"
    r"(?P<password>'(?:[^'\\]|\\.|'')*'?|[^\s&;#']+)",
    re.IGNORECASE,
)

_OPTIONS: Final = re.compile(
    r"\bWITH\s*\(|\bWITH\s+(?=[\w.-]+\s*=)|\b(?:FROM|TO)\s+'(?:[^']|'')*'\s*(?:OPTIONS\s*)?\(",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(
    r"(?P<comment>(?:[\s*]|--[^\n]*(?:\n|$)|/\*(?s:.*?)\*/)*)"
    r"(?P<name>(?P<key>[\w.-]+|\"[\w.-]+\"|'[\w.-]+')\s*=\s*)"
    r"(?P<value>'(?:[^']|'')*'|[+-]?[\w.]+|\*+)(?P<end>\s*(?:[,)]|$))"
)
_NAME: Final = re.compile(r"\s*(?:[\w.-]+\s*=\s*'?)?")
_SHOWN: Final = frozenset(
    (
        *("connector", "format", "mode", "start", "table", "retention", "retention_bytes"),
        *(
            "wal_mode",
            "backpressure",
            "buffer_size",
            "tenant",
            "rate_limit",
            "batch_rows",
            "batch_delay",
        ),
        *("retry_delay", "retry_max_delay", "retry_limit", "retry_rest", "dead_letters"),
        *("header", "delimiter", "null", "replace", "atomic"),
    )
)


def looks_secret(name: str) -> bool:
    """Whether the value of an option with such a name is a secret.

    >>> looks_secret("kafka.sasl.passwort"), looks_secret("kafka.group.id")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def is_reference(value: object) -> bool:
    """Whether a value only says where a secret is: ``${env:NAME}``, ``${file:/path}``.

    >>> is_reference("${env:PGPASSWORD}"), is_reference("hunter2")
    (True, False)
    """
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def mask_url(text: str) -> str:
    """A text without the passwords of the URLs in it; references are no secret.

    >>> mask_url("postgresql://app:hunter2@db/shop")
    'postgresql://app:***@db/shop'
    >>> mask_url("https://host/hook?id=7&token=hunter2"), mask_url("host=db password=hunter2")
    ('https://host/hook?id=7&token=***', 'host=db password=***')
    """

    def shown(found: re.Match[str]) -> str:
        return found["password"] if is_reference(found["password"]) else MASK

    text = _URL_USER.sub(lambda found: f"{found['head']}{shown(found)}@", text)
    return _PARAMETER.sub(lambda found: f"{found['head']}{shown(found)}", text)


def passwords_in(text: str) -> set[str]:
    """The passwords of the URLs in a text, as they are written and as they are meant.

    >>> sorted(passwords_in("pg://app:a%40b@db"))
    ['a%40b', 'a@b']
    """
    both = (*_URL_USER.finditer(text), *_PARAMETER.finditer(text))
    found = {each["password"].strip("'") for each in both if not is_reference(each["password"])}
    return found | {unquote(each) for each in found}


def without_secrets(sql: str) -> str:
    """A text of SQL in which passwords are stars, as many as they have letters.

    Shown are the values of few options; masked are those of the others, and of a list of options
    that cannot be read all that follows.

    >>> print(without_secrets("CREATE SINK s FROM t WITH (connector = 'x', pasword = 'hunter2')"))
    CREATE SINK s FROM t WITH (connector = 'x', pasword = '*******')
    >>> print(without_secrets("COPY t FROM 's3://key:word@bucket/x.csv'"))
    COPY t FROM 's3://key:****@bucket/x.csv'
    """
    masked, at = "", 0
    while found := _OPTIONS.search(sql, at):
        masked += sql[at : found.end()]
        options, at = _masked_options(sql, found.end())
        masked += options
    return _URL_USER.sub(lambda url: f"{url['head']}{_stars(url['password'])}@", masked + sql[at:])


def _masked_options(sql: str, at: int) -> tuple[str, int]:
    """The options from an offset on, and where they end."""
    masked = ""
    while found := _OPTION.match(sql, at):
        value = found["value"]
        is_plain = found["key"].strip("\"'").lower() in _SHOWN and "=" not in value
        is_shown = is_plain or is_reference(value.strip("'"))
        masked += (
            _stars(found["comment"])
            + found["name"]
            + (value if is_shown else _stars(value))
            + found["end"]
        )
        at = found.end()
        if "," not in found["end"]:
            return masked, at
    name = _NAME.match(sql, at)
    head = name.group() if name is not None else ""
    return masked + head + _stars(sql[at + len(head) :]), len(sql)


def _stars(text: str) -> str:
    """A text as stars; its quotes and its lines stay."""
    if is_reference(text):
        return text
    quote = "'" if text[:1] == "'" and text[-1:] == "'" and len(text) > 1 else ""
    inner = text[1:-1] if quote else text
    return quote + re.sub(r"\S", "*", inner) + quote
