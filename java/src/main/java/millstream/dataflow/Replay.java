package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.MutableProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.window.AggregateProcessor;
import org.apache.spark.sql.types.DataType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction2;

/**
 * Any other aggregate of Spark's: it is run again over the values that the group has. What is not
 * changed by the order of its input is exact.
 */
public class Replay extends Aggregate {
  private static final long serialVersionUID = 1L;

  private final Expression function;
  private final Seq inputs;
  private final DataType result;
  private transient AggregateProcessor processor;

  /**
   * @param function the aggregate, over the attributes of its inputs.
   * @param inputs these attributes.
   * @param result its type.
   */
  public Replay(
      int at,
      List types,
      boolean filtered,
      boolean distinct,
      Expression function,
      Seq inputs,
      DataType result) {
    super(at, types, filtered, distinct);
    this.function = function;
    this.inputs = inputs;
    this.result = result;
  }

  boolean keepsValues() {
    return true;
  }

  boolean takesNulls() {
    return true;
  }

  void addBuffers(Key key, Object part, ArrayList out, long rows) {
    if (processor == null) {
      Option[] filters = {Option.empty()};
      Expression[] functions = {function};
      processor = AggregateProcessor.apply(functions, 0, inputs, new NewProjection(), filters);
    }
    processor.initialize((int) Math.min(rows, (long) Integer.MAX_VALUE));
    UnsafeRow value = new UnsafeRow(types.length);
    Tree.Rows each = values.first(key);
    while (each.next()) {
      value.pointTo(each.row(), each.row().length);
      long times = distinct ? Math.min(each.weight(), 1L) : each.weight();
      for (long i = 0L; i < times; i++) processor.update(value);
    }
    GenericInternalRow row = new GenericInternalRow(1);
    processor.evaluate(row);
    out.add(row.isNullAt(0) ? null : row.get(0, result));
  }

  /** As Spark's window operator makes its projections. */
  public static class NewProjection extends AbstractFunction2 implements Serializable {
    private static final long serialVersionUID = 1L;

    public Object apply(Object expressions, Object input) {
      return MutableProjection.create((Seq) expressions, (Seq) input);
    }
  }
}
