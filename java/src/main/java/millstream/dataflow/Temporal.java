package millstream.dataflow;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * FOR SYSTEM_TIME AS OF: each row of the left side with the row that a table has at its LSN. A
 * later change of the table does not correct the result, so the state is that of the table alone,
 * and the rows of several commits are taken one after the other, not netted.
 */
public class Temporal extends Operator {
  private static final long serialVersionUID = 1L;

  private final int rightPort;
  private final int leftWidth;
  private final int rightWidth;
  private final boolean outer;
  private final Pipe pipe;
  private transient Tree table;
  private transient UnsafeRow left;
  private transient UnsafeRow right;
  private transient InternalRow nulls;
  private transient JoinedRow joined;

  /**
   * @param leftPort where rows come, none of which ever goes.
   * @param rightPort where the changes of the table come.
   * @param leftWidth how many columns the rows have.
   * @param rightWidth how many the table has.
   * @param outer whether rows without a match are kept.
   * @param pipe where the result goes.
   */
  public Temporal(
      int leftPort, int rightPort, int leftWidth, int rightWidth, boolean outer, Pipe pipe) {
    super(leftPort, rightPort);
    this.rightPort = rightPort;
    this.leftWidth = leftWidth;
    this.rightWidth = rightWidth;
    this.outer = outer;
    this.pipe = pipe;
  }

  @Override
  void open(Dataflow dataflow) {
    int slot = dataflow.newSlot();
    table = new Tree(dataflow.state(), slot, null);
    setRoots(dataflow, slot, Page.KIND);
    left = new UnsafeRow(leftWidth);
    right = new UnsafeRow(rightWidth);
    nulls = new GenericInternalRow(rightWidth);
    joined = new JoinedRow();
    pipe.open(dataflow);
  }

  @Override
  void work(StateNode root, Change changes) {
    Page rows = (Page) root;
    if (isInOrder(changes)) {
      for (Change each = changes; each != null; each = each.next) take(rows, each);
      return;
    }
    // Rows that another operator has sent come after those of the table.
    List<Change> sorted = new ArrayList<>();
    for (Change each = changes; each != null; each = each.next) sorted.add(each);
    sorted.sort(Comparator.comparingLong(each -> each.lsn));
    for (Change each : sorted) take(rows, each);
  }

  private static boolean isInOrder(Change changes) {
    for (Change each = changes; each.next != null; each = each.next) {
      if (each.lsn > each.next.lsn) return false;
    }
    return true;
  }

  private void take(Page rows, Change change) {
    if (change.port == rightPort) {
      table.add(rows, change.row, change.weight);
      return;
    }
    left.pointTo(change.row, change.row.length);
    boolean any = false;
    Tree.Rows matches = table.first(rows);
    while (matches.next()) {
      if (matches.weight() <= 0L) continue;
      byte[] match = matches.row();
      right.pointTo(match, match.length);
      pipe.send(joined.apply(left, right), change.lsn, change.weight);
      any = true;
    }
    if (!any && outer) pipe.send(joined.apply(left, nulls), change.lsn, change.weight);
  }
}
