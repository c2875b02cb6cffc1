package millstream.functions;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.errors.QueryExecutionErrors;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

/**
 * SUM of whole numbers or decimals. Only the result has to fit its type, so whether it overflows does
 * not depend on the order of rows.
 */
final class SessionSum extends SessionPart {
  private static final int MORE_DIGITS = 10;
  private final DataType type;
  private final int scale;

  SessionSum(int value, DataType given) {
    super(value);
    if (given instanceof DecimalType) {
      DecimalType decimal = (DecimalType) given;
      scale = decimal.scale();
      int precision = Math.min(DecimalType.MAX_PRECISION(), decimal.precision() + MORE_DIGITS);
      type = DataTypes.createDecimalType(precision, scale);
    } else {
      scale = 0;
      type = DataTypes.LongType;
    }
  }

  DataType type() { return type; }

  Object of(Object given, long time, long lsn) {
    if (given == null) return null;
    if (given instanceof Decimal) return ((Decimal) given).toJavaBigDecimal().setScale(scale).unscaledValue();
    return BigInteger.valueOf(((Number) given).longValue());
  }

  Object join(Object mine, Object other) {
    if (mine == null) return other;
    return other == null ? mine : ((BigInteger) mine).add((BigInteger) other);
  }

  Object result(Object known) {
    if (known == null) return null;
    BigInteger sum = (BigInteger) known;
    if (type instanceof DecimalType) {
      int precision = ((DecimalType) type).precision();
      BigDecimal exact = new BigDecimal(sum, scale);
      if (exact.precision() > precision) throw overflow();
      return Decimal.apply(exact, precision, scale);
    }
    if (sum.bitLength() > 63) throw overflow();
    return Long.valueOf(sum.longValue());
  }

  private static ArithmeticException overflow() {
    return QueryExecutionErrors.arithmeticOverflowError("SUM in a session", "", null);
  }

  void write(Object known, Bytes out) {
    byte[] bytes = known == null ? new byte[0] : ((BigInteger) known).toByteArray();
    out.putByte(bytes.length);
    out.put(bytes, 0, bytes.length);
  }

  Object read(Bytes in) {
    int length = in.getByte();
    in.at += length;
    return length == 0 ? null : new BigInteger(in.array, in.at - length, length);
  }
}
