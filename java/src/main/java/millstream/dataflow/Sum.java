package millstream.dataflow;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.YearMonthIntervalType;

/** SUM and AVG: exact, whatever is taken back; rounded, if at all, when it is read. */
public class Sum extends Aggregate {
  private static final long serialVersionUID = 1L;
  private static final int LONG = 0,
      INT = 1,
      SHORT = 2,
      BYTE = 3,
      DECIMAL = 4,
      DOUBLE = 5,
      FLOAT = 6;

  private final DataType sumType;
  private final int buffers;
  private final boolean average;
  private final int kind;

  /**
   * @param sumType the type of the buffer that has the sum.
   * @param buffers how many buffers it has.
   * @param average whether its second buffer is the count, and not whether there is no value.
   */
  public Sum(
      int at,
      List<DataType> types,
      boolean filtered,
      boolean distinct,
      DataType sumType,
      int buffers,
      boolean average) {
    super(at, types, filtered, distinct);
    this.sumType = sumType;
    this.buffers = buffers;
    this.average = average;
    this.kind = kindOf(this.types[0]);
  }

  private static int kindOf(DataType type) {
    if (type instanceof DoubleType) return DOUBLE;
    if (type instanceof FloatType) return FLOAT;
    if (type instanceof DecimalType) return DECIMAL;
    if (type instanceof ByteType) return BYTE;
    if (type instanceof ShortType) return SHORT;
    return type instanceof IntegerType || type instanceof YearMonthIntervalType ? INT : LONG;
  }

  private boolean isReal() {
    return kind >= DOUBLE;
  }

  Object newPart() {
    Part part = new Part();
    if (isReal()) part.reals = new ExactSum();
    return part;
  }

  void add(UnsafeRow row, long weight, Object object) {
    Part part = (Part) object;
    part.count += weight;
    switch (kind) {
      case DOUBLE -> part.reals.add(row.getDouble(at), weight);
      case FLOAT -> part.reals.add(row.getFloat(at), weight);
      case DECIMAL -> addDecimal(row, weight, part);
      case INT -> part.add(row.getInt(at), weight);
      case SHORT -> part.add(row.getShort(at), weight);
      case BYTE -> part.add(row.getByte(at), weight);
      default -> part.add(row.getLong(at), weight);
    }
  }

  /** The value of a decimal is in units of its scale, which is that of all values. */
  private void addDecimal(UnsafeRow row, long weight, Part part) {
    DecimalType type = (DecimalType) types[0];
    if (type.precision() <= Decimal.MAX_LONG_DIGITS()) {
      part.add(row.getLong(at), weight);
      return;
    }
    byte[] units = row.getBinary(at); // where a row has the units of a large decimal
    if (units.length <= Long.BYTES) {
      part.add(toLong(units), weight);
    } else {
      part.add(new BigInteger(units), weight);
    }
  }

  /** A number in two's complement, as {@link BigInteger} has it, of at most eight bytes. */
  private static long toLong(byte[] bytes) {
    long found = bytes[0];
    for (int i = 1; i < bytes.length; i++) found = found << Byte.SIZE | bytes[i] & 0xff;
    return found;
  }

  void addBuffers(Key key, Object object, List<Object> out, long rows) {
    Part part = (Part) object;
    out.add(part.count == 0L && !average && buffers == 1 ? null : total(part));
    if (average) {
      out.add(part.count);
    } else if (buffers == 2) {
      out.add(part.count == 0L);
    }
  }

  private Object total(Part part) {
    if (isReal()) {
      Double exact = part.reals.value();
      return exact == null ? Double.valueOf(0.0) : exact;
    }
    if (sumType instanceof DecimalType) {
      DecimalType type = (DecimalType) sumType;
      int scale = types[0] instanceof DecimalType ? ((DecimalType) types[0]).scale() : 0;
      if (part.rest == null && scale == type.scale()) {
        Decimal small = new Decimal().setOrNull(part.units, type.precision(), scale);
        if (small != null) return small;
      }
      return Decimal.apply(new BigDecimal(part.exact(), scale), type.precision(), type.scale());
    }
    if (sumType instanceof DoubleType) return Double.valueOf(part.exact().doubleValue());
    long sum = part.exact().longValueExact();
    if (sumType instanceof YearMonthIntervalType) return Integer.valueOf(Math.toIntExact(sum));
    return Long.valueOf(sum);
  }

  void write(Object object, Bytes out) {
    Part part = (Part) object;
    out.putSmall(part.count);
    if (isReal()) {
      part.reals.write(out);
      return;
    }
    out.putSmall(part.units);
    byte[] rest = part.rest == null ? Pipe.NOTHING : part.rest.toByteArray();
    out.putSmall((long) rest.length);
    out.put(rest, 0, rest.length);
  }

  Object read(Bytes in) {
    Part part = new Part();
    part.count = in.getSmall();
    if (isReal()) {
      part.reals = ExactSum.read(in);
      return part;
    }
    part.units = in.getSmall();
    int length = (int) in.getSmall();
    if (length > 0) part.rest = new BigInteger(in.get(length));
    return part;
  }

  /** The sum of a group: units and, once these do not fit, the rest; or, of reals, an exact sum. */
  private static final class Part {
    long count;
    long units;
    BigInteger rest;
    ExactSum reals;

    void add(long value, long weight) {
      long high = Math.multiplyHigh(value, weight), low = value * weight;
      long sum = units + low;
      boolean overflows = ((units ^ sum) & (low ^ sum)) < 0L;
      if (high != low >> 63 || overflows) {
        add(BigInteger.valueOf(value), weight);
      } else {
        units = sum;
      }
    }

    void add(BigInteger value, long weight) {
      BigInteger amount = weight == 1L ? value : value.multiply(BigInteger.valueOf(weight));
      rest = rest == null ? amount : rest.add(amount);
    }

    BigInteger exact() {
      BigInteger all = BigInteger.valueOf(units);
      return rest == null ? all : all.add(rest);
    }
  }
}
