"""Expressions drawn at random, over the columns of a row, and with its values instead."""

from __future__ import annotations

from sqlglot import TokenType
from tests.on_spark import functions
from tests.on_spark.functions import FORMS, SCHEMA

from millstream.sql.dialect import Millstream
from millstream.sql.function_names import COUNTS
from millstream.sql.statements.parameters import literal, text_of

_NESTED = {"st", "xs", "kv"}


def drawn_selects(rows, dice, most):
    """Of each function some calls: the number of a row, the call, and the call of constants."""
    for name, texts in functions.forms({*COUNTS}).items():
        if name in FORMS and ("." in FORMS[name] or "[" in FORMS[name]):
            continue
        for sql, _ in functions.draw(name, texts, dice, 10, most):
            place = dice.randrange(len(rows))
            constant = with_values(sql, rows[place])
            if constant is not None:
                yield place, sql, constant


def with_values(sql, row):
    """A call with the values of a row for its columns; None if these have no literals."""
    values = dict(zip(SCHEMA.names, row, strict=True))
    types = {column.name: column.type.sql for column in SCHEMA.columns}
    made, end = [], 0
    for token in Millstream().tokenize(sql):
        text = sql[token.start : token.end + 1]
        if token.token_type in {TokenType.STRING, TokenType.IDENTIFIER} or text not in values:
            continue
        if text in _NESTED:
            return None
        if sql[end : token.start].endswith("."):
            continue
        made += [sql[end : token.start], f"CAST({text_of(literal(values[text]))} AS {types[text]})"]
        end = token.end + 1
    return "".join([*made, sql[end:]])
