package millstream.dataflow;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.RowOrdering;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.math.Ordering;

/**
 * MIN and MAX: the first or last of the values in order; MIN_BY and MAX_BY: the value beside the
 * first or last of what they are ordered by, of equal ones by the value. Of rows that never go,
 * only that one is kept.
 */
public class Extreme extends Aggregate {
  private static final long serialVersionUID = 1L;

  private final boolean greatest;
  private final boolean growsOnly;
  private transient ByValue order;

  /**
   * @param types that of the value; of MIN_BY and MAX_BY, then that of what it is ordered by.
   * @param greatest whether it is MAX, or MAX_BY.
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

  boolean takesNulls() {
    return types.length > 1; // the value may be NULL, what it is ordered by counts
  }

  boolean counts(UnsafeRow row) {
    return !row.isNullAt(at + types.length - 1);
  }

  ByValue order() {
    if (order == null) order = new ByValue(types);
    return order;
  }

  Object newPart() {
    return growsOnly ? new Object[1] : null;
  }

  void add(UnsafeRow row, long weight, Object part) {
    if (weight < 0L) throw new IllegalStateException("a row goes from an input that only grows");
    Object[] best = (Object[]) part;
    InternalRow known = (InternalRow) best[0];
    int compared = known == null ? 0 : order().compare(row, at, known, 0);
    boolean isBetter = known == null || (greatest ? compared > 0 : compared < 0);
    if (!isBetter) return;
    Object[] values = new Object[types.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = InternalRow.copyValue(row.isNullAt(at + i) ? null : row.get(at + i, types[i]));
    }
    best[0] = new GenericInternalRow(values);
  }

  void addBuffers(Key key, Object part, ArrayList out, long rows) {
    InternalRow best = null;
    if (growsOnly) {
      best = (InternalRow) ((Object[]) part)[0];
    } else {
      byte[] found = search(key);
      if (found != null) best = Pipe.row(found, types.length);
    }
    for (int i = 0; i < types.length; i++) {
      out.add(best == null || best.isNullAt(i) ? null : best.get(i, types[i]));
    }
  }

  private byte[] search(Key key) {
    Tree.Rows each = greatest ? values.last(key) : values.first(key);
    while (greatest ? each.previous() : each.next()) if (each.weight() > 0L) return each.row();
    return null;
  }

  void write(Object part, Bytes out) {
    if (!growsOnly) return;
    InternalRow best = (InternalRow) ((Object[]) part)[0];
    byte[] bytes = best == null ? null : bytes(best);
    out.putSmall(best == null ? -1L : (long) bytes.length);
    if (best != null) out.put(bytes, 0, bytes.length);
  }

  Object read(Bytes in) {
    if (!growsOnly) return null;
    int length = (int) in.getSmall();
    return new Object[] {length < 0 ? null : Pipe.row(in.get(length), types.length)};
  }

  /**
   * Compares rows of the inputs: by the last of them, then by the value beside it, if that has an
   * order; those in bytes that are equal, by their bytes.
   */
  private static final class ByValue implements Comparator<byte[]> {
    private static final int BY_ORDERING = 0, LONG = 1, INT = 2;

    private final DataType[] types;
    private final int[] kinds;
    private final Ordering<Object>[] orderings;
    private final UnsafeRow left;
    private final UnsafeRow right;

    @SuppressWarnings("unchecked")
    ByValue(DataType[] types) {
      this.types = types;
      this.kinds = new int[types.length];
      this.orderings = new Ordering[types.length];
      for (int i = 0; i < types.length; i++) {
        kinds[i] = kindOf(types[i]);
        if (RowOrdering.isOrderable(types[i])) {
          orderings[i] = TypeUtils.getInterpretedOrdering(types[i]);
        }
      }
      left = new UnsafeRow(types.length);
      right = new UnsafeRow(types.length);
    }

    /** How rows have a value: as a number that is compared as it stands, or as an object. */
    private static int kindOf(DataType type) {
      if (type instanceof IntegerType || type instanceof DateType) return INT;
      boolean isLong =
          type instanceof LongType
              || type instanceof TimestampType
              || type instanceof TimestampNTZType;
      return isLong ? LONG : BY_ORDERING;
    }

    @Override
    public int compare(byte[] one, byte[] other) {
      left.pointTo(one, one.length);
      right.pointTo(other, other.length);
      int found = compare(left, 0, right, 0);
      return found != 0 ? found : Arrays.compareUnsigned(one, other);
    }

    int compare(InternalRow one, int oneAt, InternalRow other, int otherAt) {
      for (int i = types.length - 1; i >= 0; i--) {
        boolean isNull = one.isNullAt(oneAt + i), otherIsNull = other.isNullAt(otherAt + i);
        if (isNull || otherIsNull) {
          if (isNull && otherIsNull) continue;
          return isNull ? -1 : 1;
        }
        int found = compareValues(i, one, oneAt + i, other, otherAt + i);
        if (found != 0) return found;
      }
      return 0;
    }

    private int compareValues(int i, InternalRow one, int oneAt, InternalRow other, int otherAt) {
      if (kinds[i] == LONG) return Long.compare(one.getLong(oneAt), other.getLong(otherAt));
      if (kinds[i] == INT) return Integer.compare(one.getInt(oneAt), other.getInt(otherAt));
      if (orderings[i] == null) return 0;
      return orderings[i].compare(one.get(oneAt, types[i]), other.get(otherAt, types[i]));
    }
  }
}
