package millstream.bridge;

import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;

/** Writes a few rows as FewRows reads them, and few_rows.py. */
final class FewWriter {
  private static final int MOST_COLUMNS = 63;
  private static final byte[] NOTHING = new byte[0];

  private final DataType[] types;
  private final byte[][] texts;

  private FewWriter(DataType[] types) {
    this.types = types;
    this.texts = new byte[types.length][];
  }

  /** A writer of such rows; null if they cannot be written so. */
  static FewWriter of(StructType schema) {
    DataType[] types = new DataType[schema.length()];
    for (int i = 0; i < types.length; i++) {
      types[i] = schema.fields()[i].dataType();
      boolean nested = types[i] instanceof ArrayType || types[i] instanceof MapType;
      if (nested || types[i] instanceof StructType) return null;
    }
    return types.length > MOST_COLUMNS ? null : new FewWriter(types);
  }

  void write(InternalRow row, DataOutputStream out) throws IOException {
    long nulls = 0;
    for (int i = 0; i < types.length; i++) {
      if (row.isNullAt(i)) nulls |= 1L << i;
    }
    out.writeLong(nulls);
    for (int i = 0; i < types.length; i++) {
      if (FewRows.isText(types[i])) {
        texts[i] = row.isNullAt(i) ? NOTHING : text(row, i);
      } else {
        writeFixed(row, i, row.isNullAt(i), out);
      }
    }
    for (int i = 0; i < types.length; i++) {
      if (FewRows.isText(types[i])) out.writeInt(texts[i].length);
    }
    for (int i = 0; i < types.length; i++) {
      if (FewRows.isText(types[i])) out.write(texts[i]);
    }
  }

  private byte[] text(InternalRow row, int place) {
    DataType type = types[place];
    if (type instanceof StringType) return row.getUTF8String(place).getBytes();
    if (type instanceof BinaryType) return row.getBinary(place);
    DecimalType decimal = (DecimalType) type;
    return row.getDecimal(place, decimal.precision(), decimal.scale())
        .toJavaBigDecimal()
        .unscaledValue()
        .toByteArray();
  }

  private void writeFixed(InternalRow row, int place, boolean isNull, DataOutputStream out)
      throws IOException {
    DataType type = types[place];
    if (type instanceof BooleanType) {
      out.writeBoolean(!isNull && row.getBoolean(place));
    } else if (type instanceof ByteType) {
      out.writeByte(isNull ? 0 : (int) row.getByte(place));
    } else if (type instanceof ShortType) {
      out.writeShort(isNull ? 0 : (int) row.getShort(place));
    } else if (type instanceof IntegerType || type instanceof DateType) {
      out.writeInt(isNull ? 0 : row.getInt(place));
    } else if (type instanceof FloatType) {
      out.writeFloat(isNull ? 0F : row.getFloat(place));
    } else if (type instanceof DoubleType) {
      out.writeDouble(isNull ? 0D : row.getDouble(place));
    } else if (type instanceof DecimalType of) {
      out.writeLong(
          isNull ? 0L : row.getDecimal(place, of.precision(), of.scale()).toUnscaledLong());
    } else {
      out.writeLong(isNull ? 0L : row.getLong(place));
    }
  }
}
