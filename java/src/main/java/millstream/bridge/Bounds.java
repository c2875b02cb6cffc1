package millstream.bridge;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.ArrayInsert;
import org.apache.spark.sql.catalyst.expressions.ArrayRepeat;
import org.apache.spark.sql.catalyst.expressions.BinaryPad;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.FormatNumber;
import org.apache.spark.sql.catalyst.expressions.FormatString;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Sequence;
import org.apache.spark.sql.catalyst.expressions.Stack;
import org.apache.spark.sql.catalyst.expressions.StringLPad;
import org.apache.spark.sql.catalyst.expressions.StringRPad;
import org.apache.spark.sql.catalyst.expressions.StringRepeat;
import org.apache.spark.sql.catalyst.expressions.StringSpace;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.CountMinSketchAgg;
import org.apache.spark.sql.catalyst.expressions.aggregate.HistogramNumeric;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Bounds the values of those functions that make one of any size out of a number. */
public final class Bounds {
  private Bounds() {}

  /**
   * A plan that raises an error instead of making a value that is too large. It is the plan itself
   * when the text of the query says how large its values are.
   *
   * @throws RuntimeException a value that the query itself gives is too large.
   */
  public static LogicalPlan of(LogicalPlan plan) {
    return plan.transformUpWithSubqueries(new OfNode());
  }

  private static final class OfNode extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override
    public boolean isDefinedAt(LogicalPlan node) {
      return true;
    }

    @Override
    @SuppressWarnings("unchecked") // a plan is replaced by a plan
    public <A extends LogicalPlan, B> B applyOrElse(A node, Function1<A, B> other) {
      return (B) node.mapExpressions(each -> bounded(each, Sizes.MOST));
    }
  }

  private static Expression bounded(Expression expression, long most) {
    long inner = expression instanceof LambdaFunction ? Sizes.MOST_EACH : most;
    boolean changed = false;
    List<Expression> children = new ArrayList<>();
    for (Expression child : CollectionConverters.asJava(expression.children())) {
      Expression bounded = bounded(child, inner);
      children.add(bounded);
      changed |= bounded != child;
    }
    Expression made = expression;
    if (changed) made = expression.withNewChildren(seq(children));
    String kind = kind(made);
    return kind == null ? made : wrapped(made, kind, given(made), most);
  }

  private static String kind(Expression made) {
    if (made instanceof StringRepeat) return "repeat";
    if (made instanceof Sequence) return "sequence";
    if (made instanceof ArrayRepeat) return "array_repeat";
    if (made instanceof StringSpace) return "space";
    if (made instanceof StringLPad) return "lpad";
    if (made instanceof StringRPad) return "rpad";
    if (made instanceof BinaryPad) return "lpad";
    if (made instanceof ArrayInsert) return "array_insert";
    if (made instanceof FormatString) return "format_string";
    if (made instanceof FormatNumber) return "format_number";
    if (made instanceof Stack) return "stack";
    if (made instanceof CountMinSketchAgg) return "count_min_sketch";
    return made instanceof HistogramNumeric ? "histogram_numeric" : null;
  }

  /** What says how large a value of a function is. */
  private static List<Expression> given(Expression made) {
    int[] places = {1};
    if (made instanceof StringRepeat) {
      places = new int[] {0, 1};
    } else if (made instanceof CountMinSketchAgg) {
      places = new int[] {1, 2};
    } else if (made instanceof StringSpace
        || made instanceof FormatString
        || made instanceof Stack) {
      places = new int[] {0};
    } else if (made instanceof Sequence sequence) {
      places = sequence.stepOpt().isDefined() ? new int[] {0, 1, 2} : new int[] {0, 1};
    }
    return IntStream.of(places).mapToObj(made.children()::apply).toList();
  }

  private static Expression wrapped(
      Expression made, String kind, List<Expression> given, long most) {
    DataType[] types = given.stream().map(Expression::dataType).toArray(DataType[]::new);
    Sizes sizes = new Sizes(kind, types, most);
    Object[] values = given.stream().allMatch(Expression::foldable) ? values(given) : null;
    if (values != null) sizes.check(values);
    boolean isValue = !(made instanceof Stack || made instanceof AggregateFunction);
    if (values != null || !isValue) return made;
    List<Expression> children = new ArrayList<>(given);
    children.add(0, made);
    return new Sized(sizes, seq(children));
  }

  /** The values of constants; null when one has none, which is an error only if it is asked for. */
  private static Object[] values(List<Expression> constants) {
    try {
      return constants.stream().map(each -> each.eval(null)).toArray();
    } catch (RuntimeException thrown) {
      return null;
    }
  }

  private static Seq<Expression> seq(List<Expression> items) {
    return CollectionConverters.asScala(items).toSeq();
  }
}
