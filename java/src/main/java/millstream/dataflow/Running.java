package millstream.dataflow;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import scala.collection.immutable.Seq;

/**
 * Functions over the rows of a partition from the first one to the one at hand: running totals,
 * ROW_NUMBER, RANK. A change concerns the rows from it on, until the totals are again what they
 * were.
 *
 * <p>State of a partition: its rows in order, and for each page of them the totals before its first
 * row, so that the rows before need not be read. From there on a walk goes over the rows as they
 * were and as they are at the same time, each with their own totals.
 */
public class Running extends OrderedOperator {
  private static final long serialVersionUID = 1L;

  private final RunningTotals totals;
  private transient State state;
  private transient int totalsSlot;

  /**
   * @param port where its rows come.
   * @param width how many columns they have.
   * @param order Spark's sort orders.
   * @param input the columns.
   * @param totals the functions.
   * @param pipe where the result goes.
   */
  public Running(
      int port,
      int width,
      Seq<SortOrder> order,
      Seq<Attribute> input,
      RunningTotals totals,
      Pipe pipe) {
    super(port, width, order, input, pipe);
    this.totals = totals;
  }

  @Override
  void open(Dataflow dataflow) {
    super.open(dataflow);
    state = dataflow.state();
    totalsSlot = dataflow.newSlot();
    totals.open(width);
  }

  @Override
  void work(StateNode root, Change changes) {
    List<Delta> sorted = sorted(changes);
    if (sorted.isEmpty()) return;
    Key key = root.key;
    Walk walk = new Walk(key, start(key, sorted.get(0).row));
    for (Delta each : sorted) each.before = rows.add(key, each.row, each.weight);
    walk.run(sorted);
    walk.difference.send(pipe, totals.resultWidth(), newestLsn(changes));
    forget((Page) root);
  }

  /**
   * The first row whose result a change of a row may concern: itself, or the first of its peers.
   */
  private byte[] start(Key key, byte[] changed) {
    byte[] first = changed;
    if (!totals.hasPeers()) return first;
    Tree.Rows each = rows.before(key, changed);
    while (each.previous() && comparator.compareOrder(each.row(), changed) == 0) first = each.row();
    return first;
  }

  /** Drop the totals of a partition without rows: new pages will have the same numbers. */
  private void forget(Page root) {
    if (root.count > 0) return;
    for (int i = 1; i < root.next; i++) setTotals(root.key, i, null);
    root.next = 1;
  }

  private PageTotals stored(Key key, int page) {
    return (PageTotals) state.get(key, totalsSlot, page, PageTotals::read);
  }

  /** The totals before the first row of a page; null: there is no row before it. */
  private byte[] totals(Key key, int page) {
    return page == 0 ? null : stored(key, page).totals; // page 0 is the only one
  }

  private void setTotals(Key key, int page, byte[] values) {
    if (page == 0) return;
    PageTotals stored = stored(key, page);
    if (Arrays.equals(stored.totals, values)) return;
    int before = stored.size();
    stored.totals = values;
    state.changed(stored, stored.size() - before);
  }

  /** Goes over the rows of a partition from a page on, as they were and as they are. */
  private final class Walk {
    private final Key key;
    private final byte[] start;
    private final byte[] first;
    private final RunningTotals.Values now;
    private RunningTotals.Values old;
    private final List<Peer> peers = new ArrayList<>();
    private byte[] last;
    final Difference difference = new Difference();

    /** From the page that has a row, or where it would be, as the tree is before it changes. */
    Walk(Key key, byte[] start) {
      this.key = key;
      this.start = start;
      Tree.Rows at = rows.from(key, start);
      byte[] head = at.pageFirst();
      first = head != null && comparator.compare(head, start) < 0 ? head : start;
      now = totals.values(totals(key, at.pageNumber()));
    }

    void run(List<Delta> deltas) {
      Tree.Rows each = rows.from(key, first);
      boolean more = each.next();
      int next = 0;
      while (more || next < deltas.size()) {
        Delta delta = next < deltas.size() ? deltas.get(next) : null;
        int order = !more ? 1 : delta == null ? -1 : comparator.compare(each.row(), delta.row);
        byte[] row = order <= 0 ? each.row() : delta.row;
        boolean isPeer = last != null && comparator.compareOrder(last, row) == 0;
        if (!isPeer) endPeers();
        if (order <= 0 && each.isPageFirst() && !beginPage(each.pageNumber(), delta == null))
          return;
        last = row;
        if (order >= 0 && old == null) old = now.copy();
        long weight = order <= 0 ? each.weight() : 0L;
        take(row, order >= 0 ? delta.before : weight, weight);
        if (order <= 0) more = each.next();
        if (order >= 0) next++;
      }
      endPeers();
    }

    /** Set the totals before a page; false if nothing changes from there on. */
    private boolean beginPage(int page, boolean isAfterAll) {
      byte[] values = now.bytes();
      boolean isKnown = Arrays.equals(totals(key, page), values);
      if (!isKnown) setTotals(key, page, values);
      boolean ends = isKnown && isAfterAll && peers.isEmpty();
      return !ends || !Arrays.equals(old.bytes(), values);
    }

    private void take(byte[] row, long before, long after) {
      boolean counts = old != null || (totals.hasPeers() && comparator.compare(row, start) >= 0);
      if (!counts) {
        for (long i = 0L; i < after; i++) now.add(row);
        return;
      }
      Peer peer = new Peer(row);
      for (long i = 0L; i < after; i++) {
        now.add(row);
        peer.now.add(now.snapshot());
      }
      if (old == null) {
        peer.old = peer.now;
      } else {
        for (long i = 0L; i < before; i++) {
          old.add(row);
          peer.old.add(old.snapshot());
        }
      }
      if (totals.hasPeers()) {
        peers.add(peer);
      } else {
        note(peer);
      }
    }

    private void endPeers() {
      peers.forEach(this::note);
      peers.clear();
    }

    private void note(Peer peer) {
      if (old == null) return;
      for (Object[] each : peer.old) difference.add(old.result(peer.row, each), -1L);
      for (Object[] each : peer.now) difference.add(now.result(peer.row, each), 1L);
    }
  }

  /** A row, with the totals at each of its occurrences, as they were and as they are. */
  private static final class Peer {
    final byte[] row;
    final List<Object[]> now = new ArrayList<>(1);
    List<Object[]> old = new ArrayList<>(1);

    Peer(byte[] row) {
      this.row = row;
    }
  }

  /** The totals before the first row of a page; null: there is no row before it. */
  private static final class PageTotals extends StateNode {
    byte[] totals;

    static PageTotals read(Bytes in) {
      PageTotals found = new PageTotals();
      if (in != null) found.totals = in.get((int) in.getSmall());
      return found;
    }

    @Override
    boolean isEmpty() {
      return totals == null;
    }

    @Override
    int size() {
      return 100 + (totals == null ? 0 : totals.length);
    }

    @Override
    void write(Bytes out) {
      out.putSmall(totals.length);
      out.put(totals, 0, totals.length);
    }
  }
}
