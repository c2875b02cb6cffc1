package millstream.functions;

import java.util.Arrays;
import org.apache.spark.sql.types.DataType;

/** MIN and MAX of what is not NULL; FIRST and LAST by time, then LSN: the least or greatest bytes. */
final class SessionEdge extends SessionPart {
  private static final int PLACE = 16;
  private final DataType type;
  private final Codec codec;
  private final boolean byTime;
  private final boolean greatest;

  SessionEdge(int value, DataType type, Codec codec, boolean byTime, boolean greatest) {
    super(value);
    this.type = type;
    this.codec = codec;
    this.byTime = byTime;
    this.greatest = greatest;
  }

  DataType type() { return type; }

  Object of(Object given, long time, long lsn) {
    if (given == null && !byTime) return null;
    Bytes out = new Bytes(32);
    if (byTime) {
      out.putLong(time ^ Long.MIN_VALUE);
      out.putLong(lsn ^ Long.MIN_VALUE);
    }
    codec.writeNullable(given, out);
    return out.written();
  }

  Object join(Object mine, Object other) {
    if (mine == null) return other;
    if (other == null) return mine;
    int order = Arrays.compareUnsigned((byte[]) mine, (byte[]) other);
    return (order < 0) == greatest ? other : mine;
  }

  Object result(Object known) {
    return known == null ? null : codec.readNullable(new Bytes((byte[]) known, byTime ? PLACE : 0));
  }

  void write(Object known, Bytes out) {
    byte[] bytes = known == null ? new byte[0] : (byte[]) known;
    out.putInt(bytes.length);
    out.put(bytes, 0, bytes.length);
  }

  Object read(Bytes in) {
    int length = in.getInt();
    in.at += length;
    return length == 0 ? null : Arrays.copyOfRange(in.array, in.at - length, in.at);
  }
}
