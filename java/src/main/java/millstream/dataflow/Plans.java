package millstream.dataflow;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.expressions.SortArray;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.CollectList;
import org.apache.spark.sql.catalyst.expressions.aggregate.CollectSet;
import org.apache.spark.sql.catalyst.expressions.aggregate.ListAgg;
import org.apache.spark.sql.catalyst.expressions.aggregate.Mode;
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Questions that Python asks about a plan, each in one call. */
public final class Plans {
  private Plans() {}

  /** The name of an object's class, without its package. */
  public static String kind(Object object) {
    return object.getClass().getSimpleName();
  }

  /** The names of the classes of all expressions in a plan and its subqueries, spaces between. */
  public static String expressions(LogicalPlan plan) {
    Set<String> names = new TreeSet<>();
    for (LogicalPlan each : all(plan)) addAll(each.expressions(), names);
    return String.join(" ", names);
  }

  private static void addAll(Seq<Expression> expressions, Set<String> names) {
    for (Expression each : asJava(expressions)) add(each, names);
  }

  private static void add(Expression expression, Set<String> names) {
    if (expression instanceof WindowExpression window) {
      addWindow(window, names);
      return;
    }
    if (!hasOrder(expression)) names.add(kind(expression));
    for (Expression child : asJava(expression.children())) {
      if (expression instanceof SortArray
          && child instanceof AggregateExpression aggregate
          && isCollect(aggregate.aggregateFunction())) {
        addAll(aggregate.aggregateFunction().children(), names);
        addAll(aggregate.filter().toList(), names);
      } else {
        add(child, names);
      }
    }
  }

  /** Whether it is a list of values, which has one order once it is sorted. */
  private static boolean isCollect(Expression function) {
    return function instanceof CollectList || function instanceof CollectSet;
  }

  /** Whether an aggregate that goes by the order of its input says which one. */
  private static boolean hasOrder(Expression function) {
    if (function instanceof ListAgg list) return list.orderingFilled();
    return function instanceof Mode mode && mode.reverseOpt().isDefined();
  }

  /** Of a function over rows in an order the result has one order of its input. */
  private static void addWindow(WindowExpression window, Set<String> names) {
    Expression function = window.windowFunction();
    if (function instanceof AggregateExpression aggregate) function = aggregate.aggregateFunction();
    boolean ordered = hasOrder(function) || !window.windowSpec().orderSpec().isEmpty();
    if (!ordered) names.add(kind(function));
    addAll(function.children(), names);
    addAll(window.windowSpec().children(), names);
  }

  /**
   * The casts of text to another type that Spark has inserted in a plan, and that may fail: for
   * each a line with the type, a tab, and the first column in the text, if there is one.
   */
  public static String implicitCasts(LogicalPlan plan) {
    Set<String> found = new TreeSet<>();
    for (LogicalPlan each : all(plan)) {
      for (Expression expression : asJava(each.expressions())) addCasts(expression, found);
    }
    return String.join("\n", found);
  }

  private static void addCasts(Expression expression, Set<String> found) {
    if (expression instanceof Cast cast && isImplicit(cast)) {
      Iterator<Attribute> columns = cast.child().references().iterator();
      found.add(cast.dataType().sql() + "\t" + (columns.hasNext() ? columns.next().name() : ""));
    }
    for (Expression child : asJava(expression.children())) {
      // TO_DATE(text) is a cast, which its author has written.
      boolean isWritten = expression instanceof RuntimeReplaceable;
      addCasts(isWritten && child instanceof Cast cast ? cast.child() : child, found);
    }
  }

  private static boolean isImplicit(Cast cast) {
    boolean ofText = cast.child().dataType() instanceof StringType;
    DataType type = cast.dataType();
    if (!ofText || type instanceof StringType || type instanceof BinaryType) return false;
    if (cast.getTagValue(Cast$.MODULE$.USER_SPECIFIED_CAST()).isDefined()) return false;
    return !isCall(cast) && !isValid(cast);
  }

  /** Whether a cast was written as a function: INT(text). */
  private static boolean isCall(Cast cast) {
    QueryContext written = cast.origin().context();
    if (written == null) return false;
    String name = cast.dataType().sql().split("\\(")[0];
    return written.fragment().matches("(?is)`?" + name + "`?\\s*\\(.*\\)");
  }

  /** Whether a cast is of a constant that the type has. */
  private static boolean isValid(Cast cast) {
    if (!(cast.child() instanceof Literal)) return cast.child().foldable();
    try {
      cast.eval(null);
      return true;
    } catch (RuntimeException error) {
      return false;
    }
  }

  /** Which columns of each RDD of a plan are used: in a line for each its id and their places. */
  public static String used(LogicalPlan plan) {
    Set<Long> ids = new HashSet<>();
    addIds(plan.output().iterator(), ids);
    List<LogicalPlan> plans = all(plan);
    for (LogicalPlan each : plans) {
      addIds(each.references().iterator(), ids);
      boolean byPlace = each instanceof Union; // which refers to no column by its name
      if (byPlace) asJava(each.children()).forEach(one -> addIds(one.output().iterator(), ids));
      for (LogicalPlan one : Plans.<LogicalPlan>asJava(each.subqueries())) {
        addIds(one.output().iterator(), ids);
      }
    }
    StringBuilder found = new StringBuilder();
    for (LogicalPlan each : plans) {
      if (!(each instanceof LogicalRDD leaf)) continue;
      found.append(leaf.rdd().id());
      for (int i = 0; i < leaf.output().size(); i++) {
        if (ids.contains(leaf.output().apply(i).exprId().id())) found.append(' ').append(i);
      }
      found.append('\n');
    }
    return found.toString();
  }

  private static void addIds(Iterator<Attribute> attributes, Set<Long> ids) {
    while (attributes.hasNext()) ids.add(attributes.next().exprId().id());
  }

  /** A key in the form that equal keys have in common: as to -0.0 and the kinds of NaN. */
  public static Expression normalized(Expression key) {
    return NormalizeFloatingNumbers$.MODULE$.normalize(key);
  }

  /** A plan and all plans in it, those of subqueries included. */
  private static List<LogicalPlan> all(LogicalPlan plan) {
    List<LogicalPlan> found = new ArrayList<>();
    Deque<LogicalPlan> left = new ArrayDeque<>(List.of(plan));
    while (!left.isEmpty()) {
      LogicalPlan next = left.poll();
      found.add(next);
      left.addAll(asJava(next.children()));
      left.addAll(Plans.<LogicalPlan>asJava(next.subqueries()));
    }
    return found;
  }

  private static <T> List<T> asJava(Seq<T> items) {
    return CollectionConverters.asJava(items);
  }
}
