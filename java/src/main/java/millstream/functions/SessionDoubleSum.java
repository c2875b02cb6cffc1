package millstream.functions;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** SUM of DOUBLE or FLOAT, exact until it is read: sessions grow together in any order. */
final class SessionDoubleSum extends SessionPart {
  SessionDoubleSum(int value) { super(value); }

  DataType type() { return DataTypes.DoubleType; }

  Object of(Object given, long time, long lsn) {
    ExactSum sum = new ExactSum();
    if (given != null) sum.add(((Number) given).doubleValue(), 1L);
    return sum;
  }

  Object join(Object mine, Object other) {
    ((ExactSum) mine).add((ExactSum) other);
    return mine;
  }

  Object result(Object known) { return ((ExactSum) known).value(); }

  void write(Object known, Bytes out) { ((ExactSum) known).write(out); }

  Object read(Bytes in) { return ExactSum.read(in); }
}
