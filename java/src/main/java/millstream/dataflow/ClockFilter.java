package millstream.dataflow;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.immutable.Seq;

/**
 * A filter by the time of the clock's log: a row passes from one moment on, up to another one, or
 * for several such spans if OR joins alternatives. The state has the rows that are to come and
 * those that are to go, in the order of these moments; a tick of the clock concerns the first of
 * them. A span that is over leaves no state.
 */
public class ClockFilter extends Operator {
  private static final long serialVersionUID = 1L;
  private static final long NEVER = Long.MAX_VALUE;
  private static final long ALWAYS = Long.MIN_VALUE;

  private final int rowPort;
  private final int tickPort;
  private final int width;
  private final Seq<Expression> values;
  private final Seq<Attribute> input;
  private final int alternatives;
  private final ArrayList<Bound> bounds = new ArrayList<>();
  private final Pipe pipe;
  private transient Tree clock;
  private transient Tree coming;
  private transient Tree going;
  private transient UnsafeProjection valuesOf;
  private transient UnsafeRow row;
  private transient boolean isKnown;
  private transient long now;

  /**
   * @param rowPort where rows come, and go.
   * @param tickPort where the time comes: rows of one timestamp.
   * @param values for each alternative a condition on the row, then the expressions of timestamps
   *     that the time is compared with.
   * @param alternatives how many there are.
   * @param input the columns of the rows.
   * @param pipe where the result goes.
   */
  public ClockFilter(
      int rowPort,
      int tickPort,
      Seq<Expression> values,
      int alternatives,
      Seq<Attribute> input,
      Pipe pipe) {
    super(rowPort, tickPort);
    this.rowPort = rowPort;
    this.tickPort = tickPort;
    this.width = input.size();
    this.values = values;
    this.alternatives = alternatives;
    this.input = input;
    this.pipe = pipe;
  }

  /**
   * Say what the next of the times is.
   *
   * @param of which alternative it belongs to.
   * @param isEnd whether a row goes at that moment, and is not there any more; else it comes.
   * @param shift how many microseconds are added to it.
   */
  public void addBound(int of, boolean isEnd, long shift) {
    bounds.add(new Bound(of, isEnd, shift));
  }

  @Override
  void open(Dataflow dataflow) {
    int slot = dataflow.newSlot();
    clock = new Tree(dataflow.state(), slot, null);
    coming = new Tree(dataflow.state(), dataflow.newSlot(), null);
    going = new Tree(dataflow.state(), dataflow.newSlot(), null);
    valuesOf = UnsafeProjection.create(values, input);
    row = new UnsafeRow(width);
    isKnown = false;
    now = ALWAYS;
    setRoots(dataflow, slot, Page.KIND);
    pipe.open(dataflow);
  }

  /**
   * The time first: of rows that come and go before it, nobody has to hear. Then all that is sent
   * has the newest of the LSNs, since only there it is that time.
   */
  @Override
  void work(StateNode root, Change changes) {
    if (!isKnown) recall();
    long to = now, lsn = newestLsn(changes);
    for (Change each = changes; each != null; each = each.next) {
      if (each.port == tickPort) to = Math.max(to, Pipe.row(each.row, 1).getLong(0));
    }
    boolean advances = to > now;
    if (advances) advance(to, lsn);
    for (Change each = changes; each != null; each = each.next) {
      if (each.port == rowPort) take(each, advances ? lsn : each.lsn);
    }
  }

  /** See what time it was when the state was stored. */
  private void recall() {
    Tree.Rows stored = clock.first(Key.NOTHING);
    if (stored.next()) now = moment(ByteBuffer.wrap(stored.row()));
    isKnown = true;
  }

  private void advance(long to, long lsn) {
    if (now != ALWAYS) clock.add(Key.NOTHING, entry(now, Pipe.NOTHING), -1L);
    clock.add(Key.NOTHING, entry(to, Pipe.NOTHING), 1L);
    now = to;
    for (Tree.Rows each = due(going); each != null; each = due(going)) {
      byte[] found = each.row();
      long weight = each.weight();
      going.add(Key.NOTHING, found, -weight);
      send(rest(found, 8), lsn, -weight);
    }
    for (Tree.Rows each = due(coming); each != null; each = due(coming)) {
      byte[] found = each.row();
      long weight = each.weight();
      coming.add(Key.NOTHING, found, -weight);
      byte[] until = rest(found, 8);
      long end = moment(ByteBuffer.wrap(until));
      if (end > now) show(end, rest(until, 8), lsn, weight);
    }
  }

  /** The first row of a tree, if its moment has come; else null. */
  private Tree.Rows due(Tree tree) {
    Tree.Rows first = tree.first(Key.NOTHING);
    return first.next() && moment(ByteBuffer.wrap(first.row())) <= now ? first : null;
  }

  private void take(Change change, long lsn) {
    row.pointTo(change.row, change.row.length);
    UnsafeRow found = valuesOf.apply(row);
    long[] begins = new long[alternatives], until = new long[alternatives];
    for (int i = 0; i < alternatives; i++) {
      begins[i] = ALWAYS;
      until[i] = !found.isNullAt(i) && found.getBoolean(i) ? NEVER : ALWAYS;
    }
    int place = alternatives;
    for (Bound bound : bounds) {
      int of = bound.alternative;
      long at = found.isNullAt(place) ? 0L : sum(found.getLong(place), bound.shift);
      if (found.isNullAt(place)) {
        until[of] = ALWAYS;
      } else if (bound.isEnd) {
        until[of] = Math.min(until[of], at);
      } else {
        begins[of] = Math.max(begins[of], at);
      }
      place++;
    }
    if (alternatives > 1) unite(begins, until);
    for (int i = 0; i < alternatives; i++) {
      if (begins[i] < until[i]) take(change, begins[i], until[i], lsn);
    }
  }

  /** Make one span of those that meet, so that a row is there once: the others are empty then. */
  private void unite(long[] begins, long[] until) {
    boolean changed = true;
    while (changed) {
      changed = false;
      for (int i = 0; i < alternatives; i++) {
        for (int j = 0; j < alternatives; j++) {
          boolean some = i != j && begins[i] < until[i] && begins[j] < until[j];
          if (!some || begins[j] < begins[i] || begins[j] > until[i]) continue;
          until[i] = Math.max(until[i], until[j]);
          begins[j] = until[j] = ALWAYS;
          changed = true;
        }
      }
    }
  }

  private void take(Change change, long begin, long end, long lsn) {
    if (end <= now) return;
    if (begin > now) {
      coming.add(Key.NOTHING, entry(begin, entry(end, change.row)), change.weight);
    } else {
      show(end, change.row, lsn, change.weight);
    }
  }

  private void show(long end, byte[] bytes, long lsn, long weight) {
    if (end != NEVER) going.add(Key.NOTHING, entry(end, bytes), weight);
    send(bytes, lsn, weight);
  }

  private void send(byte[] bytes, long lsn, long weight) {
    pipe.send(Pipe.row(bytes, width), lsn, weight);
  }

  /** A time that the clock's is compared with: the beginning or the end of a span. */
  private record Bound(int alternative, boolean isEnd, long shift) implements Serializable {}

  // ---- what is stored

  /** A moment, and what follows it, in the order of moments. */
  private static byte[] entry(long moment, byte[] bytes) {
    ByteBuffer made = ByteBuffer.allocate(8 + bytes.length);
    made.putLong(moment ^ Long.MIN_VALUE).put(bytes);
    return made.array();
  }

  private static long moment(ByteBuffer entry) {
    return entry.getLong() ^ Long.MIN_VALUE;
  }

  private static byte[] rest(byte[] bytes, int from) {
    return Arrays.copyOfRange(bytes, from, bytes.length);
  }

  /** The sum; the first or the last moment of all, where it is beyond. */
  private static long sum(long time, long shift) {
    long sum = time + shift;
    if (((time ^ sum) & (shift ^ sum)) >= 0L) return sum;
    return shift < 0L ? ALWAYS + 1L : NEVER - 1L;
  }
}
