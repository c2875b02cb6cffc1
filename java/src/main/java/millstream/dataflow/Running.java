package millstream.dataflow;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import scala.collection.immutable.Seq;

/**
 * Functions over the rows of a partition from the first one to the one at hand: running totals,
 * ROW_NUMBER, RANK. A change concerns the rows from it on, until the totals are again what they
 * were.
 *
 * <p>State of a partition: its rows in order, and for each page of them the totals before its first
 * row, so that the rows before need not be read. From there on the rows as they were and as they
 * are are gone over at the same time, each with its own totals.
 */
public class Running extends Operator {
  private static final long serialVersionUID = 1L;

  private final int port;
  private final int width;
  private final Seq order;
  private final Seq input;
  private final RunningTotals totals;
  private final Pipe pipe;
  private transient State state;
  private transient Tree rows;
  private transient int marks;
  private transient Top.ByOrder comparator;

  /**
   * @param port where its rows come.
   * @param width how many columns they have.
   * @param order Spark's sort orders.
   * @param input the columns.
   * @param totals the functions.
   * @param pipe where the result goes.
   */
  public Running(int port, int width, Seq order, Seq input, RunningTotals totals, Pipe pipe) {
    this.port = port;
    this.width = width;
    this.order = order;
    this.input = input;
    this.totals = totals;
    this.pipe = pipe;
  }

  void open(Dataflow dataflow) {
    comparator = new Top.ByOrder(new LazilyGeneratedOrdering(order, input), width);
    state = dataflow.state();
    int slot = dataflow.newSlot();
    rows = new Tree(state, slot, comparator);
    marks = dataflow.newSlot();
    setRoots(dataflow, slot, Page.KIND);
    totals.open(width);
    pipe.open(dataflow);
  }

  boolean takes(int other) {
    return port == other;
  }

  void work(Kept root, Change changes) {
    ArrayList sorted = sorted(changes);
    if (sorted.isEmpty()) return;
    long lsn = 0L;
    for (Change each = changes; each != null; each = each.next) lsn = Math.max(lsn, each.lsn);
    Key key = root.key;
    Walk walk = new Walk(key, start(key, ((Delta) sorted.get(0)).row));
    for (int i = 0; i < sorted.size(); i++) {
      Delta delta = (Delta) sorted.get(i);
      delta.before = rows.add(key, delta.row, delta.weight);
    }
    walk.run(sorted);
    walk.difference.send(pipe, totals.resultWidth(), lsn);
    forget((Page) root);
  }

  /** The changes in the order of their rows, those of the same row as one. */
  private ArrayList sorted(Change changes) {
    ArrayList all = new ArrayList();
    for (Change each = changes; each != null; each = each.next) {
      all.add(new Delta(each.row, each.weight));
    }
    Collections.sort(all, new ByRow());
    ArrayList sorted = new ArrayList(all.size());
    for (int i = 0; i < all.size(); ) {
      Delta one = (Delta) all.get(i);
      for (i++; i < all.size() && comparator.compare(((Delta) all.get(i)).row, one.row) == 0; i++) {
        one.weight += ((Delta) all.get(i)).weight;
      }
      if (one.weight != 0L) sorted.add(one);
    }
    return sorted;
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

  /** Of a partition without rows, let go of all marks: pages to come have the same numbers. */
  private void forget(Page root) {
    if (root.count > 0) return;
    for (int i = 1; i < root.next; i++) setMark(root.key, i, null);
    root.next = 1;
  }

  private byte[] mark(Key key, int page) {
    if (page == 0) return null; // the only page
    return ((Mark) state.get(key, marks, page, Mark.KIND)).totals;
  }

  private void setMark(Key key, int page, byte[] values) {
    if (page == 0) return;
    Mark mark = (Mark) state.get(key, marks, page, Mark.KIND);
    if (Arrays.equals(mark.totals, values)) return;
    int before = mark.size();
    mark.totals = values;
    state.changed(mark, mark.size() - before);
  }

  /** Goes over the rows of a partition from a page on, as they were and as they are. */
  private final class Walk {
    private final Key key;
    private final byte[] start;
    private final byte[] first;
    private final RunningTotals.Values now;
    private RunningTotals.Values old;
    private final ArrayList peers = new ArrayList();
    private byte[] last;
    final Difference difference = new Difference();

    /** From the page that has a row, or where it would be, as the tree is before it changes. */
    Walk(Key key, byte[] start) {
      this.key = key;
      this.start = start;
      Tree.Rows at = rows.from(key, start);
      byte[] head = at.pageFirst();
      first = head != null && comparator.compare(head, start) < 0 ? head : start;
      now = totals.values(mark(key, at.pageNumber()));
    }

    void run(ArrayList deltas) {
      Tree.Rows each = rows.from(key, first);
      boolean more = each.next();
      int next = 0;
      while (more || next < deltas.size()) {
        Delta delta = next < deltas.size() ? (Delta) deltas.get(next) : null;
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

    /** Set the mark of a page; false if nothing changes from there on. */
    private boolean beginPage(int page, boolean isAfterAll) {
      byte[] values = now.bytes();
      boolean isKnown = Arrays.equals(mark(key, page), values);
      if (!isKnown) setMark(key, page, values);
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
      for (int i = 0; i < peers.size(); i++) note((Peer) peers.get(i));
      peers.clear();
    }

    private void note(Peer peer) {
      if (old == null) return;
      for (int i = 0; i < peer.old.size(); i++) {
        difference.add(old.result(peer.row, peer.old.get(i)), -1L);
      }
      for (int i = 0; i < peer.now.size(); i++) {
        difference.add(now.result(peer.row, peer.now.get(i)), 1L);
      }
    }
  }

  /** How the weight of a row changes, and what it was before. */
  private static final class Delta {
    final byte[] row;
    long weight;
    long before;

    Delta(byte[] row, long weight) {
      this.row = row;
      this.weight = weight;
    }
  }

  /** A row, with the totals at each of its occurrences, as they were and as they are. */
  private static final class Peer {
    final byte[] row;
    final ArrayList now = new ArrayList(1);
    ArrayList old = new ArrayList(1);

    Peer(byte[] row) {
      this.row = row;
    }
  }

  private final class ByRow implements Comparator {
    public int compare(Object one, Object other) {
      return comparator.compare(((Delta) one).row, ((Delta) other).row);
    }
  }

  /** The totals before the first row of a page; null: there is no row before it. */
  private static final class Mark extends Kept {
    static final Kept.Kind KIND = new Marks();
    byte[] totals;

    boolean isEmpty() {
      return totals == null;
    }

    int size() {
      return 100 + (totals == null ? 0 : totals.length);
    }

    void write(Bytes out) {
      out.putSmall((long) totals.length);
      out.put(totals, 0, totals.length);
    }
  }

  private static final class Marks implements Kept.Kind {
    public Kept read(Bytes in) {
      Mark mark = new Mark();
      if (in != null) mark.totals = in.get((int) in.getSmall());
      return mark;
    }
  }
}
