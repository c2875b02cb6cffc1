package millstream.dataflow;

import java.io.Serializable;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;

/**
 * One aggregate of a {@link Group}. Some keep a few numbers for a group, their part of it; some
 * keep the values that the group has, each with its weight.
 */
public abstract class Aggregate implements Serializable {
  private static final long serialVersionUID = 1L;

  final int at;
  private final boolean filtered;
  final boolean distinct;
  final DataType[] types;
  transient Tree values;
  private transient UnsafeProjection valueOf;

  /**
   * @param at where its inputs begin in the group's rows.
   * @param types those of its inputs.
   * @param filtered whether a condition for FILTER (WHERE ...) follows them.
   * @param distinct whether equal values count once.
   */
  Aggregate(int at, List<DataType> types, boolean filtered, boolean distinct) {
    this.at = at;
    this.filtered = filtered;
    this.distinct = distinct;
    this.types = types.toArray(DataType[]::new);
  }

  // ---- what each kind says

  /** Whether it keeps the values of the group. */
  boolean keepsValues() {
    return distinct;
  }

  /** The order in which they are kept; null for that of their bytes. */
  Comparator<byte[]> order() {
    return null;
  }

  /** Whether a row with a NULL among the inputs counts. */
  boolean takesNulls() {
    return false;
  }

  /** Whether a row counts, by its inputs; those with a NULL do not, unless it takes them. */
  boolean counts(UnsafeRow row) {
    return true;
  }

  /** Its part of a group without rows; null when it has none. */
  Object newPart() {
    return null;
  }

  /** Take a value: its inputs in a row, and how often it comes, or goes. */
  void add(UnsafeRow row, long weight, Object part) {}

  /** Add the values of its buffers, of a group of so many rows. */
  abstract void addBuffers(Key key, Object part, List<Object> out, long count);

  void write(Object part, Bytes out) {}

  Object read(Bytes in) {
    return null;
  }

  // ---- what all have

  void open(Dataflow dataflow) {
    int slot = dataflow.newSlot();
    if (!keepsValues()) return;
    values = new Tree(dataflow.state(), slot, order());
  }

  final void take(Key key, UnsafeRow row, long weight, Object part) {
    int end = at + types.length;
    if (filtered && (row.isNullAt(end) || !row.getBoolean(end))) return;
    if (!takesNulls()) {
      for (int i = at; i < end; i++) if (row.isNullAt(i)) return;
    }
    if (!counts(row)) return;
    if (values == null) {
      add(row, weight, part);
      return;
    }
    long before = values.add(key, value(row), weight), after = before + weight;
    long times = (after > 0L ? 1L : 0L) - (before > 0L ? 1L : 0L);
    if (distinct && times != 0L) add(row, times, part);
  }

  /** Remove the values of a group. */
  final void clear(Key key) {
    if (values != null) values.clear(key);
  }

  /** Its inputs, as bytes. */
  final byte[] value(UnsafeRow row) {
    if (valueOf == null) valueOf = UnsafeProjection.create(types);
    Object[] inputs = new Object[types.length];
    for (int i = 0; i < inputs.length; i++) {
      inputs[i] = row.isNullAt(at + i) ? null : row.get(at + i, types[i]);
    }
    return Pipe.bytes(valueOf.apply(new GenericInternalRow(inputs)));
  }

  /** Inputs that are a row of their own, as bytes. */
  final byte[] bytes(InternalRow inputs) {
    if (valueOf == null) valueOf = UnsafeProjection.create(types);
    return Pipe.bytes(valueOf.apply(inputs));
  }
}
