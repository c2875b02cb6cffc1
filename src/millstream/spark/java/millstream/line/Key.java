package millstream.line;

import java.util.Arrays;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** What state is found by: an operator's slot, the bytes of a key, and a page of that key. */
final class Key {
  static final Key NOTHING = new Key(Pipe.NOTHING);

  final byte[] bytes;
  private final int slot;
  private final int page;
  private final int ofBytes;
  private final int hash;

  /** A key by itself. */
  Key(byte[] bytes) {
    this(
        bytes,
        Murmur3_x86_32.hashUnsafeBytes(bytes, (long) Platform.BYTE_ARRAY_OFFSET, bytes.length, 42),
        0,
        0);
  }

  private Key(byte[] bytes, int ofBytes, int slot, int page) {
    this.bytes = bytes;
    this.ofBytes = ofBytes;
    this.slot = slot;
    this.page = page;
    this.hash = (ofBytes * 31 + slot) * 31 + page;
  }

  /** A page of this key, of an operator's slot. */
  Key at(int otherSlot, int otherPage) {
    return new Key(bytes, ofBytes, otherSlot, otherPage);
  }

  int page() {
    return page;
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
