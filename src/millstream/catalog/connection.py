"""``Connection``: which connector feeds or drains an object, with its options; what may be shown.

Secrets that were written as such are kept, for the next start, and never shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OptionValue = str | int | float | bool

MASK: Final = "***"
DEAD_LETTERS: Final = "dead-letters"
"""The connector of a log that another connector writes what it rejects to."""

_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^}]+\}")
_URL_USER: Final = re.compile(
    r"(?P<head>[a-z][a-z0-9+.-]*://)(?P<user>[^\s:/@?#']*:)?(?P<password>[^\s/?#']*)@",
    re.IGNORECASE,
)
_PARAMETER: Final = re.compile(
    r"(?P<head>\b[\w.-]*(?:pass|pwd|secret|token|key|sig|auth|credential)[\w.-]*=)"
    r"(?P<password>[^\s&;#']+)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Connection:
    """The connector of a source, a table or a sink.

    Attributes:
        connector: its name.
        options: those of its WITH, as they were written; not those of the database.
        secrets: the names of the options that are secret.
        writable: whether INSERT, UPDATE, DELETE and push are allowed beside it.
        paused: whether it is stopped until RESUME.
        dead_letters: the log of what it rejects; empty when it has none.
    """

    connector: str
    options: Mapping[str, OptionValue] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    secrets: tuple[str, ...] = ()
    writable: bool = False
    paused: bool = False
    dead_letters: str = ""

    @property
    def shown(self) -> dict[str, OptionValue]:
        """The options, secrets masked, ``connector`` first: as SHOW CREATE writes them."""
        masked = {
            name: mask_value(value, secret=name in self.secrets)
            for name, value in self.options.items()
        }
        return {"connector": self.connector, **masked}

    def to_json(self) -> dict[str, Any]:
        """What the catalog keeps of it."""
        return {
            "connector": self.connector,
            "options": dict(self.options),
            "secrets": list(self.secrets),
            "writable": self.writable,
            "paused": self.paused,
            "dead_letters": self.dead_letters,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Connection:
        """What ``to_json`` has written."""
        options = MappingProxyType(dict(entry["options"]))
        return cls(**{**entry, "options": options, "secrets": tuple(entry["secrets"])})


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

    text = _URL_USER.sub(lambda found: f"{found['head']}{found['user'] or ''}{shown(found)}@", text)
    return _PARAMETER.sub(lambda found: f"{found['head']}{shown(found)}", text)


def mask_value(value: OptionValue, *, secret: bool) -> OptionValue:
    """The value of an option as it may be shown."""
    if secret and value != "" and not is_reference(value):
        return MASK
    return mask_url(value) if isinstance(value, str) else value
