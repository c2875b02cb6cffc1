package millstream.line;

import java.util.Arrays;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** What state is found by: an operator's slot, the bytes of a key, and a page of that key. */
final class Key {
  final int slot;
  final int page;
  final byte[] bytes;
  private final int hash;

  Key(int slot, byte[] bytes, int page) {
    this.slot = slot;
    this.page = page;
    this.bytes = bytes;
    int seed = slot * 31 + page;
    this.hash =
        Murmur3_x86_32.hashUnsafeBytes(bytes, (long) Platform.BYTE_ARRAY_OFFSET, bytes.length, seed);
  }

  public int hashCode() {
    return hash;
  }

  public boolean equals(Object object) {
    Key other = (Key) object;
    return hash == other.hash
        && slot == other.slot
        && page == other.page
        && Arrays.equals(bytes, other.bytes);
  }

  /** The key as Spark's state has it. */
  byte[] packed() {
    int length = bytes.length;
    byte[] packed = Arrays.copyOf(bytes, length + 6);
    packed[length] = (byte) (slot >> 8);
    packed[length + 1] = (byte) slot;
    for (int i = 0; i < 4; i++) packed[length + 2 + i] = (byte) (page >> (24 - 8 * i));
    return packed;
  }
}
