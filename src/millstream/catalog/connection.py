"""``Connection``: which connector feeds or drains an object, with its options; what may be shown.

Secrets that were written as such are kept, for the next start, and never shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from millstream.masking import MASK, is_reference, mask_url

if TYPE_CHECKING:
    from collections.abc import Mapping

OptionValue = str | int | float | bool

DEAD_LETTERS: Final = "dead-letters"
"""The connector of a log that another connector writes what it rejects to."""


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


def mask_value(value: OptionValue, *, secret: bool) -> OptionValue:
    """The value of an option as it may be shown."""
    if secret and value != "" and not is_reference(value):
        return MASK
    return mask_url(value) if isinstance(value, str) else value
