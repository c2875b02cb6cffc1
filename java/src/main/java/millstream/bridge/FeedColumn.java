package millstream.bridge;

import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of a feed's frames, read from Arrow's memory. Spark's own class asks a class of each
 * type for a value, and these ask Arrow's: three calls that Java can seldom inline, where this is
 * one load. Of decimals Spark's makes a {@code BigDecimal}; most fit into a long.
 *
 * <p>Lists, maps and structs are read as Spark reads them.
 */
final class FeedColumn extends ArrowColumnVector {
  private static final int DECIMAL_BYTES = 16;

  private final FieldVector vector;

  /** Where the bits are that say which values there are; 0: all are. */
  private long validity;

  /** Where each value of a variable size begins. */
  private long offsets;

  private long values;

  FeedColumn(FieldVector vector) {
    super(vector);
    this.vector = vector;
  }

  /** See where the memory of the next frame is. */
  void refresh() {
    validity = vector.getNullCount() == 0 ? 0L : vector.getValidityBufferAddress();
    if (vector instanceof BaseFixedWidthVector fixed) {
      values = fixed.getDataBufferAddress();
    } else if (vector instanceof BaseVariableWidthVector variable) {
      values = variable.getDataBufferAddress();
      offsets = variable.getOffsetBufferAddress();
    }
  }

  /** Spark frees a batch when it has read it, and a struct that was freed takes no other batch. */
  @Override
  public void closeIfFreeable() {}

  @Override
  public boolean isNullAt(int row) {
    return validity != 0L && !isSet(validity, row);
  }

  @Override
  public boolean getBoolean(int row) {
    return isSet(values, row);
  }

  private static boolean isSet(long bits, int row) {
    return (Platform.getByte(null, bits + (row >> 3)) >> (row & 7) & 1) != 0;
  }

  @Override
  public byte getByte(int row) {
    return Platform.getByte(null, values + row);
  }

  @Override
  public short getShort(int row) {
    return Platform.getShort(null, values + (long) row * Short.BYTES);
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, values + (long) row * Integer.BYTES);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, values + (long) row * Long.BYTES);
  }

  @Override
  public float getFloat(int row) {
    return Platform.getFloat(null, values + (long) row * Float.BYTES);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, values + (long) row * Double.BYTES);
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    if (isNullAt(row)) return null;
    long at = values + (long) row * DECIMAL_BYTES, low = Platform.getLong(null, at);
    if (precision <= Decimal.MAX_LONG_DIGITS()) return Decimal.createUnsafe(low, precision, scale);
    boolean fits = Platform.getLong(null, at + Long.BYTES) == low >> 63;
    if (fits) return Decimal.apply(low, precision, scale);
    return super.getDecimal(row, precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) return null;
    int start = start(row);
    return UTF8String.fromAddress(null, values + start, start(row + 1) - start);
  }

  @Override
  public byte[] getBinary(int row) {
    if (isNullAt(row)) return null;
    int start = start(row);
    byte[] found = new byte[start(row + 1) - start];
    Platform.copyMemory(null, values + start, found, Platform.BYTE_ARRAY_OFFSET, found.length);
    return found;
  }

  private int start(int row) {
    return Platform.getInt(null, offsets + (long) row * Integer.BYTES);
  }
}
