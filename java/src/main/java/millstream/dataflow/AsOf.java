package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.immutable.Seq;

/**
 * ASOF joins: each row of the left side with the one row of the right side that is nearest in time,
 * or with none. State of a key: the rows of each side, in the order of time.
 *
 * <p>If several rows of the right side share a time, the match is the greatest of them by their
 * columns, so that there is one answer. The rows of the left side whose match is a certain row are
 * neighbours in time: when it comes or goes, they are found from its time on, up to where the next
 * row of the right side is nearer, and only they are looked at. Rows without a time match nothing.
 *
 * <p>Where both times are event times, rows that can have no part in a later change expire, since
 * no row comes that is older than the watermark. Of the right side that leaves the newest row
 * before the watermark, and of the left side the rows whose match may yet come.
 */
public class AsOf extends Operator {
  private static final long serialVersionUID = 1L;

  private final Side left;
  private final Side right;
  private final Direction direction;
  private final boolean strict;
  private final boolean outer;
  private final Expression tolerance;
  private final Seq<Attribute> pair;
  private final Expiry leftExpiry;
  private final Expiry rightExpiry;
  private final Pipe pipe;
  private transient BasePredicate test;
  private transient JoinedRow joined;
  private transient InternalRow nulls;

  /**
   * @param left the side of which each row has a match or none.
   * @param right the side where that is.
   * @param direction where the match is, by its place in {@link Direction}.
   * @param strict whether a row at the same time is none.
   * @param outer whether rows without a match are kept.
   * @param tolerance what must hold besides; if it does not, it does not for any row that is
   *     farther away either. null when nothing.
   * @param pair the attributes of both sides, left first.
   * @param leftExpiry when the time of a row of the left side is past; null when it never is.
   * @param rightExpiry when that of a row of the right side is; null when it never is.
   * @param pipe where the result goes.
   */
  public AsOf(
      Side left,
      Side right,
      int direction,
      boolean strict,
      boolean outer,
      Expression tolerance,
      Seq<Attribute> pair,
      Expiry leftExpiry,
      Expiry rightExpiry,
      Pipe pipe) {
    super(left.port, right.port);
    this.left = left;
    this.right = right;
    this.direction = Direction.values()[direction];
    this.strict = strict;
    this.outer = outer;
    this.tolerance = tolerance;
    this.pair = pair;
    // With a later match, a row is done with once that is past, which the right side says.
    this.leftExpiry = this.direction == Direction.BACKWARD ? leftExpiry : null;
    this.rightExpiry = rightExpiry;
    this.pipe = pipe;
  }

  @Override
  void open(Dataflow dataflow) {
    left.open(dataflow, false);
    right.open(dataflow, true);
    if (leftExpiry != null) leftExpiry.open(dataflow);
    if (rightExpiry != null) rightExpiry.open(dataflow);
    setRoots(dataflow, left.slot, Page.KIND);
    if (tolerance != null) test = Predicate$.MODULE$.create(tolerance, pair);
    joined = new JoinedRow();
    nulls = new GenericInternalRow(right.width);
    pipe.open(dataflow);
  }

  @Override
  boolean needsOrder() {
    return true;
  }

  @Override
  void work(StateNode root, Change changes) {
    Key key = root.key;
    Map<Key, Moved> moved = null;
    long newest = newestLsn(changes);
    for (Change change = changes; change != null; change = change.next) {
      if (change.port == right.port && moved == null) moved = new LinkedHashMap<>();
    }
    for (Change change = changes; change != null; change = change.next) {
      // What goes had its match before the right side changes; what comes has it after that.
      if (change.port == left.port && change.weight < 0L) {
        changeLeft(key, change, moved == null ? change.lsn : newest);
      }
    }
    for (Change change = changes; change != null; change = change.next) {
      if (change.port == right.port && change.weight != 0L) changeRight(key, change, moved);
    }
    if (moved != null && !moved.isEmpty()) sendMoved(key, moved, newest);
    for (Change change = changes; change != null; change = change.next) {
      if (change.port == left.port && change.weight > 0L) {
        changeLeft(key, change, moved == null ? change.lsn : newest);
      }
    }
  }

  private void changeLeft(Key key, Change change, long lsn) {
    if (left.isTimeless(change.row)) {
      send(change.row, null, lsn, change.weight);
      return;
    }
    left.rows.add(key, change.row, change.weight);
    if (leftExpiry != null) {
      leftExpiry.add(key, change.row, left.row(change.row), change.weight);
    }
    send(change.row, match(key, change.row, null), lsn, change.weight);
  }

  /** Change a row of the right side, and note the matches that others had before. */
  private void changeRight(Key key, Change change, Map<Key, Moved> moved) {
    byte[] row = change.row;
    if (right.isTimeless(row)) return;
    long before = right.rows.add(key, row, change.weight);
    if (rightExpiry != null) rightExpiry.add(key, row, right.row(row), change.weight);
    boolean was = before > 0L, is = before + change.weight > 0L;
    if (was == is || isBehind(key, row)) return;
    if (direction != Direction.FORWARD) noteLater(key, row, is, moved);
    if (direction != Direction.BACKWARD) noteEarlier(key, row, is, moved);
  }

  /** Note the rows of the left side that are later than a row, and have it as their match. */
  private void noteLater(Key key, byte[] row, boolean comes, Map<Key, Moved> moved) {
    byte[] next = visible(right.after(key, row, right, false), true, null);
    Tree.Rows each = left.after(key, row, right, direction == Direction.NEAREST || !strict);
    while (each.next()) {
      if (next != null && !isEarlierNearer(each.row(), row, next)) return;
      if (!isWithin(each.row(), row)) return;
      note(key, each, row, comes, moved);
    }
  }

  /** Note those that are earlier. */
  private void noteEarlier(Key key, byte[] row, boolean comes, Map<Key, Moved> moved) {
    byte[] previous = visible(right.before(key, row, right, false), false, null);
    Tree.Rows each = left.before(key, row, right, direction == Direction.FORWARD && !strict);
    while (each.previous()) {
      if (previous != null && isEarlierNearer(each.row(), previous, row)) return;
      if (!isWithin(each.row(), row)) return;
      note(key, each, row, comes, moved);
    }
  }

  private void note(Key key, Tree.Rows at, byte[] row, boolean comes, Map<Key, Moved> moved) {
    Key known = new Key(at.row());
    if (moved.containsKey(known)) return;
    byte[] old = comes ? match(key, at.row(), row) : row;
    moved.put(known, new Moved(at.row(), at.weight(), old));
  }

  /** Send what differs by new matches: first what goes, then what comes. */
  private void sendMoved(Key key, Map<Key, Moved> moved, long lsn) {
    List<Moved> come = new ArrayList<>();
    for (Moved one : moved.values()) {
      byte[] found = match(key, one.row, null);
      if (Arrays.equals(found, one.match)) continue;
      send(one.row, one.match, lsn, -one.weight);
      one.match = found;
      come.add(one);
    }
    for (Moved one : come) send(one.row, one.match, lsn, one.weight);
  }

  private void send(byte[] row, byte[] match, long lsn, long weight) {
    if (match == null) {
      if (outer) pipe.send(joined.apply(left.row(row), nulls), lsn, weight);
    } else {
      pipe.send(joined.apply(left.row(row), right.row(match)), lsn, weight);
    }
  }

  // ---- what expires

  @Override
  boolean isDue() {
    return leftExpiry != null && leftExpiry.isDue() || rightExpiry != null && rightExpiry.isDue();
  }

  @Override
  void expire(long watermark) {
    if (leftExpiry != null) {
      Expiry.Expired past = leftExpiry.next(watermark);
      for (; past != null; past = leftExpiry.next(watermark)) {
        left.rows.add(past.key, past.row, -past.weight);
      }
    }
    if (rightExpiry == null) return;
    Expiry.Expired past = rightExpiry.next(watermark);
    for (; past != null; past = rightExpiry.next(watermark)) {
      Key key = past.key;
      byte[] row = past.row;
      // Those whose match is here, or before it, have it for good.
      if (direction != Direction.BACKWARD) {
        left.remove(key, left.before(key, row, right, direction == Direction.NEAREST || !strict));
      }
      // What comes to the left side is later than this row, and nearer to it than to those before.
      right.remove(
          key,
          direction == Direction.FORWARD
              ? right.before(key, row, right, true)
              : right.rows.before(key, row));
    }
  }

  // ---- which row is the match

  /**
   * The match of a row of the left side, one row of the right side left out; null: there is none.
   */
  private byte[] match(Key key, byte[] row, byte[] without) {
    byte[] found = null;
    if (direction != Direction.FORWARD) {
      found =
          visible(
              right.before(key, row, left, direction == Direction.NEAREST || !strict),
              false,
              without);
    }
    if (direction == Direction.FORWARD || (direction == Direction.NEAREST && !isSame(row, found))) {
      byte[] later = laterMatch(key, row, without);
      if (found == null || (later != null && !isEarlierNearer(row, found, later))) found = later;
    }
    return found == null || isWithin(row, found) ? found : null;
  }

  private boolean isSame(byte[] row, byte[] other) {
    return other != null && left.compareTimes(left.row(row), right, right.row(other)) == 0;
  }

  /** The first time after a row, and of the rows at that time the greatest. */
  private byte[] laterMatch(Key key, byte[] row, byte[] without) {
    Tree.Rows rows = right.after(key, row, left, direction == Direction.FORWARD && !strict);
    byte[] first = visible(rows, true, without);
    if (first == null || !rows.next()) return first;
    if (right.compareTimes(right.row(first), right, right.twin(rows.row())) != 0) return first;
    return visible(right.before(key, first, right, true), false, without);
  }

  /** The next row that is there, in a direction, one left out; null: there is none. */
  private static byte[] visible(Tree.Rows rows, boolean forward, byte[] without) {
    while (forward ? rows.next() : rows.previous()) {
      if (rows.weight() <= 0L) continue;
      if (without == null || !Arrays.equals(rows.row(), without)) return rows.row();
    }
    return null;
  }

  /** Whether at the time of a row of the right side there is a greater one. */
  private boolean isBehind(Key key, byte[] row) {
    byte[] next = visible(right.rows.from(key, row), true, row);
    return next != null && right.compareTimes(right.row(row), right, right.twin(next)) == 0;
  }

  /** Whether a row of the left side would have the earlier of two rows as its match. */
  private boolean isEarlierNearer(byte[] row, byte[] earlier, byte[] later) {
    UnsafeRow own = left.row(row);
    int after = left.compareTimes(own, right, right.row(later));
    if (direction == Direction.BACKWARD) return strict ? after <= 0 : after < 0;
    int before = left.compareTimes(own, right, right.row(earlier));
    if (direction == Direction.FORWARD) return strict ? before < 0 : before <= 0;
    if (before <= 0) return true;
    if (after >= 0) return false;
    long time = left.longAt(own), last = right.longAt(right.row(earlier));
    return Long.compareUnsigned(time - last, right.longAt(right.row(later)) - time) <= 0;
  }

  private boolean isWithin(byte[] row, byte[] match) {
    return test == null || test.eval(joined.apply(left.row(row), right.row(match)));
  }

  /** Where the match is: before the row, after it, or on the side where it is nearer. */
  enum Direction {
    BACKWARD,
    FORWARD,
    NEAREST
  }

  /** A row of the left side whose match may have changed. */
  private static final class Moved {
    final byte[] row;
    final long weight;
    byte[] match;

    Moved(byte[] row, long weight, byte[] match) {
      this.row = row;
      this.weight = weight;
      this.match = match;
    }
  }

  /** The rows of one side, in the order of time, as they are found by times of either side. */
  public static final class Side implements Serializable {
    private static final long serialVersionUID = 1L;

    final int port;
    final int place;
    final Seq<Attribute> columns;
    transient int width;
    transient int slot;
    transient Tree rows;
    private transient TimeOrder order;
    private transient UnsafeRow row;
    private transient UnsafeRow twin;

    /**
     * @param port where its rows come.
     * @param place that of the time among its columns.
     * @param columns their attributes.
     */
    public Side(int port, int place, Seq<Attribute> columns) {
      this.port = port;
      this.place = place;
      this.columns = columns;
    }

    void open(Dataflow dataflow, boolean byAll) {
      width = columns.size();
      row = new UnsafeRow(width);
      twin = new UnsafeRow(width);
      order = new TimeOrder(columns, place, byAll);
      slot = dataflow.newSlot();
      rows = new Tree(dataflow.state(), slot, order);
    }

    /** The bytes of a row as a row, which the next one overwrites. */
    UnsafeRow row(byte[] bytes) {
      row.pointTo(bytes, bytes.length);
      return row;
    }

    /** A second row, beside the first. */
    UnsafeRow twin(byte[] bytes) {
      twin.pointTo(bytes, bytes.length);
      return twin;
    }

    boolean isTimeless(byte[] bytes) {
      return row(bytes).isNullAt(place);
    }

    long longAt(UnsafeRow one) {
      return order.longAt(one, place);
    }

    int compareTimes(UnsafeRow own, Side of, UnsafeRow other) {
      return order.compareTimes(own, place, other, of.place);
    }

    /** Remove the rows of a key before a place. */
    void remove(Key key, Tree.Rows before) {
      List<byte[]> all = new ArrayList<>();
      List<Long> weights = new ArrayList<>();
      while (before.previous()) {
        all.add(before.row());
        weights.add(before.weight());
      }
      for (int i = 0; i < all.size(); i++) rows.add(key, all.get(i), -weights.get(i));
    }

    /** The rows from after the time of a row of some side on; or from that time on. */
    Tree.Rows after(Key key, byte[] from, Side of, boolean included) {
      order.find(from, of.twin(from), of.place, included ? 1 : -1);
      Tree.Rows found = rows.from(key, from);
      order.found();
      return found;
    }

    /** The rows before the time of a row of some side, backwards; or from that time on. */
    Tree.Rows before(Key key, byte[] from, Side of, boolean included) {
      order.find(from, of.twin(from), of.place, included ? -1 : 1);
      Tree.Rows found = rows.before(key, from);
      order.found();
      return found;
    }
  }
}
