package millstream.line;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker$;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An operator of the line. The rows of its ports wait until the mark that ends their commit; a row
 * that goes and comes back meanwhile is nothing. Then each key that changed is worked on once: row by
 * row, a chain of operators would do its work for every step in between, and readers would see them.
 *
 * <p>Spark gives a processor the state of the key of the row at hand; at the mark, that of the other
 * keys is reached by setting the key where Spark keeps it.
 */
public abstract class Operator extends StatefulProcessor implements Serializable {
  private static final long serialVersionUID = 1L;
  private transient LinkedHashMap waiting;

  /** Whether it takes the rows of a port. */
  abstract boolean takes(int port);

  /**
   * Work on a key.
   *
   * @param key the key.
   * @param changes of {@link Change}: what changes at its ports; those that go come first.
   * @param out takes what that changes, as rows of the line.
   */
  abstract void work(byte[] key, ArrayList changes, ArrayList out);

  public Iterator handleInputRows(Object key, Iterator rows, TimerValues timers) {
    ArrayList out = new ArrayList();
    while (rows.hasNext()) {
      Row row = (Row) rows.next();
      int port = row.getInt(0);
      if (takes(port)) {
        add((byte[]) key, port, (byte[]) row.get(4), row.getLong(1), row.getLong(2));
      } else {
        if (port == Line.MARK) workAll(key, out);
        out.add(row);
      }
    }
    return CollectionConverters.asScala(out.iterator());
  }

  private void add(byte[] key, int port, byte[] row, long lsn, long weight) {
    if (waiting == null) waiting = new LinkedHashMap();
    ByteBuffer wrapped = ByteBuffer.wrap(key);
    LinkedHashMap changes = (LinkedHashMap) waiting.get(wrapped);
    if (changes == null) {
      changes = new LinkedHashMap();
      waiting.put(wrapped, changes);
    }
    ByteBuffer same = ByteBuffer.allocate(4 + row.length);
    same.putInt(port);
    same.put(row);
    same.rewind();
    Change known = (Change) changes.get(same);
    if (known == null) {
      changes.put(same, new Change(port, row, lsn, weight));
    } else {
      known.weight += weight;
      known.lsn = Math.max(known.lsn, lsn);
    }
  }

  private void workAll(Object current, ArrayList out) {
    if (waiting == null) return;
    java.util.Iterator each = waiting.entrySet().iterator();
    while (each.hasNext()) {
      Map.Entry entry = (Map.Entry) each.next();
      ArrayList changes = ordered((LinkedHashMap) entry.getValue());
      if (changes.size() == 0) continue;
      byte[] key = ((ByteBuffer) entry.getKey()).array();
      ImplicitGroupingKeyTracker$.MODULE$.setImplicitKey(key);
      work(key, changes, out);
    }
    ImplicitGroupingKeyTracker$.MODULE$.setImplicitKey(current);
    waiting = null;
  }

  /**
   * What is left of the changes of a key: those that go, then those that come, so that no two rows
   * meet that were never there together. The first of an aggregate without keys has no weight.
   */
  private static ArrayList ordered(LinkedHashMap changes) {
    ArrayList found = new ArrayList();
    java.util.Iterator each = changes.values().iterator();
    while (each.hasNext()) {
      Change change = (Change) each.next();
      if (change.weight < 0L) found.add(change);
    }
    each = changes.values().iterator();
    while (each.hasNext()) {
      Change change = (Change) each.next();
      boolean isFirst = change.weight == 0L && change.row.length == 0;
      if (change.weight > 0L || isFirst) found.add(change);
    }
    return found;
  }
}
