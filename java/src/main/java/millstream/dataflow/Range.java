package millstream.dataflow;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Seq;

/**
 * The order of a join's side by a value that the condition compares with values of the other side,
 * so that a row of the other side looks only at the rows between its bounds. A row is kept as the
 * value, in bytes that have its order, and what it was.
 *
 * <p>The condition still decides: a bound may let in too much.
 */
public class Range implements Serializable {
  /** How many bytes the value takes before a row. */
  static final int PREFIX = 8;

  private static final long serialVersionUID = 1L;

  private final Seq<Expression> value;
  private final Seq<Attribute> input;
  private final Seq<Expression> bounds;
  private final Seq<Attribute> other;
  private final DataType type;
  private final ArrayList<Bound> added = new ArrayList<>();
  private transient boolean isDouble;
  private transient int size;
  private transient Bound[] boundOf;
  private transient UnsafeProjection valueOf;
  private transient UnsafeProjection boundsOf;

  /** The least value that a row may have, and the greatest. */
  transient long low;

  transient long high;

  /**
   * @param value one expression: a whole number, a time or a DOUBLE.
   * @param input the columns of the side.
   * @param bounds expressions of the same type, over the other side, see {@link #addBound}.
   * @param other the columns of the other side.
   */
  public Range(
      Seq<Expression> value, Seq<Attribute> input, Seq<Expression> bounds, Seq<Attribute> other) {
    this.value = value;
    this.input = input;
    this.bounds = bounds;
    this.other = other;
    this.type = value.apply(0).dataType();
  }

  /**
   * Say what the next of the bounds is.
   *
   * @param upper whether values are at most that; else at least.
   * @param shift how much is added to it, of times.
   */
  public void addBound(boolean upper, long shift) {
    added.add(new Bound(upper, shift));
  }

  void open() {
    isDouble = type.typeName().equals("double");
    size = type.defaultSize();
    boundOf = added.toArray(Bound[]::new);
    valueOf = UnsafeProjection.create(value, input);
    boundsOf = UnsafeProjection.create(bounds, other);
  }

  /** A row as it is kept. One without a value has no match, wherever it is. */
  byte[] kept(UnsafeRow row, byte[] bytes) {
    UnsafeRow found = valueOf.apply(row);
    long at = found.isNullAt(0) ? Long.MIN_VALUE : number(found, 0);
    return prefixed(at, bytes);
  }

  /** Set the bounds for a row of the other side; false if it has no match. */
  boolean bound(UnsafeRow row) {
    UnsafeRow found = boundsOf.apply(row);
    low = Long.MIN_VALUE;
    high = Long.MAX_VALUE;
    for (int i = 0; i < boundOf.length; i++) {
      if (found.isNullAt(i)) return false;
      long at = sum(number(found, i), boundOf[i].shift);
      if (boundOf[i].isUpper) {
        high = Math.min(high, at);
      } else {
        low = Math.max(low, at);
      }
    }
    return low <= high;
  }

  /** Where the rows begin that may match. */
  byte[] first() {
    return prefixed(low, Pipe.NOTHING);
  }

  /** Whether a row that is kept comes after those that may match. */
  boolean isAfter(byte[] kept) {
    return (ByteBuffer.wrap(kept).getLong() ^ Long.MIN_VALUE) > high;
  }

  private static byte[] prefixed(long at, byte[] bytes) {
    byte[] made = new byte[PREFIX + bytes.length];
    ByteBuffer.wrap(made).putLong(at ^ Long.MIN_VALUE);
    System.arraycopy(bytes, 0, made, PREFIX, bytes.length);
    return made;
  }

  private long number(UnsafeRow row, int at) {
    if (isDouble) return ordered(row.getDouble(at));
    return switch (size) {
      case 1 -> row.getByte(at);
      case 2 -> row.getShort(at);
      case 4 -> row.getInt(at);
      default -> row.getLong(at);
    };
  }

  /** A number that is in the order of DOUBLEs: 0 and -0 are the same, NaN comes last. */
  private static long ordered(double value) {
    long bits = Double.doubleToLongBits(value == 0.0 ? 0.0 : value);
    return bits < 0L ? bits ^ Long.MAX_VALUE : bits;
  }

  private static long sum(long one, long other) {
    long sum = one + other;
    if (((one ^ sum) & (other ^ sum)) >= 0L) return sum;
    return other < 0L ? Long.MIN_VALUE : Long.MAX_VALUE;
  }

  /** How a bound limits values: from above, or from below; and what is added to it. */
  private record Bound(boolean isUpper, long shift) implements Serializable {}
}
