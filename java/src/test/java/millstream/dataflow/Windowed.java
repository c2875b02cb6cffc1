package millstream.dataflow;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.CurrentRow$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.FrameType;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.RowFrame$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.SpecifiedWindowFrame;
import org.apache.spark.sql.catalyst.expressions.UnboundedPreceding$;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.WindowFrame;
import org.apache.spark.sql.catalyst.expressions.WindowSpecDefinition;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Complete$;
import scala.Option;

/** Window functions, as Spark's analysis makes them. */
final class Windowed {
  private Windowed() {}

  static SortOrder ascending(Expression by) {
    return new SortOrder(by, Ascending$.MODULE$, NullsFirst$.MODULE$, Columns.seq(List.of()));
  }

  /** A function over the rows of a partition in order, as a column. */
  static NamedExpression over(Expression function, SortOrder order, WindowFrame frame) {
    WindowSpecDefinition window =
        new WindowSpecDefinition(Columns.seq(List.of()), Columns.seq(List.of(order)), frame);
    return new Alias(
        new WindowExpression(function, window),
        "w",
        NamedExpression.newExprId(),
        Columns.seq(List.of()),
        Option.empty(),
        Columns.seq(List.of()));
  }

  static Expression aggregate(AggregateFunction function) {
    return new AggregateExpression(
        function, Complete$.MODULE$, false, Option.empty(), NamedExpression.newExprId());
  }

  /** The frame from the first row to the one at hand. */
  static WindowFrame running(FrameType type) {
    return new SpecifiedWindowFrame(type, UnboundedPreceding$.MODULE$, CurrentRow$.MODULE$);
  }

  static WindowFrame rows(Expression from, Expression to) {
    return new SpecifiedWindowFrame(RowFrame$.MODULE$, from, to);
  }
}
