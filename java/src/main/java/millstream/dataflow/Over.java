package millstream.dataflow;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import scala.collection.immutable.Seq;

/**
 * Functions over the rows of a partition in order: what stands before OVER. A change concerns the
 * rows whose frames it lies in: these are evaluated by Spark's own evaluator before and after it,
 * and what differs goes out. How far frames reach is known from the query:
 *
 * <ul>
 *   <li>so many rows before and after (LAG, LEAD, ROWS BETWEEN n PRECEDING ...): only those rows
 *       are looked at;
 *   <li>the first n rows (ROW_NUMBER() <= n): only those are;
 *   <li>otherwise from the partition's first row, or to its last one.
 * </ul>
 *
 * <p>Rows that are equal in the order are in the order of their bytes.
 */
public class Over extends Operator {
  /** How the rank grows by which rows are the first n. */
  public static final int BY_ROW = 0, BY_RANK = 1, BY_DENSE_RANK = 2;

  private static final long serialVersionUID = 1L;

  private final int port;
  private final int width;
  private final Reach reach;
  private final Seq order;
  private final Seq input;
  private final Seq output;
  private final Seq evaluated;
  private final Windows windows;
  private final Pipe pipe;
  private transient Tree rows;
  private transient Top.ByOrder comparator;
  private transient UnsafeProjection resultOf;

  /**
   * @param port where its rows come.
   * @param width how many columns they have; the last one is for the evaluator.
   * @param reach how far a change is seen.
   * @param order Spark's sort orders.
   * @param input the columns.
   * @param output the columns of the result.
   * @param evaluated the columns that the evaluator gives.
   * @param windows the evaluator.
   * @param pipe where the result goes.
   */
  public Over(
      int port,
      int width,
      Reach reach,
      Seq order,
      Seq input,
      Seq output,
      Seq evaluated,
      Windows windows,
      Pipe pipe) {
    this.port = port;
    this.width = width;
    this.reach = reach;
    this.order = order;
    this.input = input;
    this.output = output;
    this.evaluated = evaluated;
    this.windows = windows;
    this.pipe = pipe;
  }

  void open(Dataflow dataflow) {
    comparator = new Top.ByOrder(new LazilyGeneratedOrdering(order, input), width);
    int slot = dataflow.newSlot();
    rows = new Tree(dataflow.state(), slot, comparator);
    setRoots(dataflow, slot, Page.KIND);
    resultOf = UnsafeProjection.create(output, evaluated);
    windows.open(width);
    pipe.open(dataflow);
  }

  boolean takes(int other) {
    return port == other;
  }

  void work(Kept root, Change changes) {
    Key key = root.key;
    long lsn = 0L;
    for (Change each = changes; each != null; each = each.next) lsn = Math.max(lsn, each.lsn);
    Difference difference = new Difference();
    ArrayList spans = reach.limit >= 0 ? null : spans(key, changes);
    evaluate(key, spans, -1L, difference);
    for (Change change = changes; change != null; change = change.next) {
      if (change.weight != 0L) rows.add(key, change.row, change.weight);
    }
    evaluate(key, spans, 1L, difference);
    difference.send(pipe, output.size(), lsn);
  }

  private void evaluate(Key key, ArrayList spans, long sign, Difference difference) {
    if (spans == null) {
      ArrayList first = firstRows(key);
      count(first, 0, first.size(), sign, difference);
      return;
    }
    for (int i = 0; i < spans.size(); i++) {
      Slice slice = slice(key, (Span) spans.get(i));
      count(slice.rows, slice.from, slice.to, sign, difference);
    }
  }

  /** Evaluate rows, and count the results of those from one place to another. */
  private void count(ArrayList some, int from, int to, long sign, Difference difference) {
    scala.collection.Iterator results = windows.evaluate(some);
    for (int i = 0; i < some.size(); i++) {
      InternalRow result = (InternalRow) results.next();
      if (i < from || i >= to) continue;
      difference.add(Pipe.bytes(resultOf.apply(result)), sign);
    }
  }

  // ---- which rows a change concerns

  /** The rows, from the first on, that are among the first n. */
  private ArrayList firstRows(Key key) {
    ArrayList found = new ArrayList();
    byte[] last = null;
    int ranks = 0;
    Tree.Rows each = rows.first(key);
    while (each.next()) {
      boolean isNew = last == null || comparator.compareOrder(last, each.row()) != 0;
      if (isNew) ranks++;
      int reached = reach.ranks == BY_DENSE_RANK ? ranks - 1 : found.size();
      boolean counts = isNew || reach.ranks == BY_ROW;
      if (counts && reached >= reach.limit) break;
      last = each.row();
      for (long i = 0L; i < each.weight(); i++) {
        if (reach.ranks == BY_ROW && found.size() >= reach.limit) break;
        found.add(last);
      }
    }
    return found;
  }

  /** The spans of rows that changes concern, in order, none of which meet. */
  private ArrayList spans(Key key, Change changes) {
    HashSet changed = new HashSet();
    for (Change each = changes; each != null; each = each.next) changed.add(new Key(each.row));
    ArrayList all = new ArrayList();
    for (Change change = changes; change != null; change = change.next) {
      byte[] row = change.row;
      byte[] low = reach.after < 0 ? null : away(key, row, (long) reach.after, -1, changed);
      byte[] high = reach.before < 0 ? null : away(key, row, (long) reach.before, 1, changed);
      all.add(new Span(low, high));
    }
    Collections.sort(all, new ByLow());
    ArrayList merged = new ArrayList();
    for (int i = 0; i < all.size(); i++) {
      Span next = (Span) all.get(i);
      Span last = merged.isEmpty() ? null : (Span) merged.get(merged.size() - 1);
      if (last != null && meets(last, next)) {
        boolean longer =
            last.high != null
                && (next.high == null || comparator.compare(next.high, last.high) > 0);
        if (longer) last.high = next.high;
      } else {
        merged.add(next);
      }
    }
    return merged;
  }

  /**
   * The row so many places from one, beyond all that are equal to it; null: there are not so many.
   * Rows that change do not count: between two rows there may be more or fewer of them afterwards.
   */
  private byte[] away(Key key, byte[] row, long places, int step, HashSet changed) {
    Tree.Rows each = step > 0 ? rows.from(key, row) : rows.before(key, row);
    long left = places;
    while (step > 0 ? each.next() : each.previous()) {
      if (!changed.contains(new Key(each.row()))) left -= Math.abs(each.weight());
      boolean isPeer = reach.peers && comparator.compareOrder(each.row(), row) == 0;
      if (left < 0L && !isPeer) return each.row();
    }
    return null;
  }

  private boolean meets(Span one, Span later) {
    return one.high == null || later.low == null || comparator.compare(later.low, one.high) <= 0;
  }

  /** The rows of a span, and as many around them as their frames reach. */
  private Slice slice(Key key, Span span) {
    Slice slice = new Slice();
    if (span.low != null) {
      ArrayList earlier = new ArrayList();
      Tree.Rows each = rows.before(key, span.low);
      while ((reach.before < 0 || earlier.size() < reach.before) && each.previous()) {
        for (long i = 0L; i < each.weight(); i++) earlier.add(each.row());
      }
      Collections.reverse(earlier);
      slice.rows = earlier;
      slice.from = earlier.size();
    }
    Tree.Rows each = span.low == null ? rows.first(key) : rows.from(key, span.low);
    int later = 0;
    slice.to = -1;
    while (each.next()) {
      boolean inside = span.high == null || comparator.compare(each.row(), span.high) <= 0;
      if (!inside) {
        if (slice.to < 0) slice.to = slice.rows.size();
        if (reach.after >= 0 && later >= reach.after) break;
        later += (int) each.weight();
      }
      for (long i = 0L; i < each.weight(); i++) slice.rows.add(each.row());
    }
    if (slice.to < 0) slice.to = slice.rows.size();
    return slice;
  }

  /** How far a change is seen. */
  public static final class Reach implements java.io.Serializable {
    private static final long serialVersionUID = 1L;
    final int before;
    final int after;
    final boolean peers;
    final int limit;
    final int ranks;

    /**
     * @param before how many rows before it a row's frames reach; -1: to the first.
     * @param after how many after it; -1: to the last.
     * @param peers whether they reach to the rows that are equal in the order.
     * @param limit of how many rows, at most, the result is needed; -1: of all.
     * @param ranks by which rank these are counted.
     */
    public Reach(int before, int after, boolean peers, int limit, int ranks) {
      this.before = before;
      this.after = after;
      this.peers = peers;
      this.limit = limit;
      this.ranks = ranks;
    }
  }

  /** Rows from one to another, both included; null: from the first, to the last. */
  private static final class Span {
    final byte[] low;
    byte[] high;

    Span(byte[] low, byte[] high) {
      this.low = low;
      this.high = high;
    }
  }

  /** Rows to evaluate, and those among them of which the results count. */
  private static final class Slice {
    ArrayList rows = new ArrayList();
    int from;
    int to;
  }

  private final class ByLow implements java.util.Comparator {
    public int compare(Object one, Object other) {
      byte[] first = ((Span) one).low, second = ((Span) other).low;
      if (first == null || second == null) return first == second ? 0 : first == null ? -1 : 1;
      return comparator.compare(first, second);
    }
  }
}
