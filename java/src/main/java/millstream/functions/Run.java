package millstream.functions;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Sorted records in one byte array, which is also how they are stored: nothing is unpacked to look at
 * one. Layout: how many, their length (0 when it varies), the records, where each ends (when it varies).
 */
final class Run {
  static final int HEADER = 8;
  static final Run EMPTY = new Run(new byte[HEADER]);

  final byte[] bytes;
  final int size;
  private final int width;
  private final ByteBuffer view;
  private final int ends;

  Run(byte[] bytes) {
    this.bytes = bytes;
    this.view = ByteBuffer.wrap(bytes);
    this.size = view.getInt(0);
    this.width = view.getInt(4);
    this.ends = bytes.length - 4 * size;
  }

  /** Where a record begins; of the number after the last one: where the records end. */
  int start(int index) {
    if (width > 0) return HEADER + index * width;
    return index == 0 ? HEADER : view.getInt(ends + 4 * (index - 1));
  }

  int end(int index) { return start(index + 1); }

  /** The length of all records, or 0 when they differ. */
  int width() { return width; }

  /** Whether a record begins with a key. */
  boolean startsWith(int index, byte[] key, int from, int to) { return compare(index, key, from, to) == 0; }

  /** The first record, not before a given one, that is not less than a key. */
  int find(byte[] key, int from, int to, int first) {
    int low = first, step = 1;
    // Steps that double find near places quickly, so that merging two long runs stays linear.
    while (low + step <= size && compare(low + step - 1, key, from, to) < 0) {
      low += step;
      step *= 2;
    }
    int high = Math.min(low + step - 1, size);
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (compare(middle, key, from, to) < 0) low = middle + 1; else high = middle;
    }
    return low;
  }

  private int compare(int index, byte[] key, int from, int to) {
    int start = start(index);
    return Arrays.compareUnsigned(bytes, start, Math.min(end(index), start + to - from), key, from, to);
  }
}
