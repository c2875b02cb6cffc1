package millstream.dataflow;

import java.util.ArrayList;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.immutable.Seq;

/**
 * Gives each row its session: the time of the first of the rows that follow each other by no more
 * than a gap. So a change concerns the rows from it on, until the sessions are again what they
 * were.
 *
 * <p>State of a key: its rows in order of their times, each with its session. A row that is further
 * from the watermark than the gap expires: no later row begins before it or follows it.
 */
public class Sessions extends OrderedOperator {
  private static final long serialVersionUID = 1L;

  private final int time;
  private final long gap;
  private final Expiry expiry;
  private transient JoinedRow joined;
  private transient UnsafeRow view;

  /**
   * @param port where its rows come.
   * @param width how many columns they have.
   * @param time the place of the one that has their time, which is never NULL.
   * @param gap how many microseconds may lie between two rows of a session.
   * @param order Spark's sort order by the time.
   * @param input the columns.
   * @param expiry when a row expires; null: never.
   * @param pipe where the rows go, with their sessions as another column.
   */
  public Sessions(
      int port,
      int width,
      int time,
      long gap,
      Seq<SortOrder> order,
      Seq<Attribute> input,
      Expiry expiry,
      Pipe pipe) {
    super(port, width, order, input, pipe);
    this.time = time;
    this.gap = gap;
    this.expiry = expiry;
  }

  @Override
  void open(Dataflow dataflow) {
    super.open(dataflow);
    joined = new JoinedRow();
    view = new UnsafeRow(width);
    if (expiry != null) expiry.open(dataflow);
  }

  @Override
  void work(StateNode root, Change changes) {
    Page page = (Page) root;
    ArrayList<Delta> deltas = sorted(changes);
    if (deltas.isEmpty()) return;
    long lsn = newestLsn(changes);
    for (Delta each : deltas) each.note = session(page, each.row);
    for (Delta each : deltas) {
      each.before = rows.add(page, each.row, each.weight);
      if (expiry != null) expiry.add(root.key, each.row, Pipe.row(each.row, width), each.weight);
    }
    ArrayList<Given> come = new ArrayList<>();
    for (int next = 0; next < deltas.size(); ) next = walk(page, deltas, next, come, lsn);
    for (Given each : come) send(each.row, each.session, lsn, each.weight);
  }

  /** The session that a row has so far; 0 if it is not there. */
  private long session(Page root, byte[] row) {
    Tree.Rows known = rows.from(root, row);
    return known.next() && comparator.compare(known.row(), row) == 0 ? known.note() : 0L;
  }

  /**
   * Go over the rows from one that has changed, until the rest are as they were. What goes is sent.
   *
   * @param come takes what comes.
   * @return the place of the first change that was not met.
   */
  private int walk(Page root, ArrayList<Delta> deltas, int from, ArrayList<Given> come, long lsn) {
    int next = from;
    byte[] first = deltas.get(from).row;
    Tree.Rows earlier = rows.before(root.key, first);
    boolean any = earlier.previous();
    long last = any ? timeOf(earlier.row()) : 0L, session = any ? earlier.note() : 0L;
    Tree.Rows each = rows.from(root, first);
    boolean more = each.next();
    while (more || next < deltas.size()) {
      Delta delta = next < deltas.size() ? deltas.get(next) : null;
      int order = !more ? 1 : delta == null ? -1 : comparator.compare(each.row(), delta.row);
      if (order > 0) { // it is not there any more
        send(delta.row, delta.note, lsn, -delta.before);
        next++;
        continue;
      }
      long at = timeOf(each.row());
      if (!any || at - last > gap) session = at;
      any = true;
      last = at;
      long before = each.weight(), known = each.note();
      if (order == 0) {
        before = delta.before;
        known = delta.note;
        next++;
      } else if (known == session) {
        return next; // and so is what follows, up to the next change
      }
      long same = known == session ? Math.min(before, each.weight()) : 0L;
      send(each.row(), known, lsn, same - before);
      if (each.weight() > same) come.add(new Given(each.row(), session, each.weight() - same));
      each.setNote(session);
      more = each.next();
    }
    return next;
  }

  private void send(byte[] row, long session, long lsn, long weight) {
    InternalRow added = new GenericInternalRow(new Object[] {session});
    pipe.send(joined.apply(Pipe.row(row, width), added), lsn, weight);
  }

  private long timeOf(byte[] row) {
    view.pointTo(row, row.length);
    return view.getLong(time);
  }

  @Override
  boolean isDue() {
    return expiry != null && expiry.isDue();
  }

  @Override
  void expire(long watermark) {
    if (expiry == null) return;
    Expiry.Expired found = expiry.next(watermark);
    for (; found != null; found = expiry.next(watermark)) {
      rows.add(found.key, found.row, -found.weight);
    }
  }

  /** A row with its session. */
  private record Given(byte[] row, long session, long weight) {}
}
