package millstream.functions;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;

/** One aggregate of a session. What it knows of some rows is an object, or null for nothing yet. */
abstract class SessionPart {
  /** Which value it takes, counted from 0; below that, none. */
  final int value;

  SessionPart(int value) { this.value = value; }

  /** The type of its result. */
  abstract DataType type();

  /** What it knows after one row. */
  abstract Object of(Object value, long time, long lsn);

  /** What it knows of two sets of rows together, given what it knows of each. May change the first. */
  abstract Object join(Object mine, Object other);

  abstract Object result(Object known);

  abstract void write(Object known, Bytes out);

  abstract Object read(Bytes in);

  /**
   * Reads a list such as "count;count:0;sum:0;first:1": names, and the number of the value they take.
   *
   * @throws IllegalArgumentException with a message for people
   */
  static SessionPart[] parse(String spec, DataType[] values) {
    String[] words = spec.isEmpty() ? new String[0] : spec.split(";");
    SessionPart[] parts = new SessionPart[words.length];
    for (int i = 0; i < words.length; i++) {
      String[] halves = words[i].split(":");
      if (halves.length == 1 && halves[0].equals("count")) {
        parts[i] = new SessionCount(-1);
        continue;
      }
      int value = halves.length == 2 && halves[1].matches("[0-9]{1,4}") ? Integer.parseInt(halves[1]) : -1;
      if (value < 0 || value >= values.length) throw new IllegalArgumentException("cannot read " + words[i]);
      parts[i] = make(halves[0], value, values[value]);
    }
    return parts;
  }

  private static SessionPart make(String name, int value, DataType type) {
    if (name.equals("count")) return new SessionCount(value);
    if (name.equals("sum")) return sum(value, type);
    boolean byTime = name.equals("first") || name.equals("last");
    boolean greatest = name.equals("max") || name.equals("last");
    if (!byTime && !greatest && !name.equals("min")) throw new IllegalArgumentException("no aggregate " + name);
    Codec codec = Codec.of(type);
    if (codec == null) throw new IllegalArgumentException("values of type " + type.sql() + " cannot be ordered");
    return new SessionEdge(value, type, codec, byTime, greatest);
  }

  private static SessionPart sum(int value, DataType type) {
    if (type instanceof DoubleType || type instanceof FloatType) return new SessionDoubleSum(value);
    if (type instanceof DecimalType || type instanceof IntegralType) return new SessionSum(value, type);
    throw new IllegalArgumentException("values of type " + type.sql() + " cannot be added");
  }
}
