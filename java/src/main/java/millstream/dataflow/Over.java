package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
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
public class Over extends OrderedOperator {
  private static final long serialVersionUID = 1L;

  private final Reach reach;
  private final Seq<Attribute> output;
  private final Seq<Attribute> evaluated;
  private final Windows windows;
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
      Seq<SortOrder> order,
      Seq<Attribute> input,
      Seq<Attribute> output,
      Seq<Attribute> evaluated,
      Windows windows,
      Pipe pipe) {
    super(port, width, order, input, pipe);
    this.reach = reach;
    this.output = output;
    this.evaluated = evaluated;
    this.windows = windows;
  }

  @Override
  void open(Dataflow dataflow) {
    super.open(dataflow);
    resultOf = UnsafeProjection.create(Seqs.widened(output), evaluated);
    windows.open(width);
  }

  @Override
  void work(StateNode root, Change changes) {
    Key key = root.key;
    Difference difference = new Difference();
    List<Span> spans = reach.limit >= 0 ? null : spans(key, changes);
    evaluate(key, spans, -1L, difference);
    for (Change change = changes; change != null; change = change.next) {
      if (change.weight != 0L) rows.add(key, change.row, change.weight);
    }
    evaluate(key, spans, 1L, difference);
    difference.send(pipe, output.size(), newestLsn(changes));
  }

  private void evaluate(Key key, List<Span> spans, long sign, Difference difference) {
    if (spans == null) {
      List<byte[]> first = firstRows(key);
      count(first, 0, first.size(), sign, difference);
      return;
    }
    for (Span each : spans) {
      Slice slice = slice(key, each);
      count(slice.rows, slice.from, slice.to, sign, difference);
    }
  }

  /** Evaluate rows, and count the results of those from one place to another. */
  private void count(List<byte[]> some, int from, int to, long sign, Difference difference) {
    Iterator<InternalRow> results = windows.evaluate(some);
    for (int i = 0; i < some.size(); i++) {
      InternalRow result = results.next();
      if (i < from || i >= to) continue;
      difference.add(Pipe.bytes(resultOf.apply(result)), sign);
    }
  }

  // ---- which rows a change concerns

  /** The rows, from the first on, that are among the first n. */
  private List<byte[]> firstRows(Key key) {
    List<byte[]> found = new ArrayList<>();
    byte[] last = null;
    int ranks = 0;
    Tree.Rows each = rows.first(key);
    while (each.next()) {
      boolean isNew = last == null || comparator.compareOrder(last, each.row()) != 0;
      if (isNew) ranks++;
      int reached = reach.rank == Rank.DENSE_RANK ? ranks - 1 : found.size();
      boolean counts = isNew || reach.rank == Rank.ROW_NUMBER;
      if (counts && reached >= reach.limit) break;
      last = each.row();
      for (long i = 0L; i < each.weight(); i++) {
        if (reach.rank == Rank.ROW_NUMBER && found.size() >= reach.limit) break;
        found.add(last);
      }
    }
    return found;
  }

  /** The spans of rows that changes concern, in order, none of which meet. */
  private List<Span> spans(Key key, Change changes) {
    Set<Key> changed = new HashSet<>();
    for (Change each = changes; each != null; each = each.next) changed.add(new Key(each.row));
    List<Span> all = new ArrayList<>();
    for (Change change = changes; change != null; change = change.next) {
      byte[] row = change.row;
      byte[] low = reach.after < 0 ? null : away(key, row, reach.after, -1, changed);
      byte[] high = reach.before < 0 ? null : away(key, row, reach.before, 1, changed);
      all.add(new Span(low, high));
    }
    all.sort(Comparator.comparing(each -> each.low, Comparator.nullsFirst(comparator)));
    List<Span> merged = new ArrayList<>();
    for (Span next : all) {
      Span last = merged.isEmpty() ? null : merged.get(merged.size() - 1);
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
  private byte[] away(Key key, byte[] row, long places, int step, Set<Key> changed) {
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
    List<byte[]> found = new ArrayList<>();
    if (span.low != null) {
      Tree.Rows each = rows.before(key, span.low);
      while ((reach.before < 0 || found.size() < reach.before) && each.previous()) {
        for (long i = 0L; i < each.weight(); i++) found.add(each.row());
      }
      Collections.reverse(found);
    }
    int from = found.size(), to = -1, later = 0;
    Tree.Rows each = span.low == null ? rows.first(key) : rows.from(key, span.low);
    while (each.next()) {
      boolean isInside = span.high == null || comparator.compare(each.row(), span.high) <= 0;
      if (!isInside) {
        if (to < 0) to = found.size();
        if (reach.after >= 0 && later >= reach.after) break;
        later += (int) each.weight();
      }
      for (long i = 0L; i < each.weight(); i++) found.add(each.row());
    }
    return new Slice(found, from, to < 0 ? found.size() : to);
  }

  /** The function that numbers rows, if only the first of them are needed. */
  enum Rank {
    ROW_NUMBER,
    RANK,
    DENSE_RANK
  }

  /**
   * How far a change is seen.
   *
   * @param before how many rows before it a row's frames reach; -1: to the first.
   * @param after how many after it; -1: to the last.
   * @param peers whether they reach to the rows that are equal in the order.
   * @param limit of how many rows, at most, the result is needed; -1: of all.
   * @param rank by which function these are counted.
   */
  public record Reach(int before, int after, boolean peers, int limit, Rank rank)
      implements Serializable {
    /** As above, with the rank by its place in {@link Rank}. */
    public Reach(int before, int after, boolean peers, int limit, int rank) {
      this(before, after, peers, limit, Rank.values()[rank]);
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

  /** Rows to evaluate, and the places of those whose results count. */
  private record Slice(List<byte[]> rows, int from, int to) {}
}
