package millstream.dataflow;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.Seq;

/**
 * Joins of all kinds. State of a key: the rows of each side, with their weight. What goes out for a
 * change is the difference that it makes, so changes may come in any order.
 *
 * <p>Whether a row has a match matters to outer, semi and anti joins. Without a condition besides
 * the key all rows of a side have the same matches, so the weight of each side is enough: a change
 * of one side looks at the rows of the other only when they lose their last match or get the first,
 * or when there are pairs to make. With a condition each row keeps the weight of its own matches,
 * and if it has bounds, see {@link Range}, a change looks only at the rows between them.
 */
public class Join extends Operator {
  private static final long serialVersionUID = 1L;
  private static final int LEFT = 0, RIGHT = 1;

  private final int[] widths;
  private final String kind;
  private final Expression condition;
  private final Seq<Attribute> pair;
  private final Range[] ranges;
  private final Expiry[] expiries;
  private final Pipe pipe;

  private transient boolean makesPairs;
  private transient boolean[] matters;
  private transient boolean[] kept;
  private transient State state;
  private transient int slot;
  private transient Tree[] trees;
  private transient boolean hasTotals;
  private transient UnsafeRow[] rows;
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
   * @param leftRange by what the rows of the left side are ordered; null when by nothing.
   * @param rightRange by what those of the right side are.
   * @param leftExpiry when a row of the left side expires; null when it never is.
   * @param rightExpiry when one of the right side is.
   * @param pipe where the result goes.
   */
  public Join(
      int leftPort,
      int rightPort,
      int leftWidth,
      int rightWidth,
      String kind,
      Expression condition,
      Seq<Attribute> pair,
      Range leftRange,
      Range rightRange,
      Expiry leftExpiry,
      Expiry rightExpiry,
      Pipe pipe) {
    super(leftPort, rightPort);
    this.widths = new int[] {leftWidth, rightWidth};
    this.kind = kind;
    this.condition = condition;
    this.pair = pair;
    this.ranges = new Range[] {leftRange, rightRange};
    this.expiries = new Expiry[] {leftExpiry, rightExpiry};
    this.pipe = pipe;
  }

  void open(Dataflow dataflow) {
    boolean full = kind.equals("FullOuter");
    boolean single = kind.equals("LeftSemi") || kind.equals("LeftAnti") || isExistence();
    makesPairs = !single;
    matters =
        new boolean[] {
          full || single || kind.equals("LeftOuter"), full || kind.equals("RightOuter")
        };
    // Of a side that only decides whether the other one has a match, the weight is enough.
    kept = new boolean[] {true, makesPairs || condition != null};
    state = dataflow.state();
    trees =
        new Tree[] {
          new Tree(state, dataflow.newSlot(), null), new Tree(state, dataflow.newSlot(), null)
        };
    slot = dataflow.newSlot();
    setRoots(dataflow, slot, Sides.KIND);
    for (int side = LEFT; side <= RIGHT; side++) {
      if (!kept[side]) expiries[side] = null;
      if (expiries[side] != null) expiries[side].open(dataflow);
      if (ranges[side] != null) ranges[side].open();
    }
    hasTotals = condition == null && (matters[LEFT] || matters[RIGHT]);
    if (condition != null) test = Predicate$.MODULE$.create(condition, pair);
    joined = new JoinedRow();
    rows = new UnsafeRow[] {new UnsafeRow(widths[LEFT]), new UnsafeRow(widths[RIGHT])};
    nulls =
        new InternalRow[] {
          new GenericInternalRow(widths[LEFT]), new GenericInternalRow(widths[RIGHT])
        };
    pipe.open(dataflow);
  }

  private boolean isExistence() {
    return kind.startsWith("ExistenceJoin");
  }

  boolean needsOrder() {
    return true;
  }

  void work(StateNode root, Change changes) {
    Sides sides = (Sides) root;
    for (Change change = changes; change != null; change = change.next) {
      int side = change.port == ports[LEFT] ? LEFT : RIGHT;
      if (condition == null) {
        byKey(sides, side, change);
      } else {
        byCondition(sides, side, change);
      }
    }
  }

  boolean isDue() {
    boolean left = expiries[LEFT] != null && expiries[LEFT].isDue();
    return left || expiries[RIGHT] != null && expiries[RIGHT].isDue();
  }

  void expire(long watermark) {
    for (int side = LEFT; side <= RIGHT; side++) {
      Expiry.Expired row = expiries[side] == null ? null : expiries[side].next(watermark);
      for (; row != null; row = expiries[side].next(watermark)) {
        Sides sides = (Sides) state.get(row.key, slot, 0, Sides.KIND);
        byte[] kept = row.row;
        if (ranges[side] != null) kept = ranges[side].kept(row(side, kept), kept);
        trees[side].add(sides.rootToFill(state, side), kept, -row.weight);
        if (hasTotals) sides.addWeight(side, -row.weight);
      }
    }
  }

  private void keep(Sides sides, int side, Change change, UnsafeRow row, long matches) {
    byte[] bytes = ranges[side] == null ? change.row : ranges[side].kept(row, change.row);
    trees[side].add(sides.rootToFill(state, side), bytes, change.weight, matches);
    if (expiries[side] != null) expiries[side].add(sides.key, change.row, row, change.weight);
  }

  /** The bytes of a row of a side as a row, which the next one overwrites. */
  private UnsafeRow row(int side, byte[] bytes) {
    rows[side].pointTo(bytes, bytes.length);
    return rows[side];
  }

  // ---- all rows of the key match

  private void byKey(Sides sides, int side, Change change) {
    int other = 1 - side;
    UnsafeRow row = row(side, change.row);
    boolean flips = false;
    if (hasTotals) {
      long before = sides.weight(side);
      sides.addWeight(side, change.weight);
      flips = matters[other] && (before > 0L) != (sides.weight(side) > 0L);
      state.changed(sides, 0);
    }
    if (makesPairs || flips) {
      Tree.Rows matches = trees[other].first(sides.root(other));
      while (matches.next()) {
        UnsafeRow match = row(other, matches.row());
        long weight = matches.weight();
        if (makesPairs) sendPair(side, row, match, change.lsn, change.weight * weight);
        if (flips) {
          boolean has = sides.weight(side) > 0L;
          sendAlone(other, match, !has, change.lsn, -weight);
          sendAlone(other, match, has, change.lsn, weight);
        }
      }
    }
    if (kept[side]) keep(sides, side, change, row, 0L);
    if (matters[side]) sendAlone(side, row, sides.weight(other) > 0L, change.lsn, change.weight);
  }

  // ---- the condition decides which rows match; a row's note is the weight of its matches

  private void byCondition(Sides sides, int side, Change change) {
    int other = 1 - side;
    Range range = ranges[other];
    UnsafeRow row = row(side, change.row);
    long own = 0L;
    if (range == null || range.bound(row)) {
      Page root = sides.root(other);
      Tree.Rows matches =
          range == null ? trees[other].first(root) : trees[other].from(root, range.first());
      while (matches.next()) {
        if (range != null && range.isAfter(matches.row())) break;
        UnsafeRow match = match(other, matches.row());
        if (!test.eval(side == LEFT ? joined.apply(row, match) : joined.apply(match, row)))
          continue;
        own += matches.weight();
        if (makesPairs) sendPair(side, row, match, change.lsn, change.weight * matches.weight());
        if (matters[other]) rematch(other, match, matches, change);
      }
    }
    keep(sides, side, change, row, matters[side] ? own : 0L);
    if (matters[side]) sendAlone(side, row, own > 0L, change.lsn, change.weight);
  }

  /** What is kept of a row of a side as a row, which the next one overwrites. */
  private UnsafeRow match(int side, byte[] kept) {
    if (ranges[side] == null) return row(side, kept);
    long start = (long) Platform.BYTE_ARRAY_OFFSET + (long) Range.PREFIX;
    rows[side].pointTo(kept, start, kept.length - Range.PREFIX);
    return rows[side];
  }

  /** A row has got or lost matches. */
  private void rematch(int side, UnsafeRow row, Tree.Rows at, Change change) {
    long before = at.note(), after = before + change.weight;
    at.setNote(after);
    if ((before > 0L) == (after > 0L)) return;
    sendAlone(side, row, before > 0L, change.lsn, -at.weight());
    sendAlone(side, row, after > 0L, change.lsn, at.weight());
  }

  // ---- what goes out

  private void sendPair(int side, InternalRow row, InternalRow match, long lsn, long weight) {
    pipe.send(side == LEFT ? joined.apply(row, match) : joined.apply(match, row), lsn, weight);
  }

  /** Send what a row gives by having a match, or none. */
  private void sendAlone(int side, InternalRow row, boolean matched, long lsn, long weight) {
    if (isExistence()) {
      Object[] exists = {Boolean.valueOf(matched)};
      pipe.send(joined.apply(row, new GenericInternalRow(exists)), lsn, weight);
    } else if (!makesPairs) {
      if (matched == kind.equals("LeftSemi")) pipe.send(row, lsn, weight);
    } else if (!matched) {
      InternalRow alone =
          side == LEFT ? joined.apply(row, nulls[RIGHT]) : joined.apply(nulls[LEFT], row);
      pipe.send(alone, lsn, weight);
    }
  }

  /** The rows that each side of a key has, and their weight, if it matters. */
  private static final class Sides extends StateNode {
    static final StateNode.Kind KIND = Sides::read;
    private static final int BYTES = 80;

    // The page with the rows of a side; null for one that never had any. Most keys have one row,
    // and there are many: without arrays.
    private Page left;
    private Page right;
    private long leftWeight;
    private long rightWeight;

    /** The page with the rows of a side; null if it never had any. */
    Page root(int side) {
      return side == LEFT ? left : right;
    }

    long weight(int side) {
      return side == LEFT ? leftWeight : rightWeight;
    }

    void addWeight(int side, long more) {
      if (side == LEFT) {
        leftWeight += more;
      } else {
        rightWeight += more;
      }
    }

    /** The page for the rows of a side, made if need be. */
    Page rootToFill(State state, int side) {
      Page root = root(side);
      if (root != null) return root;
      root = new Page();
      setRoot(side, root);
      adopt(root);
      state.changed(this, root.size());
      return root;
    }

    private void setRoot(int side, Page root) {
      if (side == LEFT) {
        left = root;
      } else {
        right = root;
      }
    }

    private void adopt(Page root) {
      if (root == null) return;
      root.holder = this;
      root.place(key, slot, page);
    }

    @Override
    void place(Key ofKey, int inSlot, int atPage) {
      super.place(ofKey, inSlot, atPage);
      adopt(left);
      adopt(right);
    }

    @Override
    boolean isEmpty() {
      return hasNone(left) && hasNone(right) && leftWeight == 0L && rightWeight == 0L;
    }

    private static boolean hasNone(Page root) {
      return root == null || root.isEmpty();
    }

    @Override
    int size() {
      return BYTES + (left == null ? 0 : left.size()) + (right == null ? 0 : right.size());
    }

    @Override
    void write(Bytes out) {
      for (int side = LEFT; side <= RIGHT; side++) {
        out.putSmall(weight(side));
        Page root = root(side);
        (root == null ? Page.EMPTY : root).write(out);
      }
    }

    private static Sides read(Bytes in) {
      Sides found = new Sides();
      if (in == null) return found;
      for (int side = LEFT; side <= RIGHT; side++) {
        found.addWeight(side, in.getSmall());
        Page root = (Page) Page.KIND.read(in);
        if (!root.isEmpty() || root.next > 1) found.setRoot(side, root);
      }
      return found;
    }
  }
}
