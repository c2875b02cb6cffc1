package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * An operator of the dataflow. It sends nothing before the rows of a commit, or of some commits,
 * are all there. Then each key that was touched is worked on once: row by row, a chain of operators
 * would do its work for every step in between, and readers would see them. Until then a row is
 * applied to the state of its key if the operator can do so on arrival; if it cannot, a copy of the
 * row waits at the root of that state.
 */
public abstract class Operator implements Serializable {
  private static final long serialVersionUID = 1L;

  /** So many changes of a key, at most, are compared with each other, without a table. */
  private static final int FEW = 8;

  final int[] ports;
  private transient Dataflow dataflow;
  private transient State state;
  private transient int slot;
  private transient StateNode.Kind kind;
  private transient ArrayList<StateNode> touched;
  private transient int pending;

  /** An operator whose rows come to some ports. */
  Operator(int... ports) {
    this.ports = ports;
  }

  /** Whether it takes the rows of a port. */
  final boolean takes(int port) {
    return Arrays.stream(ports).anyMatch(each -> each == port);
  }

  /** Get ready, in the task. */
  abstract void open(Dataflow dataflow);

  /** Say where the roots of its keys are, and what they are. */
  final void setRoots(Dataflow dataflow, int atSlot, StateNode.Kind ofKind) {
    this.dataflow = dataflow;
    state = dataflow.state();
    slot = atSlot;
    kind = ofKind;
    touched = new ArrayList<>();
  }

  /**
   * Apply a row to the state of its key on arrival, without sending anything.
   *
   * @param root the root of the state; its first row since it was worked on finds it untouched.
   * @param row the next row overwrites it.
   * @return whether that was done; else a copy of the row waits.
   */
  boolean apply(StateNode root, UnsafeRow row, long lsn, long weight) {
    return false;
  }

  /**
   * Work on a key that was touched.
   *
   * @param root the root of its state.
   * @param changes the first of the rows that wait; null when all were applied on arrival.
   */
  abstract void work(StateNode root, Change changes);

  /**
   * Whether the order of changes matters. Then a row that goes and comes back is left out, and
   * those that go come first, so that no two rows meet that were never there together.
   */
  boolean needsOrder() {
    return false;
  }

  /** Remove what no row will meet any more, since the watermark has come to a moment. */
  void expire(long watermark) {}

  /**
   * The feed has passed a moment, of event time or of the clock, with the commit of an LSN. Called
   * when all operators have worked on the rows up to there.
   */
  void passed(long moment, long lsn) {}

  /** Whether rows came that expire at once. */
  boolean isDue() {
    return false;
  }

  /** The newest LSN of some changes. */
  static long newestLsn(Change changes) {
    long lsn = 0L;
    for (Change each = changes; each != null; each = each.next) lsn = Math.max(lsn, each.lsn);
    return lsn;
  }

  /** Take a row of a key. */
  final void take(UnsafeRow key, int port, UnsafeRow row, long lsn, long weight) {
    take(state.root(key, slot, kind), port, row, lsn, weight);
  }

  /** Take a row of a key. */
  final void take(Key key, int port, UnsafeRow row, long lsn, long weight) {
    take(state.get(key, slot, 0, kind), port, row, lsn, weight);
  }

  private void take(StateNode root, int port, UnsafeRow row, long lsn, long weight) {
    if (!apply(root, row, lsn, weight)) {
      Change change = new Change(port, Pipe.bytes(row), lsn, weight);
      if (root.first == null) {
        root.first = change;
      } else {
        root.last.next = change;
      }
      root.last = change;
      pending++;
    }
    touch(root);
  }

  /** Have a key worked on. */
  final void touch(StateNode root) {
    if (!root.isTouched) {
      root.isTouched = true;
      touched.add(root);
      pending++;
    }
    if (pending > state.mostPending()) dataflow.workFrom(this);
  }

  /** Work on all keys that were touched. */
  final void workAll() {
    for (int i = 0; i < touched.size(); i++) {
      StateNode root = touched.get(i);
      Change changes = root.first;
      root.isTouched = false;
      root.first = null;
      root.last = null;
      boolean waited = changes != null;
      if (waited && changes.next != null && needsOrder()) changes = netted(changes);
      if (!waited || changes != null) work(root, changes);
      state.makeRoom();
    }
    touched.clear();
    pending = 0;
  }

  /**
   * What is left of the changes of a key: those that go, then those that come. All have the newest
   * of their LSNs: what one of them leads to may depend on another, and would else be shown before
   * what it replaces has gone.
   */
  private static Change netted(Change changes) {
    int count = 0;
    long newest = 0L;
    boolean any = false;
    for (Change each = changes; each != null; each = each.next) {
      count++;
      any |= each.weight < 0L;
      newest = Math.max(newest, each.lsn);
    }
    if (!any) return changes;
    if (count <= FEW) {
      addUpFew(changes);
    } else {
      addUpMany(changes);
    }
    return ordered(changes, newest);
  }

  /** Give the first of equal rows of a port the weight of all of them, and the others none. */
  private static void addUpFew(Change changes) {
    for (Change each = changes.next; each != null; each = each.next) {
      Change known = changes;
      while (known != each && !(known.port == each.port && Arrays.equals(known.row, each.row))) {
        known = known.next;
      }
      if (known != each) move(each, known);
    }
  }

  private static void addUpMany(Change changes) {
    HashMap<Key, Change> ofOne = new HashMap<>(), ofOther = new HashMap<>();
    for (Change each = changes; each != null; each = each.next) {
      HashMap<Key, Change> rows = each.port == changes.port ? ofOne : ofOther;
      Change known = rows.putIfAbsent(new Key(each.row), each);
      if (known != null) move(each, known);
    }
  }

  private static void move(Change from, Change to) {
    to.weight += from.weight;
    from.weight = 0L;
  }

  /** Those of the changes that go, then those that come, at an LSN. */
  private static Change ordered(Change changes, long lsn) {
    Change going = null, lastGoing = null, coming = null, lastComing = null, next;
    for (Change each = changes; each != null; each = next) {
      next = each.next;
      each.next = null;
      each.lsn = lsn;
      if (each.weight < 0L) {
        if (going == null) {
          going = each;
        } else {
          lastGoing.next = each;
        }
        lastGoing = each;
      } else if (each.weight > 0L) {
        if (coming == null) {
          coming = each;
        } else {
          lastComing.next = each;
        }
        lastComing = each;
      }
    }
    if (going == null) return coming;
    lastGoing.next = coming;
    return going;
  }
}
