package millstream.functions;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark$;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import scala.Some;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/** Makes the functions of this package known to a session, under their names in SQL. */
public final class Functions {
  private static final String[] NAMES = {
    "ms_min", "ms_max", "ms_first", "ms_last", "ms_count_distinct", "ms_sum", "ms_sessions",
    "ms_closes"
  };

  private Functions() { }

  public static void register(SparkSession spark) {
    FunctionRegistry registry =
        ((org.apache.spark.sql.classic.SparkSession) spark).sessionState().functionRegistry();
    for (int i = 0; i < NAMES.length; i++) {
      registry.createOrReplaceTempFunction(NAMES[i], new Builder(NAMES[i]), "built-in");
    }
  }

  /** Makes a function out of its arguments. */
  private static final class Builder extends AbstractFunction1 {
    private final String name;

    Builder(String name) { this.name = name; }

    public Object apply(Object arguments) {
      Seq given = (Seq) arguments;
      if (name.equals("ms_closes")) return closes((Expression) exactly(1, given).apply(0));
      if (name.equals("ms_sessions")) return new SessionAggregate(name, atLeast(4, given), 0, 0);
      if (name.equals("ms_first")) return new Edge(name, false, exactly(3, given), 0, 0);
      if (name.equals("ms_last")) return new Edge(name, true, exactly(3, given), 0, 0);
      exactly(2, given);
      if (name.equals("ms_sum")) return new Sum(name, given, 0, 0);
      if (name.equals("ms_count_distinct")) return new CountDistinct(name, given, 0, 0);
      return new Edge(name, name.equals("ms_max"), given, 0, 0);
    }

    /**
     * ms_closes(x), in a SELECT: x itself, known to Spark as a time that its watermark is held
     * against. Groups by it, or by windows over it, are freed once the watermark has passed.
     */
    private Expression closes(Expression time) {
      String mark = EventTimeWatermark$.MODULE$.delayKey();
      Metadata marked = new MetadataBuilder().putLong(mark, 0L).build();
      Seq<String> none = (Seq) Nil$.MODULE$;
      return new Alias(
          time, name, NamedExpression$.MODULE$.newExprId(), none, new Some<>(marked), none);
    }

    private Seq exactly(int count, Seq given) {
      if (given.size() == count) return given;
      throw new IllegalArgumentException(name + " takes " + count + " arguments, not " + given.size());
    }

    private Seq atLeast(int count, Seq given) { return given.size() > count ? given : exactly(count, given); }
  }
}
