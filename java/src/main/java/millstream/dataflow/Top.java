package millstream.dataflow;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import scala.collection.immutable.Seq;

/**
 * ORDER BY ... LIMIT ... OFFSET. The state has all rows in order; the first of them are compared
 * before and after a change. If several rows are equal in the order, those with the lesser bytes
 * come first, so that there is one answer.
 */
public class Top extends OrderedOperator {
  private static final long serialVersionUID = 1L;

  private final int limit;
  private final int offset;

  /**
   * @param port where its rows come.
   * @param width how many columns they have.
   * @param limit how many rows it gives.
   * @param offset how many rows it skips first.
   * @param order Spark's sort orders.
   * @param input the columns.
   * @param pipe where the result goes.
   */
  public Top(
      int port,
      int width,
      int limit,
      int offset,
      Seq<SortOrder> order,
      Seq<Attribute> input,
      Pipe pipe) {
    super(port, width, order, input, pipe);
    this.limit = limit;
    this.offset = offset;
  }

  @Override
  void work(StateNode root, Change changes) {
    Key key = root.key;
    List<Counted> before = firstRows(key);
    byte[] last = isFull(before) ? before.get(before.size() - 1).row : null;
    boolean isConcerned = false;
    for (Change change = changes; change != null; change = change.next) {
      rows.add(key, change.row, change.weight);
      if (last == null || comparator.compare(change.row, last) <= 0) isConcerned = true;
    }
    if (!isConcerned) return;
    Difference difference = new Difference();
    for (Counted each : before) difference.add(each.row, -each.weight);
    for (Counted each : firstRows(key)) difference.add(each.row, each.weight);
    difference.send(pipe, width, newestLsn(changes));
  }

  private boolean isFull(List<Counted> found) {
    long count = 0L;
    for (Counted each : found) count += each.weight;
    return count > 0L && count >= limit;
  }

  private List<Counted> firstRows(Key key) {
    List<Counted> found = new ArrayList<>();
    Tree.Rows each = rows.first(key);
    long skipped = offset;
    for (long room = limit; room > 0L && each.next(); ) {
      long out = Math.min(skipped, each.weight());
      skipped -= out;
      long weight = Math.min(room, each.weight() - out);
      room -= weight;
      if (weight > 0L) found.add(new Counted(each.row(), weight));
    }
    return found;
  }

  /** A row, and how often it is among the first. */
  private record Counted(byte[] row, long weight) {}
}
