package millstream.dataflow;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * A byte array that grows while it is written, and is read from a place that moves on. Big-endian.
 */
final class Bytes {
  byte[] array;
  int at;
  private ByteBuffer view;

  /** To write. */
  Bytes(int capacity) {
    this(new byte[capacity], 0);
  }

  /** To read. */
  Bytes(byte[] array, int at) {
    this.array = array;
    this.at = at;
    this.view = ByteBuffer.wrap(array);
  }

  void putByte(int value) {
    reserve(1);
    array[at++] = (byte) value;
  }

  void putInt(int value) {
    reserve(4);
    view.putInt(at, value);
    at += 4;
  }

  void putLong(long value) {
    reserve(8);
    view.putLong(at, value);
    at += 8;
  }

  /** A number that is small most of the time, in one byte or a few. */
  void putSmall(long value) {
    long left = (value << 1) ^ (value >> 63);
    reserve(10);
    while ((left & ~0x7fL) != 0L) {
      array[at++] = (byte) (left | 0x80L);
      left >>>= 7;
    }
    array[at++] = (byte) left;
  }

  long getSmall() {
    long found = 0L;
    for (int shift = 0; ; shift += 7) {
      byte part = array[at++];
      found |= (long) (part & 0x7f) << shift;
      if (part >= 0) return (found >>> 1) ^ -(found & 1L);
    }
  }

  /** The next bytes. */
  byte[] get(int length) {
    at += length;
    return Arrays.copyOfRange(array, at - length, at);
  }

  void put(byte[] from, int start, int length) {
    reserve(length);
    System.arraycopy(from, start, array, at, length);
    at += length;
  }

  byte getByte() {
    return array[at++];
  }

  int getInt() {
    at += 4;
    return view.getInt(at - 4);
  }

  long getLong() {
    at += 8;
    return view.getLong(at - 8);
  }

  /** A copy of what was written so far. */
  byte[] copy() {
    return Arrays.copyOf(array, at);
  }

  private void reserve(int more) {
    if (array.length - at >= more) return;
    array =
        Arrays.copyOf(array, Math.max(Math.addExact(at, more), array.length + (array.length >> 1)));
    view = ByteBuffer.wrap(array);
  }
}
