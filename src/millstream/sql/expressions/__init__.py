"""Expressions: from sqlglot's trees to typed ones, and from those to Python and to Arrow.

Takes: an expression and the schema that its columns are of.
Gives: a filter or a projection in two forms, one for rows and one for Arrow batches, that agree.
Never knows: statements, where rows come from, what is done with those that stay.

The meaning is that of Spark SQL in ANSI mode. What cannot be answered exactly is refused when the
expression is bound, never answered nearly.
"""

from millstream.sql.expressions.bind import bind
from millstream.sql.expressions.compiled import Predicate, Projection

__all__ = ["Predicate", "Projection", "bind"]
