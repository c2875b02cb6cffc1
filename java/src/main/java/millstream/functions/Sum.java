package millstream.functions;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.AnyDataType$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import scala.collection.immutable.Seq;

/** ms_sum(x, w) of DOUBLE or FLOAT: the exact sum of what is not NULL, rounded once; NULL of nothing. */
public final class Sum extends StateAggregate {
  public Sum(String name, Seq children, int mutableOffset, int inputOffset) {
    super(name, children, mutableOffset, inputOffset);
  }

  protected StateAggregate copy(Seq children, int mutableOffset, int inputOffset) {
    return new Sum(prettyName(), children, mutableOffset, inputOffset);
  }

  protected AbstractDataType[] argumentTypes() {
    return new AbstractDataType[] {AnyDataType$.MODULE$, DataTypes.LongType};
  }

  protected String objection() {
    DataType type = argument(0).dataType();
    if (type instanceof DoubleType || type instanceof FloatType) return null;
    return "takes DOUBLE or FLOAT, not " + type.sql();
  }

  public boolean nullable() { return true; }

  public DataType dataType() { return DataTypes.DoubleType; }

  public Object createAggregationBuffer() { return new ExactSum(); }

  public Object update(Object state, InternalRow row) {
    Object value = argument(0).eval(row);
    if (value != null) ((ExactSum) state).add(((Number) value).doubleValue(), number(1, row));
    return state;
  }

  public Object merge(Object state, Object other) {
    ((ExactSum) state).add((ExactSum) other);
    return state;
  }

  public Object eval(Object state) { return ((ExactSum) state).value(); }

  public byte[] serialize(Object state) {
    Bytes out = new Bytes(48);
    ((ExactSum) state).write(out);
    return out.written();
  }

  public Object deserialize(byte[] bytes) { return ExactSum.read(new Bytes(bytes, 0)); }
}
