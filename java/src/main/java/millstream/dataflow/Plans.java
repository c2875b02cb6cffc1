package millstream.dataflow;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
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

/** What is asked of a plan, in one call each. */
public final class Plans {
  private Plans() {}

  /** The name of an object's class, without its package. */
  public static String kind(Object object) {
    return object.getClass().getSimpleName();
  }

  /** The names of the classes of all expressions in a plan and its subqueries, spaces between. */
  public static String expressions(LogicalPlan plan) {
    TreeSet names = new TreeSet();
    ArrayList plans = all(plan);
    for (int i = 0; i < plans.size(); i++) {
      Iterator each = ((LogicalPlan) plans.get(i)).expressions().iterator();
      while (each.hasNext()) add((Expression) each.next(), names);
    }
    return String.join(" ", names);
  }

  private static void add(Expression expression, TreeSet names) {
    if (expression instanceof WindowExpression) {
      addWindow((WindowExpression) expression, names);
      return;
    }
    if (!hasOrder(expression)) names.add(expression.getClass().getSimpleName());
    boolean sorts = expression instanceof SortArray;
    Iterator each = expression.children().iterator();
    while (each.hasNext()) {
      Expression child = (Expression) each.next();
      if (sorts && child instanceof AggregateExpression && isCollect((AggregateExpression) child)) {
        addAll(((AggregateExpression) child).aggregateFunction().children(), names);
        addAll(((AggregateExpression) child).filter().toList(), names);
      } else {
        add(child, names);
      }
    }
  }

  private static void addAll(scala.collection.immutable.Seq expressions, TreeSet names) {
    Iterator each = expressions.iterator();
    while (each.hasNext()) add((Expression) each.next(), names);
  }

  /** Whether it is a list of values, which has one order once it is sorted. */
  private static boolean isCollect(AggregateExpression expression) {
    Expression function = expression.aggregateFunction();
    return function instanceof CollectList || function instanceof CollectSet;
  }

  /** Whether an aggregate that goes by the order of its input says which one. */
  private static boolean hasOrder(Expression function) {
    if (function instanceof ListAgg) return ((ListAgg) function).orderingFilled();
    return function instanceof Mode && ((Mode) function).reverseOpt().isDefined();
  }

  /** Of a function over rows in an order the result has one order of its input. */
  private static void addWindow(WindowExpression window, TreeSet names) {
    Expression function = window.windowFunction();
    if (function instanceof AggregateExpression) {
      function = ((AggregateExpression) function).aggregateFunction();
    }
    boolean ordered = hasOrder(function) || !window.windowSpec().orderSpec().isEmpty();
    if (!ordered) names.add(function.getClass().getSimpleName());
    Iterator inputs = function.children().iterator();
    while (inputs.hasNext()) add((Expression) inputs.next(), names);
    Iterator each = window.windowSpec().children().iterator();
    while (each.hasNext()) add((Expression) each.next(), names);
  }

  /**
   * The casts of text to another type that Spark has inserted in a plan, and that may fail: a text
   * line for each, with the type, a tab, and the first column in the text, if there is one.
   */
  public static String implicitCasts(LogicalPlan plan) {
    TreeSet found = new TreeSet();
    ArrayList plans = all(plan);
    for (int i = 0; i < plans.size(); i++) {
      Iterator each = ((LogicalPlan) plans.get(i)).expressions().iterator();
      while (each.hasNext()) addCasts((Expression) each.next(), found);
    }
    return String.join("\n", found);
  }

  private static void addCasts(Expression expression, TreeSet found) {
    if (expression instanceof Cast && isImplicit((Cast) expression)) {
      Expression text = ((Cast) expression).child();
      Iterator columns = text.references().iterator();
      String column = columns.hasNext() ? ((Attribute) columns.next()).name() : "";
      found.add(expression.dataType().sql() + "\t" + column);
    }
    Iterator each = expression.children().iterator();
    while (each.hasNext()) {
      Expression child = (Expression) each.next();
      // TO_DATE(text) is a cast, which its author has written.
      boolean written = expression instanceof RuntimeReplaceable && child instanceof Cast;
      addCasts(written ? ((Cast) child).child() : child, found);
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
    HashSet ids = new HashSet();
    addAll(plan.output().iterator(), ids);
    ArrayList plans = all(plan);
    for (int i = 0; i < plans.size(); i++) {
      LogicalPlan each = (LogicalPlan) plans.get(i);
      addAll(each.references().iterator(), ids);
      boolean byPlace = each instanceof Union; // which refers to no column by its name
      Iterator children = each.children().iterator();
      while (byPlace && children.hasNext()) {
        addAll(((LogicalPlan) children.next()).output().iterator(), ids);
      }
      Iterator subqueries = each.subqueries().iterator();
      while (subqueries.hasNext()) {
        addAll(((LogicalPlan) subqueries.next()).output().iterator(), ids);
      }
    }
    StringBuilder found = new StringBuilder();
    for (int i = 0; i < plans.size(); i++) {
      if (!(plans.get(i) instanceof LogicalRDD)) continue;
      LogicalRDD leaf = (LogicalRDD) plans.get(i);
      found.append(leaf.rdd().id());
      for (int j = 0; j < leaf.output().size(); j++) {
        if (ids.contains(idOf(leaf.output().apply(j)))) found.append(' ').append(j);
      }
      found.append('\n');
    }
    return found.toString();
  }

  private static void addAll(Iterator attributes, HashSet ids) {
    while (attributes.hasNext()) ids.add(idOf(attributes.next()));
  }

  private static Long idOf(Object attribute) {
    return Long.valueOf(((Attribute) attribute).exprId().id());
  }

  /** A key in the form that equal keys have in common: as to -0.0 and the kinds of NaN. */
  public static Expression normalized(Expression key) {
    return NormalizeFloatingNumbers$.MODULE$.normalize(key);
  }

  /** A plan and all plans in it, those of subqueries included. */
  private static ArrayList all(LogicalPlan plan) {
    ArrayList found = new ArrayList();
    ArrayDeque left = new ArrayDeque();
    left.add(plan);
    while (!left.isEmpty()) {
      LogicalPlan next = (LogicalPlan) left.poll();
      found.add(next);
      Iterator children = next.children().iterator();
      while (children.hasNext()) left.add(children.next());
      Iterator subqueries = next.subqueries().iterator();
      while (subqueries.hasNext()) left.add(subqueries.next());
    }
    return found;
  }
}
