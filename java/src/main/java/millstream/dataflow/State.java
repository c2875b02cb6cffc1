package millstream.dataflow;

import java.util.ArrayDeque;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker$;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The state of a dataflow. What was used of late is at hand as objects; what has changed is written
 * to Spark's state store later, once for many changes: when there is nothing else to do, when there
 * is no room for it any more, and at the latest before a batch ends.
 *
 * <p>When too much is at hand, a part of what was not used of late is evicted. That happens between
 * two keys, so an operator may hold on to a node while it works on one; a root that is touched
 * stays.
 *
 * <p>Spark gives a processor the state of the key of the row at hand; that of any key is reached by
 * setting the key where Spark keeps it.
 */
final class State implements TaskCompletionListener {
  /**
   * Changed nodes that are not written yet: so many, at most, between two commits. While the feed
   * is quiet, they become fewer.
   */
  private static final int MOST_CHANGED = 1 << 20;

  /** How many are written when there is nothing else to do: a tenth of a millisecond's worth. */
  private static final int AT_PAUSE = 32;

  /** What a row that waits, or a root that is touched, takes of memory, with what comes of it. */
  private static final int PENDING_BYTES = 400;

  /** What the key of a node takes of memory, with the place in the table, beside its own bytes. */
  private static final int KEY_BYTES = 64;

  /** How many states are open in this process, which share the memory. */
  private static final AtomicInteger OPEN = new AtomicInteger();

  /** The slot of what the state says of itself. */
  private static final int TOTALS = 0xffff;

  /** The sizes of the states of this process, by feed. */
  private static final ConcurrentHashMap<String, long[]> SIZES = new ConcurrentHashMap<>();

  private final String feed;
  private final ValueState<byte[]> stored;
  private final Bytes out = new Bytes(256);
  private final NodeTable nodes = new NodeTable();
  private int generation = 0;

  /** What is stored and not at hand; null: that is not known, so all must be looked for. */
  private EvictedNodes evicted;

  private final ArrayDeque<StateNode> changed = new ArrayDeque<>();
  private Totals totals;
  private long held;
  private long most;
  private int mostPending;
  private int holds;
  private boolean isCrowded;
  private boolean isClosed;

  State(String feed, ValueState<byte[]> stored) {
    this.feed = feed;
    this.stored = stored;
    TaskContext task = TaskContext.get();
    isClosed = task == null; // the driver only looks which state there is
    if (task != null) {
      OPEN.incrementAndGet();
      task.addTaskCompletionListener(this); // Spark does not close what a stopped task has opened
    }
    setMost();
  }

  /** See whether anything is stored: Spark lets nobody look before the first row. */
  void begin() {
    evicted = stored(Key.NOTHING, TOTALS, 0) == null ? new EvictedNodes() : null;
  }

  public void onTaskCompletion(TaskContext task) {
    close();
  }

  void close() {
    if (isClosed) return;
    isClosed = true;
    OPEN.decrementAndGet();
  }

  /** The root of a row as key; an empty one if nothing is stored. */
  StateNode root(UnsafeRow key, int slot, StateNode.Kind kind) {
    int hash = Key.hashOf(key);
    StateNode found = nodes.find(key, hash, slot);
    if (found == null) return load(Key.copyOf(key, hash), slot, 0, kind);
    found.generation = generation;
    return found;
  }

  /** A node of a key; an empty one if nothing is stored. */
  StateNode get(Key key, int slot, int page, StateNode.Kind kind) {
    StateNode found = nodes.find(key, slot, page);
    if (found == null) return load(key, slot, page, kind);
    found.generation = generation;
    return found;
  }

  private StateNode load(Key key, int slot, int page, StateNode.Kind kind) {
    boolean isNew = evicted != null && !evicted.mayHave(key, slot, page);
    byte[] bytes = isNew ? null : stored(key, slot, page);
    StateNode found = kind.read(bytes == null ? null : new Bytes(bytes, 0));
    found.place(key, slot, page);
    found.stored = bytes == null ? 0 : bytes.length;
    found.generation = generation;
    found.counted = found.size() + KEY_BYTES + key.bytes.length;
    held += found.counted;
    nodes.add(found);
    return found;
  }

  private byte[] stored(Key key, int slot, int page) {
    setKey(StateNode.packed(key, slot, page));
    return stored.get();
  }

  /** A node has changed, and takes so many bytes more. */
  void changed(StateNode node, int grown) {
    held += grown;
    node.counted += grown;
    if (node.isChanged) return;
    node.isChanged = true;
    changed.add(node);
  }

  /** How many rows that wait, and roots that are touched, an operator may have. */
  int mostPending() {
    return mostPending;
  }

  /** Evict nothing, since an operator is at work on a key, until this is said again. */
  void hold(int more) {
    holds += more;
  }

  /** The operators are between two keys: if there is too much at hand, evict some. */
  void makeRoom() {
    if (held <= most || holds > 0) return;
    long goal = most - most / 4L;
    evict(goal);
    if (held > goal) {
      generation++;
      evict(goal);
    }
    int known = changed.size();
    for (int i = 0; i < known; i++) {
      StateNode node = changed.poll();
      if (node.isChanged) changed.add(node);
    }
    if (held <= goal) return;
    isCrowded = true;
    most = held + most / 4L; // there is nothing more to evict now
  }

  private void evict(long goal) {
    StateNode[] unused = nodes.takeOut(generation, held - goal);
    for (int i = 0; i < unused.length; i++) {
      write(unused[i]);
      if (unused[i].stored > 0 && evicted != null) evicted.add(unused[i]);
      held -= unused[i].counted;
    }
  }

  /** Whether there is no room, since changes wait for what is at hand. */
  boolean isCrowded() {
    return isCrowded;
  }

  /** The operators have worked on all that waited. */
  void settle() {
    isCrowded = false;
    setMost();
    makeRoom();
    while (changed.size() > MOST_CHANGED) write(changed.poll());
    publish();
  }

  /** There is nothing else to do: write some of what has changed. Whether more is left. */
  boolean atPause() {
    for (int i = 0; i < AT_PAUSE && !changed.isEmpty(); i++) write(changed.poll());
    return !changed.isEmpty();
  }

  /** Write all that has changed. */
  void atEnd() {
    while (!changed.isEmpty()) write(changed.poll());
    totals().isChanged = true;
    write(totals());
    publish();
  }

  private void publish() {
    SIZES.put(feed, new long[] {totals().rows, totals().bytes});
  }

  private void write(StateNode node) {
    if (!node.isChanged) return;
    node.isChanged = false;
    setKey(StateNode.packed(node.key, node.slot, node.page));
    int before = node.stored;
    if (node.isEmpty()) {
      stored.clear();
      node.stored = 0;
    } else {
      out.at = 0;
      node.write(out);
      stored.update(out.copy());
      node.stored = out.at;
    }
    totals().bytes += node.stored - before;
  }

  // ---- how large it is

  /** Rows have come to the state, or have gone. */
  void count(long rows) {
    totals().rows += rows;
  }

  /**
   * How many rows the state of a feed's dataflow has, and how many bytes; null: that is not known.
   */
  static long[] sizeOf(String feed) {
    return SIZES.get(feed);
  }

  private Totals totals() {
    if (totals == null) totals = (Totals) get(Key.NOTHING, TOTALS, 0, new Totals());
    return totals;
  }

  /** What is in the state. */
  private static final class Totals extends StateNode implements StateNode.Kind {
    long rows;
    long bytes;

    boolean isEmpty() {
      return false;
    }

    void write(Bytes out) {
      out.putLong(rows);
      out.putLong(bytes);
    }

    int size() {
      return 0;
    }

    public StateNode read(Bytes in) {
      Totals found = new Totals();
      if (in == null) return found;
      found.rows = in.getLong();
      found.bytes = in.getLong();
      return found;
    }
  }

  /**
   * How much may be at hand: of all dataflows together, 40 % of the heap, if nothing else is said.
   */
  private void setMost() {
    long all =
        Long.getLong("millstream.dataflow.memory", Runtime.getRuntime().maxMemory() / 5L * 2L);
    most = all / (long) Math.max(1, OPEN.get());
    mostPending = (int) Math.min(most / (long) PENDING_BYTES, 1L << 24);
  }

  static void setKey(Object key) {
    ImplicitGroupingKeyTracker$.MODULE$.setImplicitKey(key);
  }
}
