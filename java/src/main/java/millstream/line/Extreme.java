package millstream.line;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import millstream.functions.Bytes;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.types.DataType;
import scala.math.Ordering;

/**
 * MIN and MAX: the first or last of the values in order. Of rows that never go, only that value is
 * kept.
 */
public class Extreme extends Aggregate {
  private static final long serialVersionUID = 1L;

  private final boolean greatest;
  private final boolean growsOnly;
  private transient Comparator order;
  private transient Ordering ordering;

  /**
   * @param greatest whether it is MAX.
   * @param growsOnly whether no row ever goes.
   */
  public Extreme(int at, List types, boolean filtered, boolean greatest, boolean growsOnly) {
    super(at, types, filtered, false);
    this.greatest = greatest;
    this.growsOnly = growsOnly;
  }

  boolean keepsValues() {
    return !growsOnly;
  }

  Comparator order() {
    if (order == null) order = new ByValue(types[0]);
    return order;
  }

  private Ordering ordering() {
    if (ordering == null) ordering = TypeUtils.getInterpretedOrdering(types[0]);
    return ordering;
  }

  Object newPart() {
    return growsOnly ? new Object[1] : null;
  }

  void add(UnsafeRow row, long weight, Object part) {
    if (weight < 0L) throw new IllegalStateException("a row goes from an input that only grows");
    Object[] best = (Object[]) part;
    Object value = row.get(at, types[0]);
    int compared = best[0] == null ? 0 : ordering().compare(value, best[0]);
    boolean isBetter = best[0] == null || (greatest ? compared > 0 : compared < 0);
    if (isBetter) best[0] = InternalRow.copyValue(value);
  }

  void addBuffers(Key key, Object part, ArrayList out, long rows) {
    if (growsOnly) {
      out.add(((Object[]) part)[0]);
      return;
    }
    byte[] best = search(key);
    out.add(best == null ? null : Pipe.row(best, 1).get(0, types[0]));
  }

  private byte[] search(Key key) {
    Tree.Rows each = greatest ? values.last(key) : values.first(key);
    while (greatest ? each.previous() : each.next()) if (each.weight() > 0L) return each.row();
    return null;
  }

  void write(Object part, Bytes out) {
    if (!growsOnly) return;
    Object best = ((Object[]) part)[0];
    byte[] bytes = best == null ? null : value(best);
    out.putSmall(best == null ? -1L : (long) bytes.length);
    if (best != null) out.put(bytes, 0, bytes.length);
  }

  Object read(Bytes in) {
    if (!growsOnly) return null;
    int length = (int) in.getSmall();
    return new Object[] {length < 0 ? null : Pipe.row(in.get(length), 1).get(0, types[0])};
  }

  /** Compares values of one column, as rows in bytes, and those that are equal by their bytes. */
  private static final class ByValue implements Comparator {
    private final DataType type;
    private final Ordering ordering;
    private final UnsafeRow left = new UnsafeRow(1);
    private final UnsafeRow right = new UnsafeRow(1);

    ByValue(DataType type) {
      this.type = type;
      this.ordering = TypeUtils.getInterpretedOrdering(type);
    }

    public int compare(Object one, Object other) {
      byte[] first = (byte[]) one, second = (byte[]) other;
      left.pointTo(first, first.length);
      right.pointTo(second, second.length);
      int found = ordering.compare(left.get(0, type), right.get(0, type));
      return found != 0 ? found : java.util.Arrays.compareUnsigned(first, second);
    }
  }
}
