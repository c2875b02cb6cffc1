package millstream.line;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import millstream.functions.Bytes;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.immutable.Seq;

/**
 * GROUP BY over rows that come and go. State of a group: how many rows it has, and what each of its
 * aggregates needs. Their buffers are laid out as Spark's own, so that Spark's expressions make the
 * results of them, with Spark's types and NULLs. A group that changed gives its old row with weight
 * -1 and its new one with weight 1.
 */
public class Group extends Operator {
  private static final long serialVersionUID = 1L;

  private final int port;
  private final int keys;
  private final int inputs;
  private final Aggregate[] aggregates;
  private final Seq results;
  private final Seq buffers;
  private final Pipe pipe;

  private transient ValueState state;
  private transient UnsafeProjection resultOf;
  private transient JoinedRow joined;
  private transient long count;

  /**
   * @param port where its rows come.
   * @param keys how many keys it has; without any, its one group is always there.
   * @param inputs how many columns its rows have.
   * @param aggregates of {@link Aggregate}.
   * @param results Spark's expressions for the result of each, over all buffers.
   * @param buffers the attributes of all buffers.
   * @param pipe where the result goes.
   */
  public Group(
      int port, int keys, int inputs, List aggregates, Seq results, Seq buffers, Pipe pipe) {
    this.port = port;
    this.keys = keys;
    this.inputs = inputs;
    this.aggregates = (Aggregate[]) aggregates.toArray(new Aggregate[0]);
    this.results = results;
    this.buffers = buffers;
    this.pipe = pipe;
  }

  public void init(OutputMode mode, TimeMode time) {
    state = getHandle().getValueState("state", Encoders.BINARY(), TTLConfig.NONE());
    for (int i = 0; i < aggregates.length; i++) aggregates[i].open(getHandle(), "values" + i);
    resultOf = UnsafeProjection.create(results, buffers);
    joined = new JoinedRow();
  }

  boolean takes(int other) {
    return port == other;
  }

  void work(byte[] key, ArrayList changes, ArrayList out) {
    byte[] known = (byte[]) state.get();
    load(known);
    boolean existed = known != null && (keys == 0 || count > 0L);
    byte[] before = existed ? result() : null;
    long lsn = 0L;
    UnsafeRow row = new UnsafeRow(inputs);
    for (int i = 0; i < changes.size(); i++) {
      Change change = (Change) changes.get(i);
      lsn = Math.max(lsn, change.lsn);
      if (change.weight == 0L) continue;
      row.pointTo(change.row, change.row.length);
      count += change.weight;
      for (int j = 0; j < aggregates.length; j++) aggregates[j].take(row, change.weight);
    }
    boolean exists = keys == 0 || count > 0L;
    byte[] after = exists ? result() : null;
    if (!Arrays.equals(before, after)) {
      UnsafeRow group = Pipe.row(key, keys);
      if (existed) send(group, before, lsn, -1L, out);
      if (exists) send(group, after, lsn, 1L, out);
    }
    store();
  }

  private void send(UnsafeRow group, byte[] result, long lsn, long weight, ArrayList out) {
    UnsafeRow values = Pipe.row(result, aggregates.length);
    pipe.send(joined.apply(group, values), lsn, weight, out);
  }

  private byte[] result() {
    ArrayList values = new ArrayList();
    for (int i = 0; i < aggregates.length; i++) aggregates[i].addBuffers(values, count);
    return Pipe.bytes(resultOf.apply(new GenericInternalRow(values.toArray())));
  }

  private void load(byte[] known) {
    count = 0L;
    Bytes in = known == null ? null : new Bytes(known, 0);
    if (in != null) count = in.getLong();
    for (int i = 0; i < aggregates.length; i++) {
      aggregates[i].clear();
      if (in != null) aggregates[i].read(in);
    }
  }

  private void store() {
    if (count == 0L && keys > 0) {
      state.clear(); // every row that came has gone, and with it what the aggregates had of it
      return;
    }
    Bytes out = new Bytes(32);
    out.putLong(count);
    for (int i = 0; i < aggregates.length; i++) aggregates[i].write(out);
    state.update(out.written());
  }
}
