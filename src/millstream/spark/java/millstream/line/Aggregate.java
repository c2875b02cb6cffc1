package millstream.line;

import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import millstream.functions.Bytes;
import millstream.functions.ExactSum;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;

/**
 * One aggregate of a {@link Group}, for the group at hand. Some keep a few numbers; some also keep
 * the values that the group has, each with its weight.
 */
public abstract class Aggregate implements Serializable {
  private static final long serialVersionUID = 1L;

  private final int at;
  private final boolean filtered;
  final boolean distinct;
  final DataType[] types;
  transient MapState values;
  private transient UnsafeProjection valueOf;

  /**
   * @param at where its inputs begin in the group's rows.
   * @param types those of its inputs.
   * @param filtered whether a condition for FILTER (WHERE ...) follows them.
   * @param distinct whether equal values count once.
   */
  Aggregate(int at, List types, boolean filtered, boolean distinct) {
    this.at = at;
    this.filtered = filtered;
    this.distinct = distinct;
    this.types = (DataType[]) types.toArray(new DataType[0]);
  }

  // ---- what each kind says

  /** Whether it keeps the values of the group, too. */
  boolean keepsValues() {
    return distinct;
  }

  /** Whether a row with a NULL among the inputs counts. */
  boolean takesNulls() {
    return false;
  }

  /** Forget the group at hand. */
  abstract void clear();

  /** Take a value: its inputs in a row, and how often it comes, or goes. */
  abstract void add(UnsafeRow row, long weight);

  /** Add the values of its buffers, of a group of so many rows. */
  abstract void addBuffers(ArrayList out, long count);

  abstract void write(Bytes out);

  abstract void read(Bytes in);

  // ---- what all have

  void open(StatefulProcessorHandle handle, String name) {
    if (!keepsValues()) return;
    values = handle.getMapState(name, Encoders.BINARY(), Encoders.LONG(), TTLConfig.NONE());
    valueOf = UnsafeProjection.create(types);
  }

  void take(UnsafeRow row, long weight) {
    int end = at + types.length;
    if (filtered && (row.isNullAt(end) || !row.getBoolean(end))) return;
    if (!takesNulls()) {
      for (int i = at; i < end; i++) if (row.isNullAt(i)) return;
    }
    if (values == null) {
      add(row, weight);
      return;
    }
    byte[] value = value(row);
    Long known = (Long) values.getValue(value);
    long before = known == null ? 0L : known.longValue(), after = before + weight;
    if (after == 0L) {
      values.removeKey(value);
    } else {
      values.updateValue(value, Long.valueOf(after));
    }
    changed(row, value, before, after);
  }

  /** The weight of a value that is kept has changed. */
  void changed(UnsafeRow row, byte[] value, long before, long after) {
    long weight = (after > 0L ? 1L : 0L) - (before > 0L ? 1L : 0L);
    if (weight != 0L) add(row, weight);
  }

  Object input(UnsafeRow row, int place) {
    return row.get(at + place, types[place]);
  }

  /** Its inputs, as bytes. */
  private byte[] value(UnsafeRow row) {
    Object[] inputs = new Object[types.length];
    for (int i = 0; i < inputs.length; i++) inputs[i] = row.isNullAt(at + i) ? null : input(row, i);
    return Pipe.bytes(valueOf.apply(new GenericInternalRow(inputs)));
  }

  // ---- the kinds

  /** COUNT. */
  public static class Count extends Aggregate {
    private static final long serialVersionUID = 1L;
    private transient long count;

    public Count(int at, List types, boolean filtered, boolean distinct) {
      super(at, types, filtered, distinct);
    }

    void clear() {
      count = 0L;
    }

    void add(UnsafeRow row, long weight) {
      count += weight;
    }

    void addBuffers(ArrayList out, long rows) {
      out.add(Long.valueOf(count));
    }

    void write(Bytes out) {
      out.putLong(count);
    }

    void read(Bytes in) {
      count = in.getLong();
    }
  }

  /** SUM and AVG: exact, whatever is taken back; rounded, if at all, when it is read. */
  public static class Sum extends Aggregate {
    private static final long serialVersionUID = 1L;
    private final DataType sumType;
    private final int buffers;
    private final boolean average;
    private final boolean real;
    private transient long count;
    private transient BigDecimal sum;
    private transient ExactSum reals;

    /**
     * @param sumType the type of the buffer that has the sum.
     * @param buffers how many buffers it has.
     * @param average whether its second buffer is the count, and not whether there is no value.
     */
    public Sum(
        int at,
        List types,
        boolean filtered,
        boolean distinct,
        DataType sumType,
        int buffers,
        boolean average) {
      super(at, types, filtered, distinct);
      this.sumType = sumType;
      this.buffers = buffers;
      this.average = average;
      this.real = this.types[0] instanceof DoubleType || this.types[0] instanceof FloatType;
    }

    void clear() {
      count = 0L;
      sum = BigDecimal.ZERO;
      reals = real ? new ExactSum() : null;
    }

    void add(UnsafeRow row, long weight) {
      count += weight;
      Object value = input(row, 0);
      if (real) {
        reals.add(((Number) value).doubleValue(), weight);
        return;
      }
      BigDecimal amount =
          value instanceof Decimal
              ? ((Decimal) value).toJavaBigDecimal()
              : BigDecimal.valueOf(((Number) value).longValue());
      sum = sum.add(weight == 1L ? amount : amount.multiply(BigDecimal.valueOf(weight)));
    }

    void addBuffers(ArrayList out, long rows) {
      out.add(count == 0L && !average && buffers == 1 ? null : total());
      if (average) {
        out.add(Long.valueOf(count));
      } else if (buffers == 2) {
        out.add(Boolean.valueOf(count == 0L));
      }
    }

    private Object total() {
      if (sumType instanceof DecimalType) {
        DecimalType type = (DecimalType) sumType;
        return Decimal.apply(sum, type.precision(), type.scale());
      }
      if (sumType instanceof DoubleType) {
        Double exact = real ? reals.value() : Double.valueOf(sum.doubleValue());
        return exact == null ? Double.valueOf(0.0) : exact;
      }
      return Long.valueOf(sum.longValueExact());
    }

    void write(Bytes out) {
      out.putLong(count);
      if (real) {
        reals.write(out);
        return;
      }
      byte[] units = sum.unscaledValue().toByteArray();
      out.putInt(sum.scale());
      out.putInt(units.length);
      out.put(units, 0, units.length);
    }

    void read(Bytes in) {
      count = in.getLong();
      if (real) {
        reals = ExactSum.read(in);
        return;
      }
      int scale = in.getInt(), length = in.getInt();
      sum = new BigDecimal(new BigInteger(in.array, in.at, length), scale);
      in.at += length;
    }
  }
}
