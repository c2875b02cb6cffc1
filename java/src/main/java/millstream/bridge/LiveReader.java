package millstream.bridge;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The live tail of the log, which a dataflow takes frame by frame. Source, operators and sink share
 * one thread: so when a commit has been read to its end, the sink holds all that it led to, and
 * flushes. The database ends the batch, not the clock.
 */
public class LiveReader implements SupportsRealTimeRead<InternalRow> {
  private static final ThreadLocal<LiveReader> CURRENT = new ThreadLocal<>();

  /** So many rows of a frame, at most, a dataflow works on at once. */
  private static final int MOST_ROWS = 1 << 12;

  private final Frames frames;
  private String reached;
  private ColumnarBatch batch;
  private int from = 0;
  private int to = 0;
  private int rows = 0;
  private long lsn;
  private long at;
  private long passed = Long.MIN_VALUE;
  private Follower follower;

  LiveReader(Frames frames, String start) {
    this.frames = frames;
    this.reached = start;
    CURRENT.set(this);
  }

  /** The reader that feeds this thread, or null. */
  public static LiveReader ofThisThread() {
    return CURRENT.get();
  }

  @Override
  public SupportsRealTimeRead.RecordStatus nextWithTimeout(Long startMs, Long timeoutMs)
      throws IOException {
    return nextWithTimeout(timeoutMs);
  }

  @Override
  public SupportsRealTimeRead.RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
    return SupportsRealTimeRead.RecordStatus.newStatusWithoutArrivalTime(next());
  }

  @Override
  public boolean next() throws IOException {
    from = to;
    while (from >= rows) {
      if (batch != null) taken();
      if (!frames.next()) return end();
      batch = frames.batch();
      rows = batch.numRows();
      from = 0;
      if (rows == 0 && frames.passed() > passed) break; // there is something to do without rows
    }
    passed = frames.passed();
    at = frames.lsn();
    to = Math.min(rows, from + MOST_ROWS);
    return true;
  }

  private boolean end() throws IOException {
    if (follower != null) {
      if (!follower.isReady()) {
        follower.work();
        sink().reached(lsn, false);
      }
      follower.atEnd();
    }
    reached = frames.offset();
    from = 0;
    to = 0;
    rows = 0;
    batch = null;
    return false;
  }

  /**
   * All rows of a frame have passed the sink, or wait in the dataflow for those of the next one.
   */
  private void taken() throws IOException {
    reached = frames.offset();
    lsn = frames.lsn();
    boolean pausing = !frames.hasMore();
    boolean now = pausing || frames.isMark();
    if (follower != null && !follower.isReady()) {
      if (!now) return;
      follower.work();
    }
    sink().reached(lsn, now);
    if (pausing && follower != null) rest();
  }

  /** Leave the follower the time until there is something to read. */
  private void rest() throws IOException {
    TaskContext task = TaskContext.get();
    while (follower.atPause() && !frames.wire().hasMore()) task.killTaskIfInterrupted();
  }

  private static ChangeWriter sink() {
    ChangeWriter sink = ChangeWriter.ofThisThread();
    if (sink == null) throw ChangeWriter.apart();
    return sink;
  }

  /** What Spark gets of a frame: that it is there. */
  @Override
  public InternalRow get() {
    return new GenericInternalRow(new Object[] {frames.lsn()});
  }

  // ---- for the dataflow

  /** The rows of the frame at hand. */
  public ColumnarBatch batch() {
    return batch;
  }

  /** The first row of it to take. */
  public int from() {
    return from;
  }

  /** The row after the last one to take. */
  public int to() {
    return to;
  }

  /** Whether there are more rows in the frame, which has whole commits. */
  public boolean isInFrame() {
    return to < rows;
  }

  /** The LSN up to which everything has been sent after the frame at hand. */
  public long lsn() {
    return at;
  }

  /** Whether the feed says which moment it has passed. */
  public boolean hasPassed() {
    return passed > Long.MIN_VALUE;
  }

  /** The moment, of event time or of the clock, that the feed has passed after that frame. */
  public long passed() {
    return passed;
  }

  /** Whether more rows are there, or are on their way. */
  public boolean hasMore() {
    try {
      return to < rows || frames.hasMore();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Whether the feed is far behind, so that results may wait for more rows. */
  public boolean isBehind() {
    return frames.isBehind();
  }

  /** Set who works on the rows. */
  public void setFollower(Follower one) {
    follower = one;
  }

  /** Works on the rows, and learns where the stream pauses and where it ends. */
  public interface Follower {
    /** Whether it has worked on all rows that it was given. */
    boolean isReady();

    /** Work on those that it has not worked on. */
    void work();

    /** There is nothing to read just now, and all results are sent; whether work is left. */
    boolean atPause();

    /** All is read, and Spark has not ended the batch yet. */
    void atEnd();
  }

  @Override
  public PartitionOffset getOffset() {
    if (to < rows) throw new IllegalStateException("the batch was ended within a commit");
    return new LogStream.Reached(reached);
  }

  @Override
  public void close() {
    if (CURRENT.get() == this) CURRENT.remove();
    frames.close();
  }
}
