package millstream.dataflow;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import scala.collection.immutable.Seq;

/**
 * ORDER BY ... LIMIT ... OFFSET. The rows are kept in order, and the first of them are compared
 * before and after a change. Of rows that are equal in the order, those with the lesser bytes come
 * first, so that there is one answer.
 */
public class Top extends Operator {
  private static final long serialVersionUID = 1L;

  private final int port;
  private final int width;
  private final int limit;
  private final int offset;
  private final Seq order;
  private final Seq input;
  private final Pipe pipe;
  private transient Tree rows;
  private transient Comparator comparator;

  /**
   * @param port where its rows come.
   * @param width how many columns they have.
   * @param limit how many of them it gives.
   * @param offset how many it leaves out before.
   * @param order Spark's sort orders.
   * @param input the columns.
   * @param pipe where the result goes.
   */
  public Top(int port, int width, int limit, int offset, Seq order, Seq input, Pipe pipe) {
    this.port = port;
    this.width = width;
    this.limit = limit;
    this.offset = offset;
    this.order = order;
    this.input = input;
    this.pipe = pipe;
  }

  void open(Dataflow dataflow) {
    comparator = new ByOrder(new LazilyGeneratedOrdering(order, input), width);
    int slot = dataflow.newSlot();
    rows = new Tree(dataflow.state(), slot, comparator);
    setRoots(dataflow, slot, Page.KIND);
    pipe.open(dataflow);
  }

  boolean takes(int other) {
    return port == other;
  }

  void work(Kept root, Change changes) {
    Key key = root.key;
    ArrayList before = firstRows(key);
    byte[] last = isFull(before) ? ((Change) before.get(before.size() - 1)).row : null;
    boolean concerned = false;
    long lsn = 0L;
    for (Change change = changes; change != null; change = change.next) {
      lsn = Math.max(lsn, change.lsn);
      rows.add(key, change.row, change.weight);
      if (last == null || comparator.compare(change.row, last) <= 0) concerned = true;
    }
    if (concerned) sendDifference(before, firstRows(key), lsn);
  }

  private void sendDifference(ArrayList before, ArrayList after, long lsn) {
    HashMap known = new HashMap();
    for (int i = 0; i < before.size(); i++) {
      Change row = (Change) before.get(i);
      known.put(new Key(row.row), row);
    }
    ArrayList come = new ArrayList();
    for (int i = 0; i < after.size(); i++) {
      Change row = (Change) after.get(i), old = (Change) known.get(new Key(row.row));
      long more = old == null ? row.weight : row.weight - old.weight;
      if (old != null) old.weight = Math.max(0L, -more);
      if (more > 0L) come.add(new Change(0, row.row, lsn, more));
    }
    for (int i = 0; i < before.size(); i++) {
      Change row = (Change) before.get(i);
      pipe.send(Pipe.row(row.row, width), lsn, -row.weight);
    }
    for (int i = 0; i < come.size(); i++) {
      Change row = (Change) come.get(i);
      pipe.send(Pipe.row(row.row, width), lsn, row.weight);
    }
  }

  private boolean isFull(ArrayList found) {
    long count = 0L;
    for (int i = 0; i < found.size(); i++) count += ((Change) found.get(i)).weight;
    return count >= (long) limit && count > 0L;
  }

  private ArrayList firstRows(Key key) {
    ArrayList found = new ArrayList();
    Tree.Rows each = rows.first(key);
    long skipped = (long) offset;
    for (long room = (long) limit; room > 0L && each.next(); ) {
      long out = Math.min(skipped, each.weight());
      skipped -= out;
      long weight = Math.min(room, each.weight() - out);
      room -= weight;
      if (weight > 0L) found.add(new Change(0, each.row(), 0L, weight));
    }
    return found;
  }

  /** Compares rows by Spark's order, and else by their bytes. */
  static final class ByOrder implements Comparator {
    private final LazilyGeneratedOrdering ordering;
    private final UnsafeRow left;
    private final UnsafeRow right;

    ByOrder(LazilyGeneratedOrdering ordering, int width) {
      this.ordering = ordering;
      left = new UnsafeRow(width);
      right = new UnsafeRow(width);
    }

    public int compare(Object one, Object other) {
      byte[] first = (byte[]) one, second = (byte[]) other;
      int found = compareOrder(first, second);
      return found != 0 ? found : Arrays.compareUnsigned(first, second);
    }

    /** Compare by the order alone. */
    int compareOrder(byte[] first, byte[] second) {
      left.pointTo(first, first.length);
      right.pointTo(second, second.length);
      return ordering.compare(left, right);
    }
  }
}
