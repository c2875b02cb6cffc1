package millstream.functions;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Values of one type as bytes, such that unsigned comparison of the bytes orders them as Spark does
 * and no value's bytes begin with another's. -0.0 comes before 0.0, and within a struct or an array,
 * where what follows may decide, it is 0.0; all NaN are one.
 */
final class Codec {
  private static final int BOOLEAN = 0, BYTE = 1, SHORT = 2, INT = 3, LONG = 4, FLOAT = 5, DOUBLE = 6;
  private static final int DECIMAL = 7, WIDE_DECIMAL = 8, TEXT = 9, BINARY = 10, STRUCT = 11, ARRAY = 12;
  /** Ends a text or an array. In a text, the bytes 0 and 1 are written as 1 and the byte plus one. */
  private static final int END = 0, ESCAPE = 1;
  private static final int NULL = 1, PRESENT = 2;

  private final int kind;
  private final DataType type;
  private final Codec[] parts;
  private final boolean nested;

  private Codec(int kind, DataType type, Codec[] parts, boolean nested) {
    this.kind = kind;
    this.type = type;
    this.parts = parts;
    this.nested = nested;
  }

  /** The codec of a type, or null when its values have no order that bytes can keep. */
  static Codec of(DataType type) { return of(type, false); }

  private static Codec of(DataType type, boolean nested) {
    int kind = kindOf(type);
    if (kind < 0) return null;
    Codec[] parts = new Codec[0];
    if (kind == ARRAY) {
      parts = new Codec[] {of(((ArrayType) type).elementType(), true)};
    } else if (kind == STRUCT) {
      StructField[] fields = ((StructType) type).fields();
      parts = new Codec[fields.length];
      for (int i = 0; i < fields.length; i++) parts[i] = of(fields[i].dataType(), true);
    }
    for (int i = 0; i < parts.length; i++) if (parts[i] == null) return null;
    return new Codec(kind, type, parts, nested);
  }

  private static int kindOf(DataType type) {
    if (type instanceof BooleanType) return BOOLEAN;
    if (type instanceof ByteType) return BYTE;
    if (type instanceof ShortType) return SHORT;
    if (type instanceof IntegerType || type instanceof DateType) return INT;
    if (type instanceof YearMonthIntervalType) return INT;
    if (type instanceof LongType || type instanceof TimestampType) return LONG;
    if (type instanceof TimestampNTZType || type instanceof DayTimeIntervalType) return LONG;
    if (type instanceof TimeType) return LONG;
    if (type instanceof FloatType) return FLOAT;
    if (type instanceof DoubleType) return DOUBLE;
    if (type instanceof DecimalType) {
      return ((DecimalType) type).precision() <= Decimal.MAX_LONG_DIGITS() ? DECIMAL : WIDE_DECIMAL;
    }
    if (type instanceof StringType) return ((StringType) type).supportsBinaryOrdering() ? TEXT : -1;
    if (type instanceof BinaryType) return BINARY;
    if (type instanceof StructType) return STRUCT;
    return type instanceof ArrayType ? ARRAY : -1;
  }

  void write(Object value, Bytes out) {
    switch (kind) {
      case BOOLEAN: out.putByte(((Boolean) value).booleanValue() ? 1 : 0); break;
      case BYTE: out.putByte(((Byte) value).byteValue() ^ 0x80); break;
      case SHORT: case INT: out.putInt(((Number) value).intValue() ^ Integer.MIN_VALUE); break;
      case LONG: out.putLong(((Long) value).longValue() ^ Long.MIN_VALUE); break;
      case FLOAT: out.putInt(ordered(Float.floatToIntBits(((Float) value).floatValue() + zero()))); break;
      case DOUBLE: out.putLong(ordered(Double.doubleToLongBits(((Double) value).doubleValue() + zero()))); break;
      case DECIMAL: out.putLong(unscaled(value).longValue() ^ Long.MIN_VALUE); break;
      case WIDE_DECIMAL: writeWide(unscaled(value), out); break;
      case TEXT: writeBytes(((UTF8String) value).getBytes(), out); break;
      case BINARY: writeBytes((byte[]) value, out); break;
      case STRUCT: writeStruct((InternalRow) value, out); break;
      default: writeArray((ArrayData) value, out);
    }
  }

  Object read(Bytes in) {
    switch (kind) {
      case BOOLEAN: return Boolean.valueOf(in.getByte() != 0);
      case BYTE: return Byte.valueOf((byte) (in.getByte() ^ 0x80));
      case SHORT: return Short.valueOf((short) (in.getInt() ^ Integer.MIN_VALUE));
      case INT: return Integer.valueOf(in.getInt() ^ Integer.MIN_VALUE);
      case LONG: return Long.valueOf(in.getLong() ^ Long.MIN_VALUE);
      case FLOAT: return Float.valueOf(Float.intBitsToFloat(unordered(in.getInt())));
      case DOUBLE: return Double.valueOf(Double.longBitsToDouble(unordered(in.getLong())));
      case DECIMAL: return decimal(BigInteger.valueOf(in.getLong() ^ Long.MIN_VALUE));
      case WIDE_DECIMAL: return decimal(readWide(in));
      case TEXT: return UTF8String.fromBytes(readBytes(in));
      case BINARY: return readBytes(in);
      case STRUCT: return readStruct(in);
      default: return readArray(in);
    }
  }

  /** NULL comes before every value. */
  void writeNullable(Object value, Bytes out) {
    out.putByte(value == null ? NULL : PRESENT);
    if (value != null) write(value, out);
  }

  Object readNullable(Bytes in) { return in.getByte() == NULL ? null : read(in); }

  /** -0.0 changes no number that it is added to; 0.0 changes -0.0. */
  private float zero() { return nested ? 0.0f : -0.0f; }

  private static int ordered(int bits) { return bits ^ ((bits >> 31) | Integer.MIN_VALUE); }

  private static long ordered(long bits) { return bits ^ ((bits >> 63) | Long.MIN_VALUE); }

  private static int unordered(int bits) { return bits ^ ((~bits >> 31) | Integer.MIN_VALUE); }

  private static long unordered(long bits) { return bits ^ ((~bits >> 63) | Long.MIN_VALUE); }

  private BigInteger unscaled(Object value) {
    int scale = ((DecimalType) type).scale();
    return ((Decimal) value).toJavaBigDecimal().setScale(scale).unscaledValue();
  }

  private Decimal decimal(BigInteger unscaled) {
    DecimalType decimal = (DecimalType) type;
    return Decimal.apply(new BigDecimal(unscaled, decimal.scale()), decimal.precision(), decimal.scale());
  }

  private static void writeWide(BigInteger value, Bytes out) {
    out.putLong(value.shiftRight(64).longValue() ^ Long.MIN_VALUE);
    out.putLong(value.longValue());
  }

  private static BigInteger readWide(Bytes in) {
    byte[] bytes = new byte[16];
    System.arraycopy(in.array, in.at, bytes, 0, 16);
    bytes[0] ^= 0x80;
    in.at += 16;
    return new BigInteger(bytes);
  }

  private static void writeBytes(byte[] value, Bytes out) {
    int done = 0;
    for (int i = 0; i < value.length; i++) {
      if (value[i] != 0 && value[i] != 1) continue;
      out.put(value, done, i - done);
      out.putByte(ESCAPE);
      out.putByte(value[i] + 1);
      done = i + 1;
    }
    out.put(value, done, value.length - done);
    out.putByte(END);
  }

  private static byte[] readBytes(Bytes in) {
    Bytes value = new Bytes(16);
    int done = in.at;
    for (; in.array[in.at] != END; in.at++) {
      if (in.array[in.at] != ESCAPE) continue;
      value.put(in.array, done, in.at - done);
      value.putByte(in.array[++in.at] - 1);
      done = in.at + 1;
    }
    value.put(in.array, done, in.at++ - done);
    return value.written();
  }

  private void writeStruct(InternalRow row, Bytes out) {
    for (int i = 0; i < parts.length; i++) {
      parts[i].writeNullable(row.isNullAt(i) ? null : row.get(i, parts[i].type), out);
    }
  }

  private InternalRow readStruct(Bytes in) {
    Object[] values = new Object[parts.length];
    for (int i = 0; i < parts.length; i++) values[i] = parts[i].readNullable(in);
    return new GenericInternalRow(values);
  }

  private void writeArray(ArrayData array, Bytes out) {
    for (int i = 0; i < array.numElements(); i++) {
      parts[0].writeNullable(array.isNullAt(i) ? null : array.get(i, parts[0].type), out);
    }
    out.putByte(END);
  }

  private ArrayData readArray(Bytes in) {
    ArrayList values = new ArrayList();
    while (in.array[in.at] != END) values.add(parts[0].readNullable(in));
    in.at++;
    return new GenericArrayData(values.toArray());
  }
}
