package millstream.functions;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** COUNT(*), or COUNT of a value: how many are not NULL. */
final class SessionCount extends SessionPart {
  SessionCount(int value) { super(value); }

  DataType type() { return DataTypes.LongType; }

  Object of(Object given, long time, long lsn) {
    return Long.valueOf(value >= 0 && given == null ? 0L : 1L);
  }

  Object join(Object mine, Object other) {
    return Long.valueOf(((Long) mine).longValue() + ((Long) other).longValue());
  }

  Object result(Object known) { return known; }

  void write(Object known, Bytes out) { out.putLong(((Long) known).longValue()); }

  Object read(Bytes in) { return Long.valueOf(in.getLong()); }
}
