package millstream.dataflow;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.immutable.Seq;

/**
 * GROUP BY over rows that come and go. State of a group: how many rows it has, and what each of its
 * aggregates needs. Their buffers are laid out as Spark's own, so that Spark's expressions make the
 * results of them, with Spark's types and NULLs. A group that changed gives its old row with weight
 * -1 and its new one with weight 1.
 */
public class Group extends Operator implements StateNode.Kind {
  private static final long serialVersionUID = 1L;

  private final int keys;
  private final Aggregate[] aggregates;
  private final Seq<Expression> results;
  private final Seq<Attribute> buffers;
  private final Expiry expiry;
  private final boolean byResult;
  private final Pipe pipe;

  private transient State state;
  private transient int slot;
  private transient UnsafeProjection resultOf;
  private transient JoinedRow joined;

  /**
   * @param port where its rows come.
   * @param keys how many keys it has; without any, its one group is always there.
   * @param aggregates of {@link Aggregate}.
   * @param results Spark's expressions for the result of each, over all buffers.
   * @param buffers the attributes of all buffers.
   * @param expiry when a group expires, by its keys or its row; null when it never is.
   * @param byResult whether it is by its row, which may change: then the moment may be a later one
   *     when the one that was noted has passed.
   * @param pipe where the result goes.
   */
  public Group(
      int port,
      int keys,
      List<Aggregate> aggregates,
      Seq<Expression> results,
      Seq<Attribute> buffers,
      Expiry expiry,
      boolean byResult,
      Pipe pipe) {
    super(port);
    this.keys = keys;
    this.aggregates = aggregates.toArray(Aggregate[]::new);
    this.results = results;
    this.buffers = buffers;
    this.expiry = expiry;
    this.byResult = byResult;
    this.pipe = pipe;
  }

  void open(Dataflow dataflow) {
    state = dataflow.state();
    slot = dataflow.newSlot();
    setRoots(dataflow, slot, this);
    for (int i = 0; i < aggregates.length; i++) aggregates[i].open(dataflow);
    if (expiry != null) expiry.open(dataflow);
    resultOf = UnsafeProjection.create(results, buffers);
    joined = new JoinedRow();
    pipe.open(dataflow);
  }

  /** Have the group without keys give its row, though none has come. */
  void begin(long lsn) {
    Parts group = (Parts) state.get(Key.NOTHING, slot, 0, this);
    seen(group, lsn);
    touch(group);
  }

  /** Aggregates are the same in any order of the rows, and are not read before the commit's end. */
  boolean apply(StateNode root, UnsafeRow row, long lsn, long weight) {
    Parts group = (Parts) root;
    seen(group, lsn);
    group.count += weight;
    for (int i = 0; i < aggregates.length; i++) {
      aggregates[i].take(group.key, row, weight, group.parts[i]);
    }
    return true;
  }

  /** A row is there, at an LSN: the first one finds the aggregates as the result has them. */
  private void seen(Parts group, long lsn) {
    if (!group.isTouched) {
      if (group.exists && group.result == null) group.result = result(group);
      group.lsn = lsn;
    } else if (lsn > group.lsn) {
      group.lsn = lsn;
    }
  }

  void work(StateNode root, Change none) {
    Parts group = (Parts) root;
    boolean existed = group.exists;
    byte[] before = group.result;
    group.exists = keys == 0 || group.count > 0L;
    group.result = group.exists ? result(group) : null;
    state.changed(group, 0);
    if (existed != group.exists) exists(group, group.exists ? 1L : -1L);
    if (Arrays.equals(before, group.result)) return;
    UnsafeRow key = Pipe.row(group.key.bytes, keys);
    if (existed) send(key, before, group.lsn, -1L);
    if (group.exists) send(key, group.result, group.lsn, 1L);
  }

  private void exists(Parts group, long weight) {
    state.count(weight);
    if (expiry == null) return;
    if (!byResult) {
      expiry.add(group.key, Pipe.NOTHING, Pipe.row(group.key.bytes, keys), weight);
    } else if (group.exists) { // of one that goes, the note is found to be of none
      expiry.add(group.key, Pipe.NOTHING, row(group), 1L);
    }
  }

  private InternalRow row(Parts group) {
    byte[] result = group.result == null ? result(group) : group.result;
    return joined.apply(Pipe.row(group.key.bytes, keys), Pipe.row(result, aggregates.length));
  }

  boolean isDue() {
    return expiry != null && expiry.isDue();
  }

  void expire(long watermark) {
    if (expiry == null) return;
    Expiry.Expired found = expiry.next(watermark);
    for (; found != null; found = expiry.next(watermark)) {
      Parts group = (Parts) state.get(found.key, slot, 0, this);
      if (byResult && !group.exists) continue;
      if (byResult && !expiry.hasPassed(row(group), watermark)) {
        expiry.add(found.key, Pipe.NOTHING, row(group), 1L);
        continue;
      }
      for (int i = 0; i < aggregates.length; i++) aggregates[i].clear(found.key);
      group.clear();
      state.changed(group, 0);
      // One that had gone already is noted as come and as gone.
      state.count(byResult ? -1L : -found.weight);
    }
  }

  private void send(UnsafeRow key, byte[] result, long lsn, long weight) {
    pipe.send(joined.apply(key, Pipe.row(result, aggregates.length)), lsn, weight);
  }

  private byte[] result(Parts group) {
    List<Object> values = new ArrayList<>();
    for (int i = 0; i < aggregates.length; i++) {
      aggregates[i].addBuffers(group.key, group.parts[i], values, group.count);
    }
    return Pipe.bytes(resultOf.apply(new GenericInternalRow(values.toArray())));
  }

  public StateNode read(Bytes in) {
    Parts found = new Parts(aggregates);
    if (in == null) return found;
    found.exists = true;
    found.count = in.getSmall();
    for (int i = 0; i < aggregates.length; i++) found.parts[i] = aggregates[i].read(in);
    return found;
  }

  /** What is kept of a group. */
  private static final class Parts extends StateNode {
    private final Aggregate[] aggregates;
    final Object[] parts;
    long count;
    boolean exists;

    /** The newest LSN of the rows since it was worked on. */
    long lsn;

    /** The result that it gave last; null if that is not known, and must be made again. */
    byte[] result;

    Parts(Aggregate[] aggregates) {
      this.aggregates = aggregates;
      parts = new Object[aggregates.length];
      clear();
    }

    void clear() {
      count = 0L;
      exists = false;
      result = null;
      for (int i = 0; i < parts.length; i++) parts[i] = aggregates[i].newPart();
    }

    boolean isEmpty() {
      return !exists; // every row that came has gone, and with it what the aggregates had of it
    }

    int size() {
      return 200 + 100 * parts.length;
    }

    void write(Bytes out) {
      out.putSmall(count);
      for (int i = 0; i < parts.length; i++) aggregates[i].write(parts[i], out);
    }
  }
}
