"""Objects of Spark's own, made from Python: what its plans and expressions are built of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Scala:
    """Makes them.

    Attributes:
        jvm: all classes.
        dataflow: the classes of operators, and of what they are made of.
        catalyst: those of Spark's plans and expressions.
        nothing: an Option without a value.
    """

    def __init__(self, jvm: Any) -> None:  # noqa: ANN401
        self.dataflow = jvm.millstream.dataflow
        self.catalyst = jvm.org.apache.spark.sql.catalyst
        self.nothing = jvm.scala.Option.empty()
        self.jvm = jvm

    def alias(self, expression: Any, column: Any = None) -> Any:  # noqa: ANN401
        """An expression under a name: a new column, or the one that is given."""
        expressions, none = self.catalyst.expressions, self.seq([])
        new = expressions.NamedExpression.newExprId() if column is None else column.exprId()
        return expressions.Alias(expression, "value", new, none, self.nothing, none)

    def array(self, items: Sequence[Any]) -> Any:  # noqa: ANN401
        """A list of Java's."""
        made = self.jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made

    def literal(self, value: int | str | bool) -> Any:  # noqa: ANN401
        """An expression that is a value: INT, STRING or BOOLEAN."""
        literals = getattr(self.catalyst.expressions, "Literal$").__getattr__("MODULE$")
        return literals.apply(value)

    def all_of(self, conditions: Sequence[Any]) -> Any:  # noqa: ANN401
        """The condition that all of some hold: true without any."""
        expressions, made = self.catalyst.expressions, self.literal(value=True)
        for place, each in enumerate(conditions):
            made = expressions.And(made, each) if place else each
        return made

    def seq(self, items: Sequence[Any]) -> Any:  # noqa: ANN401
        """A Seq of Scala's."""
        return self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(self.array(items)).toSeq()
