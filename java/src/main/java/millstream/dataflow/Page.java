package millstream.dataflow;

import java.util.Arrays;

/**
 * A page of a {@link Tree}: in a leaf, rows in order, each with its weight and a number besides; in
 * the others, the first row and the number of each page below.
 */
final class Page extends Kept {
  static final Kept.Kind KIND = new Pages();
  private static final int ROW_BYTES = 48;
  private static final int PAGE_BYTES = 160;
  private static final int FEW = 32;

  /** So many rows a page has at most; fewer, but some, when they are large. */
  private static final int MOST_ROWS = 64;

  private static final int SOME_ROWS = 4;
  private static final int MOST_BYTES = 1 << 14;

  /** The piece of state that it is in: itself, or, of a root, one that has more than that. */
  Kept holder = this;

  boolean isLeaf = true;
  int count;
  private int bytes;
  byte[][] rows = new byte[2][];
  long[] weights = new long[2];

  /** In a leaf, what the operator keeps for a row; else the number of the page below. */
  long[] notes = new long[2];

  /** Of the first page, the number of the next new one. */
  int next = 1;

  boolean isEmpty() {
    return count == 0;
  }

  int size() {
    return PAGE_BYTES + bytes + count * ROW_BYTES;
  }

  /** Whether it is to be split. */
  boolean isFull() {
    return count > MOST_ROWS || count > SOME_ROWS && bytes > MOST_BYTES;
  }

  /** Put a row at a place; how many bytes of memory that takes. */
  int insert(int at, byte[] row, long weight, long note) {
    if (count == weights.length) makeRoom(count < FEW ? count * 2 : count + FEW / 2);
    int after = count - at;
    if (after > 0) {
      System.arraycopy(rows, at, rows, at + 1, after);
      System.arraycopy(weights, at, weights, at + 1, after);
      System.arraycopy(notes, at, notes, at + 1, after);
    }
    rows[at] = row;
    weights[at] = weight;
    notes[at] = note;
    count++;
    bytes += row.length;
    return row.length + ROW_BYTES;
  }

  private void makeRoom(int room) {
    rows = (byte[][]) Arrays.copyOf(rows, room);
    weights = Arrays.copyOf(weights, room);
    notes = Arrays.copyOf(notes, room);
  }

  /** Remove the row at a place; how many bytes of memory that takes. */
  int remove(int at) {
    int grown = -rows[at].length - ROW_BYTES;
    bytes -= rows[at].length;
    int after = --count - at;
    if (after > 0) {
      System.arraycopy(rows, at + 1, rows, at, after);
      System.arraycopy(weights, at + 1, weights, at, after);
      System.arraycopy(notes, at + 1, notes, at, after);
    }
    rows[count] = null;
    return grown;
  }

  /** Have another row first. */
  void setFirst(byte[] row) {
    bytes += row.length - rows[0].length;
    rows[0] = row;
  }

  /** Move the rows from a place on to another page, which is empty. */
  void moveTo(Page other, int from) {
    other.isLeaf = isLeaf;
    int room = count + FEW / 2;
    other.rows = (byte[][]) Arrays.copyOfRange(rows, from, room);
    other.weights = Arrays.copyOfRange(weights, from, room);
    other.notes = Arrays.copyOfRange(notes, from, room);
    other.count = count - from;
    for (int i = from; i < count; i++) {
      other.bytes += rows[i].length;
      rows[i] = null;
    }
    bytes -= other.bytes;
    count = from;
    makeRoom(Math.max(2, from + FEW / 2)); // those of large pages are most of the memory
  }

  void write(Bytes out) {
    out.putByte(isLeaf ? 0 : 1);
    out.putSmall((long) next);
    out.putSmall((long) count);
    for (int i = 0; i < count; i++) {
      out.putSmall(weights[i]);
      out.putSmall(notes[i]);
      out.putSmall((long) rows[i].length);
      out.put(rows[i], 0, rows[i].length);
    }
  }

  private static final class Pages implements Kept.Kind {
    public Kept read(Bytes in) {
      Page page = new Page();
      if (in == null) return page;
      page.isLeaf = in.getByte() == 0;
      page.next = (int) in.getSmall();
      int count = (int) in.getSmall(), room = Math.max(2, count + 1);
      page.rows = new byte[room][];
      page.weights = new long[room];
      page.notes = new long[room];
      page.count = count;
      for (int i = 0; i < count; i++) {
        page.weights[i] = in.getSmall();
        page.notes[i] = in.getSmall();
        page.rows[i] = in.get((int) in.getSmall());
        page.bytes += page.rows[i].length;
      }
      return page;
    }
  }
}
