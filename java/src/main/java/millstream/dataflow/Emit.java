package millstream.dataflow;

import java.io.Serial;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.immutable.Seq;

/**
 * EMIT other than CHANGES, at the end of a dataflow: rows wait until they are due. By windows, a
 * row is due when the feed has passed the end that it has; by ticks, when it has passed a multiple
 * of an interval. A row that is due when it comes leaves at once.
 *
 * <p>What waits is a multiset of weighted rows in the order of their ends: an old row that goes and
 * the new one that it is, if both wait, meet there and are gone. So what has left is always the
 * rows whose end has passed, whatever steps have led there.
 */
public final class Emit extends Operator {
  @Serial private static final long serialVersionUID = 1L;
  private static final long NEVER = Long.MAX_VALUE;
  private static final long UNKNOWN = Long.MIN_VALUE;

  private final int width;
  private final int end;
  private final long lateness;
  private final long every;
  private final Seq<Expression> key;
  private final Seq<Attribute> input;
  private final Pipe pipe;

  private transient Dataflow dataflow;
  private transient Tree pending;
  private transient Tree ticks;
  private transient UnsafeProjection keyOf;
  private transient UnsafeRow row;
  private transient long limit;
  private transient long tick;
  private transient boolean isTickKnown;

  /**
   * @param port where rows come.
   * @param end the place of the column with their ends, if these are what they wait for.
   * @param lateness for how many microseconds more they wait.
   * @param every the interval of ticks in microseconds, if rows wait for these; else 0.
   * @param key the columns that distinguish rows, of which an old one leaves before its new one.
   * @param input the columns of the rows.
   * @param pipe where they go.
   */
  public Emit(
      int port,
      int end,
      long lateness,
      long every,
      Seq<Expression> key,
      Seq<Attribute> input,
      Pipe pipe) {
    super(port);
    this.width = input.size();
    this.end = end;
    this.lateness = lateness;
    this.every = every;
    this.key = key;
    this.input = input;
    this.pipe = pipe;
  }

  void open(Dataflow dataflow) {
    this.dataflow = dataflow;
    int slot = dataflow.newSlot();
    pending = new Tree(dataflow.state(), slot, null);
    ticks = new Tree(dataflow.state(), dataflow.newSlot(), null);
    keyOf = UnsafeProjection.create(key, input);
    row = new UnsafeRow(width);
    limit = UNKNOWN;
    isTickKnown = false;
    setRoots(dataflow, slot, Page.KIND);
    pipe.open(dataflow);
  }

  /** A row that is to wait is put there on arrival; one that is due waits for its turn to leave. */
  @Override
  boolean apply(StateNode root, UnsafeRow row, long lsn, long weight) {
    long at = every > 0L || row.isNullAt(end) ? NEVER : row.getLong(end);
    if (at <= limit) return false;
    byte[] of = Pipe.bytes(keyOf.apply(row));
    byte[] bytes = Pipe.bytes(row);
    ByteBuffer entry = ByteBuffer.allocate(12 + of.length + bytes.length);
    entry.putLong(at ^ Long.MIN_VALUE).putInt(of.length).put(of).put(bytes);
    pending.add((Page) root, entry.array(), weight);
    return true;
  }

  /** Have those leave that were due when they came, in the order in which they came. */
  void work(StateNode root, Change changes) {
    for (Change each = changes; each != null; each = each.next) {
      send(each.row, each.lsn, each.weight);
    }
  }

  /** The feed has passed a moment: have the rows leave that are due by then. */
  @Override
  void passed(long moment, long lsn) {
    if (every > 0L) {
      if (!advanceTick(moment)) return;
      release(NEVER, lsn);
    } else if (moment - lateness > limit) {
      limit = moment - lateness;
      release(limit, lsn);
    }
  }

  /** Note the tick that has passed; whether it is another one. */
  private boolean advanceTick(long moment) {
    if (!isTickKnown) {
      Tree.Rows stored = ticks.first(Key.NOTHING);
      tick = stored.next() ? ByteBuffer.wrap(stored.row()).getLong() : UNKNOWN;
      isTickKnown = true;
    }
    long now = Math.floorDiv(moment, every);
    if (now <= tick) return false;
    if (tick != UNKNOWN) ticks.add(Key.NOTHING, bytes(tick), -1L);
    ticks.add(Key.NOTHING, bytes(now), 1L);
    tick = now;
    return true;
  }

  private static byte[] bytes(long value) {
    return ByteBuffer.allocate(8).putLong(value).array();
  }

  /** Have the rows leave whose end has come; of those of one key, first those that go. */
  private void release(long until, long lsn) {
    byte[] ofLast = null;
    List<Waiting> coming = new ArrayList<>();
    for (Waiting each = next(until); each != null; each = next(until)) {
      if (!Arrays.equals(each.key, ofLast)) {
        sendAll(coming, lsn);
        ofLast = each.key;
      }
      if (each.weight < 0L) {
        send(each.row, lsn, each.weight);
      } else {
        coming.add(each);
      }
    }
    sendAll(coming, lsn);
  }

  private void sendAll(List<Waiting> rows, long lsn) {
    for (Waiting each : rows) send(each.row, lsn, each.weight);
    rows.clear();
  }

  /** Take out the first row that waits, if its end has come; else null. */
  private Waiting next(long until) {
    dataflow.state().makeRoom();
    Tree.Rows first = pending.first(Key.NOTHING);
    if (!first.next()) return null;
    byte[] bytes = first.row();
    ByteBuffer entry = ByteBuffer.wrap(bytes);
    if ((entry.getLong() ^ Long.MIN_VALUE) > until) return null;
    byte[] of = new byte[entry.getInt()];
    entry.get(of);
    byte[] rest = new byte[entry.remaining()];
    entry.get(rest);
    Waiting found = new Waiting(of, rest, first.weight());
    pending.add(Key.NOTHING, bytes, -found.weight);
    return found;
  }

  private void send(byte[] bytes, long lsn, long weight) {
    row.pointTo(bytes, bytes.length);
    pipe.send(row, lsn, weight);
  }

  /** A row that waits. */
  private record Waiting(byte[] key, byte[] row, long weight) {}
}
