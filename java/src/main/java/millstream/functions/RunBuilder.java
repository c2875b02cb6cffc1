package millstream.functions;

import java.util.Arrays;

/** Writes a run, record after record in their order; whole stretches of other runs are copied at once. */
final class RunBuilder {
  private static final int UNKNOWN = -1, VARIES = 0;

  private final Bytes out;
  private int size = 0;
  private int width = UNKNOWN;
  private int[] ends = new int[0];

  /** Room for so many bytes is made at once; more may follow. */
  RunBuilder(int capacity) {
    out = new Bytes(Run.HEADER + capacity);
    out.at = Run.HEADER;
  }

  void add(byte[] from, int start, int end) {
    widen(end - start, 1);
    out.put(from, start, end - start);
    if (width == VARIES) ends[size] = out.at;
    size++;
  }

  /** Adds the records of a run from one to (not including) another. */
  void addAll(Run run, int from, int to) {
    if (from == to) return;
    widen(run.width(), to - from);
    int start = run.start(from), shift = out.at - start;
    out.put(run.bytes, start, run.start(to) - start);
    if (width == VARIES) for (int i = from; i < to; i++) ends[size + i - from] = run.end(i) + shift;
    size += to - from;
  }

  Run finish() {
    if (size == 0) return Run.EMPTY;
    if (width == VARIES) for (int i = 0; i < size; i++) out.putInt(ends[i]);
    byte[] bytes = out.written();
    Bytes header = new Bytes(bytes, 0);
    header.putInt(size);
    header.putInt(width);
    return new Run(bytes);
  }

  /** Prepares for records of a length: once lengths differ, their ends are written down. */
  private void widen(int length, int records) {
    if (width == UNKNOWN) width = length;
    boolean varies = width == VARIES;
    if (!varies && width == length) return;
    if (ends.length < size + records) ends = Arrays.copyOf(ends, Math.max(size + records, 2 * size + 16));
    if (!varies) for (int i = 0; i < size; i++) ends[i] = Run.HEADER + (i + 1) * width;
    width = VARIES;
  }
}
