package millstream.dataflow;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

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

  /** Most bytes are those of rows, which are whole words. */
  private static int hashOf(Object base, long offset, int length) {
    long hash = length;
    int words = length & -Long.BYTES;
    for (int i = 0; i < words; i += Long.BYTES)
      hash = mixed(hash, Platform.getLong(base, offset + i));
    for (int i = words; i < length; i++) hash = mixed(hash, Platform.getByte(base, offset + i));
    return (int) hash;
  }

  private static long mixed(long hash, long word) {
    long product = (hash ^ word) * 0x9e3779b97f4a7c15L;
    return product ^ product >>> 32;
  }

  /** Whether a row has these bytes, which are whole words. */
  boolean is(UnsafeRow row) {
    int length = row.getSizeInBytes();
    if (length != bytes.length) return false;
    Object base = row.getBaseObject();
    long offset = row.getBaseOffset();
    for (int i = 0; i < length; i += Long.BYTES) {
      long word = Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + i);
      if (word != Platform.getLong(base, offset + i)) return false;
    }
    return true;
  }

  public int hashCode() {
    return hash;
  }

  public boolean equals(Object object) {
    Key other = (Key) object;
    return this == other || (hash == other.hash && Arrays.equals(bytes, other.bytes));
  }
}
