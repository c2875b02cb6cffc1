package millstream.dataflow;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.List;
import millstream.bridge.ChangeWriter;
import millstream.bridge.LiveReader;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.Iterator$;

/**
 * A dataflow, as one processor of Spark's. What Spark hands it is that a frame of the feed is
 * there, or a part of a large one: its rows go through the entry to the operators, these work one
 * after the other, each on all that the ones before it have sent, and what leaves the last one is
 * written to the sink. Reader, dataflow and sink share one thread, so rows need not pass through
 * Spark.
 *
 * <p>Spark keeps the state, as part of its checkpoint.
 */
public final class Dataflow extends StatefulProcessor<byte[], Row, Long>
    implements LiveReader.Follower, Serializable {
  /** The port of what leaves the dataflow. */
  static final int SINK = 0;

  /** So many rows, at most, wait for each other while there is more to read. */
  private static final int MOST_ROWS = 1 << 18;

  /** So many wait when the state of their keys leaves little room. */
  private static final int FEW_ROWS = 1 << 12;

  private static final long serialVersionUID = 1L;

  private final String feed;
  private final Entry entry;
  private final Operator[] operators;
  private transient State state;
  private transient LiveReader reader;
  private transient int slots;
  private transient int waiting;
  private transient int mostWaiting;
  private transient long since;
  private transient long effort;

  Dataflow(String feed, Entry entry, List<Operator> operators) {
    this.feed = feed;
    this.entry = entry;
    this.operators = operators.toArray(Operator[]::new);
  }

  /**
   * A dataflow over a feed, which gives no rows to Spark.
   *
   * @param name that of the feed.
   * @param columns what frames have, as JSON.
   * @param logs the columns of each log, see {@link Entry}, as JSON.
   */
  public static Dataset<Long> connect(
      Dataset<Row> feed,
      String name,
      Entry entry,
      List<Operator> operators,
      String columns,
      String logs) {
    entry.setColumns((StructType) DataType.fromJson(columns), (StructType) DataType.fromJson(logs));
    return feed.coalesce(1)
        .groupByKey(new OneKey(), Encoders.BINARY())
        .transformWithState(
            new Dataflow(name, entry, operators),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.LONG());
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    state =
        new State(feed, getHandle().getValueState("state", Encoders.BINARY(), TTLConfig.NONE()));
    if (TaskContext.get() == null) return; // the driver only looks which state there is
    slots = 0;
    mostWaiting = MOST_ROWS;
    for (Operator each : operators) each.open(this);
    entry.open(this);
  }

  @Override
  public Iterator<Long> handleInputRows(byte[] key, Iterator<Row> frames, TimerValues timers) {
    while (frames.hasNext()) {
      frames.next();
      if (reader == null) begin();
      take();
    }
    State.setKey(key);
    return Iterator$.MODULE$.empty();
  }

  /**
   * Take the rows at hand. While there is more to read, they wait for those to come, but no longer
   * than the work on those before has taken, unless the feed is far behind: the more of them are
   * worked on at once, the less a row costs. The state of their keys stays at hand until then.
   */
  private void take() {
    if (waiting == 0) since = System.nanoTime();
    entry.take(reader);
    waiting += Math.max(1, reader.to() - reader.from());
    state.makeRoom();
    if (!waits()) work();
  }

  /**
   * Whether the rows at hand are to wait; those of a commit do not leave it, unless it is large.
   */
  private boolean waits() {
    if (state.isCrowded() || waiting >= MOST_ROWS || !reader.hasMore()) return false;
    if (reader.isInFrame()) return true;
    if (waiting >= mostWaiting) return false;
    return reader.isBehind() || System.nanoTime() - since <= effort;
  }

  @Override
  public void work() {
    long begun = System.nanoTime();
    try {
      for (Operator each : operators) each.workAll();
    } catch (RuntimeException e) {
      throw Pipe.FailedRow.of(e, "");
    }
    boolean advanced = entry.advance();
    for (Operator each : operators) {
      if (advanced || each.isDue()) each.expire(entry.watermark());
    }
    if (reader != null && reader.hasPassed() && !reader.isInFrame()) {
      passed(reader.passed(), reader.lsn());
    }
    mostWaiting = state.isCrowded() ? FEW_ROWS : Math.min(mostWaiting * 2, MOST_ROWS);
    state.settle();
    waiting = 0;
    effort = System.nanoTime() - begun;
  }

  /** The feed has passed a moment with the commit of an LSN, on whose rows all have worked. */
  void passed(long moment, long lsn) {
    for (int i = 0; i < operators.length; i++) operators[i].passed(moment, lsn);
  }

  /**
   * Work on what waits at an operator and those after it, though one before it is still at work:
   * more than there is room for would wait, such as all the matches of one row.
   */
  void workFrom(Operator first) {
    state.hold(1);
    int at = 0;
    while (operators[at] != first) at++;
    for (int i = at; i < operators.length; i++) operators[i].workAll();
    state.hold(-1);
  }

  @Override
  public boolean isReady() {
    return waiting == 0;
  }

  @Override
  public boolean atPause() {
    return state.atPause();
  }

  @Override
  public void atEnd() {
    state.atEnd();
  }

  private void begin() {
    reader = LiveReader.ofThisThread();
    if (reader == null) throw ChangeWriter.apart();
    reader.setFollower(this);
    state.begin();
  }

  @Override
  public void close() {
    state.close();
  }

  /**
   * How many rows the state of a feed's dataflow has, and how many bytes; null: that is not known.
   */
  public static long[] sizeOf(String feed) {
    return State.sizeOf(feed);
  }

  // ---- what operators and pipes ask for

  State state() {
    return state;
  }

  /** The watermark after the rows at hand; the least there is without one. */
  long watermark() {
    return entry.watermark();
  }

  /** The number of a new part of the state; always the same for the same operators. */
  int newSlot() {
    return slots++;
  }

  /** The operator that takes the rows of a port; null for the sink. */
  Operator at(int port) {
    for (Operator each : operators) if (each.takes(port)) return each;
    if (port != SINK) throw new IllegalStateException("no operator has port " + port);
    return null;
  }

  /** Write a row of the result. */
  static void write(UnsafeRow row, long lsn, long weight) {
    try {
      ChangeWriter.ofThisThread().write(row, lsn, weight);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** All that the dataflow does, it does for one key of Spark's. */
  public static class OneKey implements MapFunction<Row, byte[]> {
    private static final long serialVersionUID = 1L;

    @Override
    public byte[] call(Row row) {
      return Pipe.NOTHING;
    }
  }
}
