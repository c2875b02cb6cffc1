package millstream.line;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * An operator of the line. The rows of its ports wait until those of a commit, or of some commits,
 * are all there. Then each key that changed is
 * worked on once: row by row, a chain of operators would do its work for every step in between, and
 * readers would see them.
 */
public abstract class Operator implements Serializable {
  private static final long serialVersionUID = 1L;
  private transient LinkedHashMap waiting;
  private transient int expected = 8;

  /** Whether it takes the rows of a port. */
  abstract boolean takes(int port);

  /** Get ready, in the task. */
  abstract void open(Line line);

  /**
   * Work on a key.
   *
   * @param key the key.
   * @param changes of {@link Change}: what changes at its ports.
   */
  abstract void work(Key key, ArrayList changes);

  /**
   * Whether the order of changes matters. Then a row that goes and comes back is left out, and those
   * that go come first, so that no two rows meet that were never there together.
   */
  boolean needsOrder() {
    return false;
  }

  /** Let go of what no row will meet any more, since the watermark has come to a moment. */
  void expire(long watermark) {}

  /** Take a change of a key. */
  final void add(byte[] key, Change change) {
    if (waiting == null) waiting = new LinkedHashMap(expected * 2);
    Key found = new Key(key);
    ArrayList changes = (ArrayList) waiting.get(found);
    if (changes == null) {
      changes = new ArrayList(2);
      waiting.put(found, changes);
    }
    changes.add(change);
  }

  /** Work on all keys that have changed. */
  final void workAll() {
    if (waiting == null) return;
    Iterator each = waiting.entrySet().iterator();
    expected = Math.max(8, waiting.size());
    waiting = null;
    while (each.hasNext()) {
      Map.Entry entry = (Map.Entry) each.next();
      ArrayList changes = (ArrayList) entry.getValue();
      if (changes.size() > 1 && needsOrder()) changes = netted(changes);
      if (changes.size() > 0) work((Key) entry.getKey(), changes);
    }
  }

  /** What is left of the changes of a key: those that go, then those that come. */
  private static ArrayList netted(ArrayList changes) {
    boolean any = false;
    for (int i = 0; i < changes.size() && !any; i++) any = ((Change) changes.get(i)).weight < 0L;
    if (!any) return changes;
    HashMap rows = new HashMap();
    for (int i = 0; i < changes.size(); i++) {
      Change change = (Change) changes.get(i);
      Change known = (Change) rows.putIfAbsent(new Key(change.row).at(change.port, 0), change);
      if (known == null) continue;
      known.weight += change.weight;
      known.lsn = Math.max(known.lsn, change.lsn);
      change.weight = 0L;
    }
    ArrayList found = new ArrayList(changes.size());
    for (int i = 0; i < changes.size(); i++) {
      if (((Change) changes.get(i)).weight < 0L) found.add(changes.get(i));
    }
    for (int i = 0; i < changes.size(); i++) {
      if (((Change) changes.get(i)).weight > 0L) found.add(changes.get(i));
    }
    return found;
  }
}
