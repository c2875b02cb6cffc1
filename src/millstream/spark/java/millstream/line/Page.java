package millstream.line;

import java.util.Arrays;
import millstream.functions.Bytes;

/**
 * A page of a {@link Tree}: in a leaf, rows in order, each with its weight and a number besides; in
 * the others, the first row and the number of each page below.
 */
final class Page extends Kept {
  static final Kept.Kind KIND = new Pages();
  private static final int ROW_BYTES = 48;
  private static final int PAGE_BYTES = 160;
  private static final int FEW = 32;

  /** The piece of state that it is in: itself, or, of a root, one that has more than that. */
  Kept holder = this;

  boolean isLeaf = true;
  int count;
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
    int bytes = PAGE_BYTES;
    for (int i = 0; i < count; i++) bytes += rows[i].length + ROW_BYTES;
    return bytes;
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
    int after = --count - at;
    if (after > 0) {
      System.arraycopy(rows, at + 1, rows, at, after);
      System.arraycopy(weights, at + 1, weights, at, after);
      System.arraycopy(notes, at + 1, notes, at, after);
    }
    rows[count] = null;
    return grown;
  }

  /** Move the rows from a place on to another page, which is empty. */
  void moveTo(Page other, int from) {
    other.isLeaf = isLeaf;
    int room = count + FEW / 2;
    other.rows = (byte[][]) Arrays.copyOfRange(rows, from, room);
    other.weights = Arrays.copyOfRange(weights, from, room);
    other.notes = Arrays.copyOfRange(notes, from, room);
    other.count = count - from;
    for (int i = from; i < count; i++) rows[i] = null;
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
      }
      return page;
    }
  }
}
