"""GTID positions, and what statements in the binary log do to a table. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal

_TABLE_DDL: Final = re.compile(
    r"(?:drop\s+table|rename\s+table|create\s+(?:or\s+replace\s+)?table)\b", re.IGNORECASE
)
_HARMLESS: Final = re.compile(
    r"(?:create\s+table\s+if\s+not\s+exists|create\s+(?:or\s+replace\s+)?temporary|drop\s+temporary|"
    r"analyze|optimize|flush|grant|revoke|savepoint|release|set)\b",
    re.IGNORECASE,
)
_DML: Final = re.compile(r"(?:insert|update|delete|replace|load)\b", re.IGNORECASE)
_REWRITES: Final = re.compile(
    r"\b(?:partition|modify|change|convert|discard|import|rename|drop\s+column)\b", re.IGNORECASE
)
_COMMENT: Final = re.compile(r"/\*.*?\*/|--[^\n]*\n?", re.DOTALL)

Effect = Literal["none", "truncate", "gone", "rewritten", "altered", "statement"]


def effect(sql: str, schema: str, database: str, table: str) -> Effect:
    """What a statement of the binary log does to a table.

    >>> effect("TRUNCATE TABLE `shop`.`orders`", "", "shop", "orders")
    'truncate'
    >>> effect("ALTER TABLE orders ADD n INT", "shop", "shop", "orders")
    'altered'
    >>> effect("ALTER TABLE other ADD n INT", "shop", "shop", "orders")
    'none'

    Args:
        sql: the statement.
        schema: the database it was run in.
        database: that of the table.
        table: the table's name.
    """
    text = _COMMENT.sub(" ", sql).strip()
    if re.match(rf"drop\s+(?:database|schema)\b.*\b{re.escape(database)}\b", text, re.IGNORECASE):
        return "gone"
    if not _mentions(text, schema, database, table) or _HARMLESS.match(text):
        return "none"
    if re.match(r"truncate\b", text, re.IGNORECASE):
        return "truncate"
    if _TABLE_DDL.match(text):
        created = re.match(r"create\b.*?\btable\s+([^\s(]+)", text, re.IGNORECASE)
        ours = created is None or _mentions(created[1], schema, database, table)
        return "gone" if ours else "none"
    if _DML.match(text):
        return "statement"
    return "rewritten" if _REWRITES.search(text) else "altered"


def _mentions(text: str, schema: str, database: str, table: str) -> bool:
    name = re.escape(table)
    pattern = rf"(?:`?([\w$]+)`?\s*\.\s*)?(?<![\w$`])(?:`{name}`|{name})(?![\w$`])"
    return (
        any(
            (found[1] or schema).lower() == database.lower()
            for found in re.finditer(pattern, text, re.IGNORECASE)
        )
        or f"`{database}`.`{table}`".lower() in text.lower()
    )


def with_mariadb_gtid(position: str, gtid: str) -> str:
    """A position of MariaDB after one more transaction: the last one of each domain.

    >>> with_mariadb_gtid("0-1-5,2-1-7", "0-3-6")
    '0-3-6,2-1-7'
    """
    last = {each.split("-")[0]: each for each in position.split(",") if each}
    last[gtid.split("-", maxsplit=1)[0]] = gtid
    return ",".join(last[domain] for domain in sorted(last, key=int))


def with_mysql_gtid(position: str, gtid: str) -> str:
    """A set of GTIDs of MySQL with one more.

    >>> with_mysql_gtid("a:1-4:7,b:1-9", "a:5")
    'a:1-5:7,b:1-9'
    """
    server, _, number = gtid.partition(":")
    sets = {each.split(":")[0]: each.split(":")[1:] for each in position.split(",") if each}
    spans = [tuple(map(int, (*span.split("-"), span)[:2])) for span in sets.get(server, [])
             if "-" in span]  # fmt: skip
    spans += [(int(span), int(span)) for span in sets.get(server, []) if "-" not in span]
    merged: list[list[int]] = []
    for first, last in sorted([*spans, (int(number), int(number))]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(last, merged[-1][1])
        else:
            merged.append([first, last])
    sets[server] = [str(a) if a == b else f"{a}-{b}" for a, b in merged]
    return ",".join(":".join((each, *spans)) for each, spans in sets.items())
