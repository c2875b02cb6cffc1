package millstream.dataflow;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** The bytes of a key, or of a row, with their hash. */
final class Key {
  static final Key NOTHING = new Key(Pipe.NOTHING);

  final byte[] bytes;
  final int hash;

  Key(byte[] bytes) {
    this(bytes, hashOf(bytes, (long) Platform.BYTE_ARRAY_OFFSET, bytes.length));
  }

  private Key(byte[] bytes, int hash) {
    this.bytes = bytes;
    this.hash = hash;
  }

  /** A key of a row's bytes, which are copied. */
  static Key copyOf(UnsafeRow row, int hash) {
    return new Key(Pipe.bytes(row), hash);
  }

  static int hashOf(UnsafeRow row) {
    return hashOf(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes());
  }

  private static int hashOf(Object base, long offset, int length) {
    return Murmur3_x86_32.hashUnsafeBytes(base, offset, length, 42);
  }

  /** Whether a row has these bytes. */
  boolean is(UnsafeRow row) {
    return row.getSizeInBytes() == bytes.length
        && ByteArrayMethods.arrayEquals(
            row.getBaseObject(),
            row.getBaseOffset(),
            bytes,
            (long) Platform.BYTE_ARRAY_OFFSET,
            (long) bytes.length);
  }

  public int hashCode() {
    return hash;
  }

  public boolean equals(Object object) {
    Key other = (Key) object;
    return this == other || (hash == other.hash && Arrays.equals(bytes, other.bytes));
  }
}
