package millstream.dataflow;

import java.util.Arrays;

/**
 * A page of a {@link Tree}: in a leaf, rows in order, each with its weight and a note; in the
 * others, the first row and the number of each page below.
 *
 * <p>Most keys have one row or two, with weight 1 and without a note, so the arrays of weights and
 * notes exist only in pages that have others.
 */
final class Page extends StateNode {
  static final StateNode.Kind KIND = Page::read;

  /** A page without rows, which is only read. */
  static final Page EMPTY = new Page();

  private static final byte[][] NO_ROWS = {};
  private static final int ROW_BYTES = 32;
  private static final int NUMBER_BYTES = 8;
  private static final int PAGE_BYTES = 112;
  private static final int FEW = 32;

  /** The most rows that a page has; of large rows it has fewer, but {@link #SOME_ROWS}. */
  private static final int MOST_ROWS = 64;

  private static final int SOME_ROWS = 4;
  private static final int MOST_BYTES = 1 << 14;

  /** The node of the state that it is in: itself, or, of a root, one that has more than that. */
  StateNode holder = this;

  boolean isLeaf = true;
  int count;
  private int bytes;
  byte[][] rows = NO_ROWS;

  /** Null: all are 1. */
  private long[] weights;

  /**
   * In a leaf, what the operator notes for a row; else the number of the page below. Null: all 0.
   */
  private long[] notes;

  /** Of the first page, the number of the next new one. */
  int next = 1;

  @Override
  boolean isEmpty() {
    return count == 0;
  }

  @Override
  int size() {
    int ofRow = ROW_BYTES;
    if (weights != null) ofRow += NUMBER_BYTES;
    if (notes != null) ofRow += NUMBER_BYTES;
    return PAGE_BYTES + bytes + count * ofRow;
  }

  long weight(int at) {
    return weights == null ? 1L : weights[at];
  }

  long note(int at) {
    return notes == null ? 0L : notes[at];
  }

  /** Set the weight of a row. Return by how many bytes of memory the page has grown. */
  int setWeight(int at, long weight) {
    if (weights == null && weight == 1L) return 0;
    int before = size();
    if (weights == null) weights = ones(rows.length);
    weights[at] = weight;
    return size() - before;
  }

  /** Set the note of a row. Return by how many bytes of memory the page has grown. */
  int setNote(int at, long note) {
    if (notes == null && note == 0L) return 0;
    int before = size();
    if (notes == null) notes = new long[rows.length];
    notes[at] = note;
    return size() - before;
  }

  private static long[] ones(int length) {
    long[] made = new long[length];
    Arrays.fill(made, 1L);
    return made;
  }

  /** Whether it is to be split. */
  boolean isFull() {
    return count > MOST_ROWS || count > SOME_ROWS && bytes > MOST_BYTES;
  }

  /** Insert a row at a place. Return by how many bytes of memory the page has grown. */
  int insert(int at, byte[] row, long weight, long note) {
    int before = size();
    if (count == rows.length) makeRoom(count < FEW ? Math.max(1, count * 2) : count + FEW / 2);
    if (weights == null && weight != 1L) weights = ones(rows.length);
    if (notes == null && note != 0L) notes = new long[rows.length];
    shift(at, at + 1, count - at);
    rows[at] = row;
    if (weights != null) weights[at] = weight;
    if (notes != null) notes[at] = note;
    count++;
    bytes += row.length;
    return size() - before;
  }

  /** Remove the row at a place. Return by how many bytes of memory the page has grown. */
  int remove(int at) {
    int before = size();
    bytes -= rows[at].length;
    count--;
    shift(at + 1, at, count - at);
    rows[count] = null;
    return size() - before;
  }

  private void shift(int from, int to, int length) {
    if (length == 0) return;
    System.arraycopy(rows, from, rows, to, length);
    if (weights != null) System.arraycopy(weights, from, weights, to, length);
    if (notes != null) System.arraycopy(notes, from, notes, to, length);
  }

  private void makeRoom(int room) {
    rows = Arrays.copyOf(rows, room);
    if (weights != null) weights = Arrays.copyOf(weights, room);
    if (notes != null) notes = Arrays.copyOf(notes, room);
  }

  /** Replace the first row. */
  void setFirst(byte[] row) {
    bytes += row.length - rows[0].length;
    rows[0] = row;
  }

  /** Move the rows from a place on to another page, which is empty. */
  void moveTo(Page other, int from) {
    other.isLeaf = isLeaf;
    int room = count + FEW / 2;
    other.rows = Arrays.copyOfRange(rows, from, room);
    other.weights = weights == null ? null : Arrays.copyOfRange(weights, from, room);
    other.notes = notes == null ? null : Arrays.copyOfRange(notes, from, room);
    other.count = count - from;
    for (int i = from; i < count; i++) {
      other.bytes += rows[i].length;
      rows[i] = null;
    }
    bytes -= other.bytes;
    count = from;
    makeRoom(Math.max(2, from + FEW / 2)); // those of large pages are most of the memory
  }

  @Override
  void write(Bytes out) {
    out.putByte(isLeaf ? 0 : 1);
    out.putSmall(next);
    out.putSmall(count);
    for (int i = 0; i < count; i++) {
      out.putSmall(weight(i));
      out.putSmall(note(i));
      out.putSmall(rows[i].length);
      out.put(rows[i], 0, rows[i].length);
    }
  }

  private static Page read(Bytes in) {
    Page page = new Page();
    if (in == null) return page;
    page.isLeaf = in.getByte() == 0;
    page.next = (int) in.getSmall();
    int count = (int) in.getSmall();
    page.rows = new byte[Math.max(1, count)][];
    page.count = count;
    for (int i = 0; i < count; i++) {
      page.setWeight(i, in.getSmall());
      page.setNote(i, in.getSmall());
      page.rows[i] = in.get((int) in.getSmall());
      page.bytes += page.rows[i].length;
    }
    return page;
  }
}
