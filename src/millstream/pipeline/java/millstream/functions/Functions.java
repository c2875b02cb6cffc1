package millstream.functions;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/** Makes the aggregates of this package known to a session, under their names in SQL. */
public final class Functions {
  private static final String[] NAMES = {
    "ms_min", "ms_max", "ms_first", "ms_last", "ms_count_distinct", "ms_sum", "ms_sessions"
  };

  private Functions() { }

  public static void register(SparkSession spark) {
    FunctionRegistry registry =
        ((org.apache.spark.sql.classic.SparkSession) spark).sessionState().functionRegistry();
    for (int i = 0; i < NAMES.length; i++) {
      registry.createOrReplaceTempFunction(NAMES[i], new Builder(NAMES[i]), "built-in");
    }
  }

  /** Makes a function out of its arguments. A class, because Janino has no lambdas. */
  private static final class Builder extends AbstractFunction1 {
    private final String name;

    Builder(String name) { this.name = name; }

    public Object apply(Object arguments) {
      Seq given = (Seq) arguments;
      if (name.equals("ms_sessions")) return new SessionAggregate(name, atLeast(4, given), 0, 0);
      if (name.equals("ms_first")) return new Edge(name, false, exactly(3, given), 0, 0);
      if (name.equals("ms_last")) return new Edge(name, true, exactly(3, given), 0, 0);
      exactly(2, given);
      if (name.equals("ms_sum")) return new Sum(name, given, 0, 0);
      if (name.equals("ms_count_distinct")) return new CountDistinct(name, given, 0, 0);
      return new Edge(name, name.equals("ms_max"), given, 0, 0);
    }

    private Seq exactly(int count, Seq given) {
      if (given.size() == count) return given;
      throw new IllegalArgumentException(name + " takes " + count + " arguments, not " + given.size());
    }

    private Seq atLeast(int count, Seq given) { return given.size() > count ? given : exactly(count, given); }
  }
}
