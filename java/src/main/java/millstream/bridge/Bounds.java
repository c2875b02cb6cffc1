package millstream.bridge;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
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
    return (LogicalPlan) plan.transformUpWithSubqueries(new OfNode());
  }

  private static final class OfNode extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return true;
    }

    public Object applyOrElse(Object node, scala.Function1 other) {
      return ((LogicalPlan) node).mapExpressions(new OfExpression());
    }
  }

  private static final class OfExpression extends scala.runtime.AbstractFunction1 {
    public Object apply(Object expression) {
      return bounded((Expression) expression, Sizes.MOST);
    }
  }

  private static Expression bounded(Expression expression, long most) {
    long inner = expression instanceof LambdaFunction ? Sizes.MOST_EACH : most;
    boolean changed = false;
    Object[] children = new Object[expression.children().size()];
    for (int i = 0; i < children.length; i++) {
      Expression child = (Expression) expression.children().apply(i);
      children[i] = bounded(child, inner);
      changed |= children[i] != child;
    }
    Expression made = expression;
    if (changed) made = (Expression) expression.withNewChildren(seq(children));
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
  private static Expression[] given(Expression made) {
    Seq children = made.children();
    int[] places = {1};
    if (made instanceof StringRepeat) places = new int[] {0, 1};
    else if (made instanceof CountMinSketchAgg) places = new int[] {1, 2};
    else if (made instanceof StringSpace || made instanceof FormatString || made instanceof Stack) {
      places = new int[] {0};
    } else if (made instanceof Sequence) {
      places = ((Sequence) made).stepOpt().isDefined() ? new int[] {0, 1, 2} : new int[] {0, 1};
    }
    Expression[] given = new Expression[places.length];
    for (int i = 0; i < places.length; i++) given[i] = (Expression) children.apply(places[i]);
    return given;
  }

  private static Expression wrapped(Expression made, String kind, Expression[] given, long most) {
    DataType[] types = new DataType[given.length];
    List children = new ArrayList();
    children.add(made);
    boolean known = true;
    for (int i = 0; i < given.length; i++) {
      types[i] = given[i].dataType();
      children.add(given[i]);
      known &= given[i].foldable();
    }
    Sizes sizes = new Sizes(kind, types, most);
    Object[] values = known ? values(given) : null;
    if (values != null) sizes.check(values);
    boolean isValue = !(made instanceof Stack || made instanceof AggregateFunction);
    return values == null && isValue ? new Sized(sizes, seq(children.toArray())) : made;
  }

  /** The values of constants; null when one has none, which is an error only if it is asked for. */
  private static Object[] values(Expression[] constants) {
    Object[] values = new Object[constants.length];
    try {
      for (int i = 0; i < values.length; i++) values[i] = constants[i].eval(null);
    } catch (RuntimeException thrown) {
      return null;
    }
    return values;
  }

  private static Seq seq(Object[] items) {
    return CollectionConverters.asScala(Arrays.asList(items)).toSeq();
  }
}
