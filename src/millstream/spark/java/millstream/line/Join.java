package millstream.line;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Joins of all kinds. State of a key: the rows of each side, with their weight. What goes out for a
 * change is the difference that it makes, so changes may come in any order.
 *
 * <p>Whether a row has a match matters to outer, semi and anti joins. Without a condition besides the
 * key all rows of a side have the same matches, so the weight of each side is enough: a change of one
 * side looks at the rows of the other only when they lose their last match or get the first, or when
 * there are pairs to make. With a condition each row keeps the weight of its own matches.
 */
public class Join extends Operator {
  private static final long serialVersionUID = 1L;
  private static final int LEFT = 0, RIGHT = 1;

  private final int[] ports;
  private final int[] widths;
  private final String kind;
  private final Expression condition;
  private final Seq pair;
  private final Pipe pipe;

  private transient boolean makesPairs;
  private transient boolean[] matters;
  private transient boolean[] kept;
  private transient MapState[] sides;
  private transient ValueState totals;
  private transient BasePredicate test;
  private transient JoinedRow joined;
  private transient InternalRow[] nulls;

  /**
   * @param leftPort where the rows of the left side come.
   * @param rightPort where those of the right side come.
   * @param leftWidth how many columns the left side has.
   * @param rightWidth how many the right side has.
   * @param kind Spark's name for the kind of join.
   * @param condition what must hold besides equal keys; null when nothing.
   * @param pair the attributes of both sides, left first.
   * @param pipe where the result goes.
   */
  public Join(
      int leftPort,
      int rightPort,
      int leftWidth,
      int rightWidth,
      String kind,
      Expression condition,
      Seq pair,
      Pipe pipe) {
    this.ports = new int[] {leftPort, rightPort};
    this.widths = new int[] {leftWidth, rightWidth};
    this.kind = kind;
    this.condition = condition;
    this.pair = pair;
    this.pipe = pipe;
  }

  public void init(OutputMode mode, TimeMode time) {
    boolean full = kind.equals("FullOuter");
    boolean single = kind.equals("LeftSemi") || kind.equals("LeftAnti") || isExistence();
    makesPairs = !single;
    matters =
        new boolean[] {
          full || single || kind.equals("LeftOuter"), full || kind.equals("RightOuter")
        };
    // Of a side that only decides whether the other one has a match, the weight is enough.
    kept = new boolean[] {true, makesPairs || condition != null};
    sides = new MapState[2];
    for (int side = LEFT; side <= RIGHT; side++) {
      if (kept[side]) {
        sides[side] =
            getHandle()
                .getMapState(
                    side == LEFT ? "left" : "right",
                    Encoders.BINARY(),
                    Encoders.BINARY(),
                    TTLConfig.NONE());
      }
    }
    if (condition != null) {
      test = Predicate$.MODULE$.create(condition, pair);
    } else if (matters[LEFT] || matters[RIGHT]) {
      totals = getHandle().getValueState("totals", Encoders.BINARY(), TTLConfig.NONE());
    }
    joined = new JoinedRow();
    nulls =
        new InternalRow[] {new GenericInternalRow(widths[LEFT]), new GenericInternalRow(widths[RIGHT])};
  }

  private boolean isExistence() {
    return kind.startsWith("ExistenceJoin");
  }

  boolean takes(int port) {
    return port == ports[LEFT] || port == ports[RIGHT];
  }

  void work(byte[] key, ArrayList changes, ArrayList out) {
    long[] weights = totals == null ? null : unpack((byte[]) totals.get());
    for (int i = 0; i < changes.size(); i++) {
      Change change = (Change) changes.get(i);
      int side = change.port == ports[LEFT] ? LEFT : RIGHT;
      if (condition == null) {
        byKey(side, change, weights, out);
      } else {
        byCondition(side, change, out);
      }
    }
    if (weights == null) return;
    if (weights[LEFT] == 0L && weights[RIGHT] == 0L) {
      totals.clear();
    } else {
      totals.update(pack(weights[LEFT], weights[RIGHT]));
    }
  }

  // ---- all rows of the key match

  private void byKey(int side, Change change, long[] weights, ArrayList out) {
    int other = 1 - side;
    UnsafeRow row = Pipe.row(change.row, widths[side]);
    boolean flips = false;
    if (weights != null) {
      long before = weights[side];
      weights[side] += change.weight;
      flips = matters[other] && (before > 0L) != (weights[side] > 0L);
    }
    if (makesPairs || flips) {
      UnsafeRow match = new UnsafeRow(widths[other]);
      Iterator each = sides[other].iterator();
      while (each.hasNext()) {
        Tuple2 entry = (Tuple2) each.next();
        byte[] bytes = (byte[]) entry._1();
        match.pointTo(bytes, bytes.length);
        long weight = ByteBuffer.wrap((byte[]) entry._2()).getLong();
        if (makesPairs) sendPair(side, row, match, change.lsn, change.weight * weight, out);
        if (flips) {
          boolean has = weights[side] > 0L;
          sendAlone(other, match, !has, change.lsn, -weight, out);
          sendAlone(other, match, has, change.lsn, weight, out);
        }
      }
    }
    if (kept[side]) {
      byte[] known = (byte[]) sides[side].getValue(change.row);
      long weight = change.weight + (known == null ? 0L : ByteBuffer.wrap(known).getLong());
      store(side, change.row, weight, 0L);
    }
    if (matters[side]) {
      sendAlone(side, row, weights[other] > 0L, change.lsn, change.weight, out);
    }
  }

  // ---- the condition decides which rows match

  private void byCondition(int side, Change change, ArrayList out) {
    int other = 1 - side;
    UnsafeRow row = Pipe.row(change.row, widths[side]);
    byte[] known = (byte[]) sides[side].getValue(change.row);
    long[] own = unpack(known);
    boolean counts = matters[side] && known == null;
    if (makesPairs || matters[other] || counts) {
      ArrayList matches = new ArrayList(); // a state is not changed while it is read
      UnsafeRow match = new UnsafeRow(widths[other]);
      Iterator each = sides[other].iterator();
      while (each.hasNext()) {
        Tuple2 entry = (Tuple2) each.next();
        byte[] bytes = (byte[]) entry._1();
        match.pointTo(bytes, bytes.length);
        if (!test.eval(side == LEFT ? joined.apply(row, match) : joined.apply(match, row))) continue;
        long[] found = unpack((byte[]) entry._2());
        if (counts) own[1] += found[0];
        if (makesPairs) sendPair(side, row, match, change.lsn, change.weight * found[0], out);
        if (matters[other]) matches.add(new Object[] {bytes, found});
      }
      for (int i = 0; i < matches.size(); i++) {
        Object[] entry = (Object[]) matches.get(i);
        rematch(other, (byte[]) entry[0], (long[]) entry[1], change, out);
      }
    }
    store(side, change.row, own[0] + change.weight, own[1]);
    if (matters[side]) sendAlone(side, row, own[1] > 0L, change.lsn, change.weight, out);
  }

  /** A row has got or lost matches. */
  private void rematch(int side, byte[] bytes, long[] known, Change change, ArrayList out) {
    long before = known[1], after = before + change.weight;
    store(side, bytes, known[0], after);
    if ((before > 0L) == (after > 0L)) return;
    UnsafeRow row = Pipe.row(bytes, widths[side]);
    sendAlone(side, row, before > 0L, change.lsn, -known[0], out);
    sendAlone(side, row, after > 0L, change.lsn, known[0], out);
  }

  // ---- state

  private void store(int side, byte[] row, long weight, long matches) {
    if (weight == 0L) {
      sides[side].removeKey(row);
    } else {
      sides[side].updateValue(row, pack(weight, matches));
    }
  }

  private static byte[] pack(long first, long second) {
    return ByteBuffer.allocate(16).putLong(first).putLong(second).array();
  }

  private static long[] unpack(byte[] bytes) {
    if (bytes == null) return new long[2];
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    return new long[] {buffer.getLong(), buffer.getLong()};
  }

  // ---- what goes out

  private void sendPair(
      int side, InternalRow row, InternalRow match, long lsn, long weight, ArrayList out) {
    pipe.send(side == LEFT ? joined.apply(row, match) : joined.apply(match, row), lsn, weight, out);
  }

  /** Send what a row gives by having a match, or none. */
  private void sendAlone(
      int side, InternalRow row, boolean matched, long lsn, long weight, ArrayList out) {
    if (isExistence()) {
      Object[] exists = {Boolean.valueOf(matched)};
      pipe.send(joined.apply(row, new GenericInternalRow(exists)), lsn, weight, out);
    } else if (!makesPairs) {
      if (matched == kind.equals("LeftSemi")) pipe.send(row, lsn, weight, out);
    } else if (!matched) {
      InternalRow alone =
          side == LEFT ? joined.apply(row, nulls[RIGHT]) : joined.apply(nulls[LEFT], row);
      pipe.send(alone, lsn, weight, out);
    }
  }
}
