package millstream.functions;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Seq;

/**
 * ms_min(x, w) and ms_max(x, w), the least and the greatest x that is not NULL; ms_first(x, ord, w)
 * and ms_last(x, ord, w), the x (or NULL) at the least and the greatest ord. Of equal ords the least
 * or greatest x counts, so that the result depends on nothing but the rows that are there.
 */
public final class Edge extends MultisetAggregate {
  private static final int VALUE = 0, ORDER = 1;
  private final boolean greatest;

  public Edge(String name, boolean greatest, Seq children, int mutableOffset, int inputOffset) {
    super(name, children, mutableOffset, inputOffset);
    this.greatest = greatest;
  }

  protected StateAggregate copy(Seq children, int mutableOffset, int inputOffset) {
    return new Edge(prettyName(), greatest, children, mutableOffset, inputOffset);
  }

  public boolean nullable() { return true; }

  public DataType dataType() { return argument(VALUE).dataType(); }

  public Object update(Object state, InternalRow row) {
    Object value = argument(VALUE).eval(row);
    Bytes key = key();
    if (arguments() == 2) {
      if (value == null) return state;
      codec(VALUE).write(value, key);
    } else {
      Object order = argument(ORDER).eval(row);
      if (order == null) return state;
      codec(ORDER).write(order, key);
      codec(VALUE).writeNullable(value, key);
    }
    ((Multiset) state).add(key, number(arguments() - 1, row));
    return state;
  }

  public Object eval(Object state) {
    Run run = ((Multiset) state).run();
    int edge = Multiset.edge(run, greatest);
    if (edge < 0) return null;
    Bytes record = new Bytes(run.bytes, run.start(edge));
    if (arguments() == 2) return codec(VALUE).read(record);
    codec(ORDER).read(record);
    return codec(VALUE).readNullable(record);
  }
}
