package millstream.bridge;

import java.io.DataInputStream;
import java.io.IOException;
import java.util.stream.Stream;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * A few rows that came without Arrow: of each, a number whose bits say which columns are NULL, the
 * columns of a fixed size, the lengths of the others, and their bytes. See few_rows.py.
 */
final class FewRows {
  private static final int ROWS = 64;

  private final DataType[] types;
  private final WritableColumnVector[] columns;
  private final int[] lengths;
  private final ColumnarBatch batch;

  FewRows(StructType schema) {
    types = Stream.of(schema.fields()).map(StructField::dataType).toArray(DataType[]::new);
    columns = OnHeapColumnVector.allocateColumns(ROWS, schema);
    lengths = new int[types.length];
    batch = new ColumnarBatch(columns);
  }

  /** Reads rows in the place of those before. */
  ColumnarBatch read(DataInputStream in) throws IOException {
    int rows = in.readInt();
    for (WritableColumnVector each : columns) {
      each.reset();
      each.reserve(rows);
    }
    for (int row = 0; row < rows; row++) readRow(in, row);
    batch.setNumRows(rows);
    return batch;
  }

  private void readRow(DataInputStream in, int row) throws IOException {
    long nulls = in.readLong();
    for (int i = 0; i < types.length; i++) {
      if (isText(types[i])) continue;
      readFixed(in, types[i], columns[i], row);
      if ((nulls >>> i & 1) != 0) columns[i].putNull(row);
    }
    for (int i = 0; i < types.length; i++) {
      if (isText(types[i])) lengths[i] = in.readInt();
    }
    for (int i = 0; i < types.length; i++) {
      if (!isText(types[i])) continue;
      byte[] bytes = new byte[lengths[i]];
      in.readFully(bytes);
      if ((nulls >>> i & 1) != 0) {
        columns[i].putNull(row);
      } else {
        columns[i].putByteArray(row, bytes);
      }
    }
  }

  /** Whether a value has a length of its own: texts, bytes, and decimals of many digits. */
  static boolean isText(DataType type) {
    if (type instanceof DecimalType) return !DecimalType.is64BitDecimalType(type);
    return type instanceof StringType || type instanceof BinaryType;
  }

  /** Times and intervals are microseconds, dates are days. */
  private static void readFixed(DataInputStream in, DataType type, WritableColumnVector to, int row)
      throws IOException {
    if (type instanceof BooleanType) {
      to.putBoolean(row, in.readBoolean());
    } else if (type instanceof ByteType) {
      to.putByte(row, in.readByte());
    } else if (type instanceof ShortType) {
      to.putShort(row, in.readShort());
    } else if (type instanceof IntegerType || type instanceof DateType) {
      to.putInt(row, in.readInt());
    } else if (type instanceof FloatType) {
      to.putFloat(row, in.readFloat());
    } else if (type instanceof DoubleType) {
      to.putDouble(row, in.readDouble());
    } else if (DecimalType.is32BitDecimalType(type)) {
      to.putInt(row, (int) in.readLong());
    } else {
      to.putLong(row, in.readLong());
    }
  }
}
