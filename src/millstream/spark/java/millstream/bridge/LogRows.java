package millstream.bridge;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rows of several logs, for a line of operators: (log, LSN, weight, row), with the row as bytes
 * of Spark's UnsafeRow. After the rows of a frame comes a mark.
 */
final class LogRows {
  /** The columns that a line reads. */
  static final StructType SCHEMA =
      StructType.fromDDL("_log int, _lsn bigint, _weight bigint, _row binary");

  private static final int MARK = -1;
  private static final byte[] NOTHING = new byte[0];

  private final int log;
  private final int lsn;
  private final int weight;
  private final UnsafeProjection[] logs;

  /**
   * @param columns what the frames have: _log, _lsn and _weight, and columns of the logs.
   * @param tables the columns of each log, by the names that they have in frames; one that the
   *     frames do not have is not needed, and is NULL.
   */
  LogRows(StructType columns, StructType tables) {
    log = columns.fieldIndex("_log");
    lsn = columns.fieldIndex("_lsn");
    weight = columns.fieldIndex("_weight");
    logs = new UnsafeProjection[tables.size()];
    for (int i = 0; i < logs.length; i++) {
      StructField[] fields = ((StructType) tables.fields()[i].dataType()).fields();
      java.util.ArrayList values = new java.util.ArrayList();
      for (int j = 0; j < fields.length; j++) values.add(value(columns, fields[j]));
      logs[i] = UnsafeProjection.create(CollectionConverters.asScala(values).toSeq());
    }
  }

  private static Expression value(StructType columns, StructField field) {
    scala.Option place = columns.getFieldIndex(field.name());
    if (place.isEmpty()) return new Literal(null, field.dataType());
    return new BoundReference(((Integer) place.get()).intValue(), field.dataType(), true);
  }

  InternalRow of(InternalRow row) {
    int from = row.getInt(log);
    byte[] bytes = from < 0 ? NOTHING : logs[from].apply(row).copy().getBytes();
    return of(from, row.getLong(lsn), row.getLong(weight), bytes);
  }

  InternalRow mark(long at) {
    return of(MARK, at, 0L, NOTHING);
  }

  private static InternalRow of(int log, long lsn, long weight, byte[] row) {
    return new GenericInternalRow(
        new Object[] {Integer.valueOf(log), Long.valueOf(lsn), Long.valueOf(weight), row});
  }
}
