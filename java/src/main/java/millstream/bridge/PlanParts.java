package millstream.bridge;

import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedGenerator;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SessionState;
import scala.Option;
import scala.Product;
import scala.collection.Iterable;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a plan is made of: the classes of all its nodes and expressions, and the relations and
 * functions that it names. Any TreeNode that a node holds is found, whatever it holds it by.
 */
public final class PlanParts {
  private static final char FIELD = 0x1f;
  private static final String END = "\u001e";
  private final SessionState state;
  private final Set<Object> seen = Collections.newSetFromMap(new IdentityHashMap<>());
  private final Set<String> found = new TreeSet<>();

  private PlanParts(SparkSession session) {
    this.state = ((org.apache.spark.sql.classic.SparkSession) session).sessionState();
  }

  /**
   * The parts of a plan, parsed or analysed: of each its kind and names.
   *
   * <ul>
   *   <li>node, expression: the name of its class
   *   <li>with: the name of a common table expression
   *   <li>relation: the parts of its name
   *   <li>view: the name of the temporary view that a relation has become
   *   <li>table: the class of what a relation reads
   *   <li>function: its name, where it is from and the class that makes it; nothing but the name
   *       when it is in no registry of the session
   * </ul>
   */
  public static String of(SparkSession session, LogicalPlan plan) {
    PlanParts parts = new PlanParts(session);
    parts.visit(plan);
    return String.join(END, parts.found);
  }

  /** All functions that expressions of the session may call, each as {@link #of} has it. */
  public static String functions(SparkSession session) {
    PlanParts parts = new PlanParts(session);
    FunctionRegistryBase<?> registry = parts.state.functionRegistry();
    for (FunctionIdentifier name : CollectionConverters.asJava(registry.listFunction())) {
      parts.addMade(name.funcName(), registry.lookupFunction(name).get());
    }
    return String.join(END, parts.found);
  }

  private void add(String kind, String name) {
    found.add(kind + FIELD + name);
  }

  private void visit(Object object) {
    if (object instanceof TreeNode<?> node) {
      if (seen.add(node)) visitNode(node);
    } else if (object instanceof Iterable<?> items) {
      visitAll(items.iterator());
    } else if (object instanceof Product product
        && object.getClass().getName().startsWith("scala.")) {
      visitAll(product.productIterator());
    }
  }

  private void visitAll(Iterator<?> each) {
    while (each.hasNext()) visit(each.next());
  }

  private void visitNode(TreeNode<?> node) {
    String name = node.getClass().getName();
    if (name.endsWith("$")) name = name.substring(0, name.length() - 1);
    add(node instanceof LogicalPlan ? "node" : "expression", name);
    addNames(node);
    if (node instanceof RuntimeReplaceable replaceable) {
      // What Spark itself replaces it by may call any method; what it was given is the query's.
      seen.add(replaceable.replacement());
      if (node instanceof InheritAnalysisRules given) visitAll(given.parameters().iterator());
    }
    visitAll(node.children().iterator());
    visitAll(node.innerChildren().iterator());
    visitAll(node.productIterator());
  }

  private void addNames(TreeNode<?> node) {
    if (node instanceof UnresolvedRelation relation) {
      add("relation", joined(relation.multipartIdentifier()));
    } else if (node instanceof UnresolvedWith with) {
      for (Product each : CollectionConverters.asJava(with.cteRelations())) {
        add("with", (String) each.productElement(0));
      }
    } else if (node instanceof View view) {
      add("view", view.desc().identifier().table());
    } else if (node instanceof DataSourceV2Relation relation) {
      add("table", relation.table().getClass().getName());
    } else if (node instanceof UnresolvedFunction function) {
      addFunction(function.nameParts(), state.functionRegistry());
    } else if (node instanceof UnresolvedTableValuedFunction function) {
      addFunction(function.name(), state.tableFunctionRegistry());
    } else if (node instanceof UnresolvedGenerator generator) {
      addFunction(generator.name().nameParts(), state.functionRegistry());
    }
  }

  /** All functions that a name may stand for: those of Spark, and those of the session. */
  private void addFunction(Seq<String> parts, FunctionRegistryBase<?> registry) {
    String shown = joined(parts);
    String name = parts.last().toLowerCase(Locale.ROOT);
    int count = parts.size();
    String place = count > 1 ? parts.apply(count - 2).toLowerCase(Locale.ROOT) : "";
    boolean isSystem = count < 3 || (count == 3 && "system".equalsIgnoreCase(parts.apply(0)));
    boolean isKnown = false;
    for (String each : List.of("builtin", "session")) {
      if (!isSystem || !(place.isEmpty() || place.equals(each))) continue;
      Option<ExpressionInfo> info =
          registry.lookupFunction(
              new FunctionIdentifier(name, Option.apply(each), Option.apply("system")));
      if (info.isEmpty()) continue;
      addMade(shown, info.get());
      isKnown = true;
    }
    if (!isKnown) add("function", shown);
  }

  private void addMade(String shown, ExpressionInfo made) {
    add("function", shown + FIELD + made.getSource() + FIELD + made.getClassName());
  }

  private static String joined(Seq<String> parts) {
    return parts.mkString(".");
  }
}
