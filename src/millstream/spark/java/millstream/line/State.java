package millstream.line;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.concurrent.atomic.AtomicInteger;
import millstream.functions.Bytes;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker$;
import org.apache.spark.sql.streaming.ValueState;

/**
 * The state of a line. What was used of late is at hand as objects; what has changed is written to
 * Spark's state store later, once for many changes, and at the latest before a batch ends.
 *
 * <p>Objects are of two generations: when the young ones have grown too many, they become the old
 * ones, and those of the old that nobody has asked for since are let go. That happens between two
 * commits, so an operator may hold on to a piece while it works.
 *
 * <p>Spark gives a processor the state of the key of the row at hand; that of any key is reached by
 * setting the key where Spark keeps it.
 */
final class State {
  /** Changed pieces that are not written yet: so many, at most, between two commits. */
  private static final int MOST_CHANGED = 1 << 13;

  private static final AtomicInteger OPEN = new AtomicInteger();

  private final ValueState stored;
  private final Bytes out = new Bytes(256);
  private HashMap young = new HashMap();
  private HashMap old = new HashMap();
  private final ArrayDeque changed = new ArrayDeque();
  private long size;

  State(ValueState stored) {
    this.stored = stored;
    OPEN.incrementAndGet();
  }

  void close() {
    OPEN.decrementAndGet();
  }

  /** The piece of a key; an empty one if nothing is stored. */
  Kept get(Key key, Kept.Kind kind) {
    Kept found = (Kept) young.get(key);
    if (found != null) return found;
    found = (Kept) old.remove(key);
    if (found == null) {
      setKey(key.packed());
      byte[] bytes = (byte[]) stored.get();
      found = kind.read(bytes == null ? null : new Bytes(bytes, 0));
      found.key = key;
    }
    young.put(key, found);
    size += (long) found.size();
    return found;
  }

  /** A piece has changed, and takes so many bytes more. */
  void changed(Kept piece, int grown) {
    size += (long) grown;
    if (piece.isChanged) return;
    piece.isChanged = true;
    changed.add(piece);
  }

  /** A commit has passed. */
  void settle() {
    if (size > most()) {
      Iterator each = old.values().iterator();
      while (each.hasNext()) write((Kept) each.next());
      old = young;
      young = new HashMap();
      size = 0L;
    }
    while (changed.size() > MOST_CHANGED) write((Kept) changed.poll());
  }

  /** Write all that has changed. */
  void flush() {
    while (!changed.isEmpty()) write((Kept) changed.poll());
  }

  private void write(Kept piece) {
    if (!piece.isChanged) return;
    piece.isChanged = false;
    setKey(piece.key.packed());
    if (piece.isEmpty()) {
      stored.clear();
      return;
    }
    out.at = 0;
    piece.write(out);
    stored.update(out.copy());
  }

  /** How large a generation may grow: all lines together take a quarter of the heap. */
  private static long most() {
    return Runtime.getRuntime().maxMemory() / 8L / (long) Math.max(1, OPEN.get());
  }

  static void setKey(Object key) {
    ImplicitGroupingKeyTracker$.MODULE$.setImplicitKey(key);
  }
}
