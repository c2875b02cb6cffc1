"""Expressions: from sqlglot's trees to typed ones, and from those to Python and to Arrow.

Takes: an expression and the schema that its columns are of.
Gives: a filter or a projection in two forms, one for rows and one for Arrow batches, that agree.
Never knows: statements, where rows come from, what is done with those that stay.

The meaning is that of Spark SQL in ANSI mode. What cannot be answered exactly is refused when the
expression is bound, never answered nearly.

In the order of reading: ``nodes`` and ``type_rules``; ``bind`` and ``functions``, the registry; the
families ``literals``, ``numbers``, ``text``, ``times``, ``conditions`` and ``casts``, each with its
operations and their binding; ``fold``, which evaluates constants; ``to_python`` with ``runtime``,
``to_arrow`` with ``kernels``; ``compiled``, which the rest of the project uses.
"""

from millstream.sql.expressions.bind import bind
from millstream.sql.expressions.compiled import Predicate, Projection

__all__ = ["Predicate", "Projection", "bind"]
