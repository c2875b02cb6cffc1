package millstream.functions;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.immutable.Seq;

/** ms_count_distinct(x, w): how many different values that are not NULL there are. */
public final class CountDistinct extends MultisetAggregate {
  private transient Expression value;

  public CountDistinct(String name, Seq children, int mutableOffset, int inputOffset) {
    super(name, children, mutableOffset, inputOffset);
  }

  protected StateAggregate copy(Seq children, int mutableOffset, int inputOffset) {
    return new CountDistinct(prettyName(), children, mutableOffset, inputOffset);
  }

  public boolean nullable() { return false; }

  public DataType dataType() { return DataTypes.LongType; }

  public Object update(Object state, InternalRow row) {
    // 0.0 and -0.0 are one value here, as in Spark's own COUNT(DISTINCT), inside structs and arrays too.
    if (value == null) value = NormalizeFloatingNumbers$.MODULE$.normalize(argument(0));
    Object seen = value.eval(row);
    if (seen == null) return state;
    Bytes key = key();
    codec(0).write(seen, key);
    ((Multiset) state).add(key, number(1, row));
    return state;
  }

  public Object eval(Object state) { return Long.valueOf(Multiset.count(((Multiset) state).run())); }
}
