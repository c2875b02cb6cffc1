package millstream.bridge;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The live tail of the log, row by row. Source, operators and sink share one thread, and a row has
 * reached the sink before the next one is asked for: so when a commit has been read to its end, the
 * sink holds all that it led to, and flushes. The database ends the batch, not the clock.
 */
public class LiveReader implements SupportsRealTimeRead {
  private static final ThreadLocal CURRENT = new ThreadLocal();

  /** So many rows of a frame, at most, wait in the operators of a line before these work. */
  private static final int MOST_UNMARKED = 1 << 16;

  private final Frames frames;
  private final LogRows line;
  private String reached;
  private ColumnarBatch batch;
  private int row = -1;
  private int rows = 0;
  private boolean atMark;
  private boolean ended;
  private int unmarked;

  /** A reader for a line of operators if that is not null. */
  LiveReader(Frames frames, String start, LogRows line) {
    this.frames = frames;
    this.line = line;
    this.reached = start;
    CURRENT.set(this);
  }

  /** The reader that feeds this thread, or null. */
  static LiveReader ofThisThread() {
    return (LiveReader) CURRENT.get();
  }

  public SupportsRealTimeRead.RecordStatus nextWithTimeout(Long startMs, Long timeoutMs)
      throws IOException {
    return nextWithTimeout(timeoutMs);
  }

  public SupportsRealTimeRead.RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
    return SupportsRealTimeRead.RecordStatus.newStatusWithoutArrivalTime(next());
  }

  public boolean next() throws IOException {
    atMark = false;
    if (line != null && unmarked >= MOST_UNMARKED && row + 1 < rows) return mark();
    while (++row >= rows) {
      if (batch != null && line != null && !ended) {
        ended = true;
        return mark();
      }
      if (batch != null) taken();
      if (!frames.next()) {
        reached = frames.offset();
        rows = 0;
        row = -1;
        batch = null;
        return false;
      }
      batch = frames.batch();
      rows = batch.numRows();
      row = -1;
      ended = false;
    }
    unmarked++;
    return true;
  }

  private boolean mark() {
    unmarked = 0;
    atMark = true;
    return true;
  }

  /** All rows of a frame have passed the sink. */
  private void taken() throws IOException {
    reached = frames.offset();
    ChangeWriter sink = ChangeWriter.ofThisThread();
    if (sink == null) throw ChangeWriter.apart();
    sink.reached(frames.lsn(), !frames.wire().hasMore());
  }

  public Object get() {
    if (atMark) return line.mark(frames.lsn());
    InternalRow found = batch.getRow(row);
    return line == null ? found : line.of(found);
  }

  public PartitionOffset getOffset() {
    if (row + 1 < rows || (batch != null && line != null && !ended)) throw new IllegalStateException("the batch was ended within a commit");
    return new LogStream.Reached(reached);
  }

  public void close() {
    if (CURRENT.get() == this) CURRENT.remove();
    frames.close();
  }
}
