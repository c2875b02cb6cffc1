package millstream.functions;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.AnyDataType$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.collection.immutable.Seq;

/**
 * ms_sessions(ts, lsn, gap in microseconds, spec, v0, v1, ...): the group's sessions, sorted by start,
 * as an array of structs _start, _end, a0, a1, ... with one aggregate per word of the spec.
 */
public final class SessionAggregate extends StateAggregate {
  private static final int TIME = 0, LSN = 1, GAP = 2, SPEC = 3, FIXED = 4;
  private transient SessionPart[] parts;
  private transient long gap;

  public SessionAggregate(String name, Seq children, int mutableOffset, int inputOffset) {
    super(name, children, mutableOffset, inputOffset);
  }

  protected StateAggregate copy(Seq children, int mutableOffset, int inputOffset) {
    return new SessionAggregate(prettyName(), children, mutableOffset, inputOffset);
  }

  protected AbstractDataType[] argumentTypes() {
    AbstractDataType[] types = new AbstractDataType[arguments()];
    for (int i = 0; i < types.length; i++) types[i] = AnyDataType$.MODULE$;
    types[LSN] = DataTypes.LongType;
    types[GAP] = DataTypes.LongType;
    types[SPEC] = DataTypes.StringType;
    return types;
  }

  protected String objection() {
    DataType time = argument(TIME).dataType();
    if (!(time instanceof TimestampType || time instanceof TimestampNTZType)) {
      return "the time must be a TIMESTAMP, not " + time.sql();
    }
    if (!argument(GAP).foldable() || !argument(SPEC).foldable()) return "gap and spec must be literals";
    try {
      parts();
    } catch (IllegalArgumentException e) {
      return e.getMessage();
    }
    return gap > 0L ? null : "the gap must be longer than nothing";
  }

  private SessionPart[] parts() {
    if (parts == null) {
      DataType[] values = new DataType[arguments() - FIXED];
      for (int i = 0; i < values.length; i++) values[i] = argument(FIXED + i).dataType();
      gap = number(GAP, null);
      parts = SessionPart.parse(String.valueOf(argument(SPEC).eval(null)), values);
    }
    return parts;
  }

  public boolean nullable() { return false; }

  public DataType dataType() {
    SessionPart[] parts = parts();
    StructField[] fields = new StructField[parts.length + 2];
    fields[0] = DataTypes.createStructField("_start", argument(TIME).dataType(), false);
    fields[1] = DataTypes.createStructField("_end", argument(TIME).dataType(), false);
    for (int i = 0; i < parts.length; i++) {
      fields[i + 2] = DataTypes.createStructField("a" + i, parts[i].type(), true);
    }
    return DataTypes.createArrayType(DataTypes.createStructType(fields), false);
  }

  public Object createAggregationBuffer() { return deserialize(Run.EMPTY.bytes); }

  public Object update(Object state, InternalRow row) {
    Object time = argument(TIME).eval(row);
    if (time == null) return state;
    long at = ((Long) time).longValue(), lsn = number(LSN, row);
    SessionPart[] parts = parts();
    Object[] known = new Object[parts.length];
    for (int i = 0; i < parts.length; i++) {
      int value = parts[i].value;
      known[i] = parts[i].of(value < 0 ? null : argument(FIXED + value).eval(row), at, lsn);
    }
    ((Sessions) state).add(new Session(at, at, known));
    return state;
  }

  public Object merge(Object state, Object other) {
    ((Sessions) state).addAll((Sessions) other);
    return state;
  }

  public Object eval(Object state) {
    SessionPart[] parts = parts();
    Run run = ((Sessions) state).run();
    Object[] rows = new Object[run.size];
    for (int i = 0; i < run.size; i++) {
      Session session = Session.read(run, i, parts);
      Object[] row = new Object[parts.length + 2];
      row[0] = Long.valueOf(session.start);
      row[1] = Long.valueOf(Math.addExact(session.last, gap));
      for (int p = 0; p < parts.length; p++) row[p + 2] = parts[p].result(session.known[p]);
      rows[i] = new GenericInternalRow(row);
    }
    return new GenericArrayData(rows);
  }

  public byte[] serialize(Object state) { return ((Sessions) state).run().bytes; }

  public Object deserialize(byte[] bytes) {
    SessionPart[] parts = parts();
    return new Sessions(parts, gap, new Run(bytes));
  }
}
