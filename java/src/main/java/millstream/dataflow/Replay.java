package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
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
 * Any other aggregate of Spark's: it runs again over the values of the group. An aggregate that
 * does not depend on the order of its input is exact.
 */
public class Replay extends Aggregate {
  private static final long serialVersionUID = 1L;

  private final Expression function;
  private final Seq<Attribute> inputs;
  private final DataType result;
  private transient AggregateProcessor processor;

  /**
   * @param function the aggregate, over the attributes of its inputs.
   * @param inputs these attributes.
   * @param result its type.
   */
  public Replay(
      int at,
      List<DataType> types,
      boolean filtered,
      boolean distinct,
      Expression function,
      Seq<Attribute> inputs,
      DataType result) {
    super(at, types, filtered, distinct);
    this.function = function;
    this.inputs = inputs;
    this.result = result;
  }

  @Override
  boolean keepsValues() {
    return true;
  }

  @Override
  boolean takesNulls() {
    return true;
  }

  @Override
  void addBuffers(Key key, Object part, ArrayList out, long rows) {
    if (processor == null) processor = newProcessor();
    processor.initialize((int) Math.min(rows, Integer.MAX_VALUE));
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

  @SuppressWarnings("unchecked") // Java has no arrays of a generic type
  private AggregateProcessor newProcessor() {
    Option<Expression>[] filters = new Option[] {Option.empty()};
    Expression[] functions = {function};
    return AggregateProcessor.apply(functions, 0, inputs, new NewProjection(), filters);
  }

  /** As Spark's window operator makes its projections. */
  private static final class NewProjection
      extends AbstractFunction2<Seq<Expression>, Seq<Attribute>, MutableProjection>
      implements Serializable {
    private static final long serialVersionUID = 1L;

    @Override
    public MutableProjection apply(Seq<Expression> expressions, Seq<Attribute> input) {
      return MutableProjection.create(expressions, input);
    }
  }
}
