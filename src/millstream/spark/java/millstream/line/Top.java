package millstream.line;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import millstream.functions.Bytes;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * ORDER BY ... LIMIT. The rows are kept in blocks by Spark's sort prefix of the first column: nine
 * bytes, in whose order the state is read, since all keys have that length. Within a block they are
 * sorted when it is read. Only the blocks of the first rows are read; of equal rows, those with the
 * lesser bytes come first, so that there is one answer.
 */
public class Top extends Operator {
  private static final long serialVersionUID = 1L;
  private static final int KEY_BYTES = 9;

  private final int port;
  private final int width;
  private final int limit;
  private final boolean descending;
  private final boolean nullsFirst;
  private final boolean unsigned;
  private final Seq prefix;
  private final Seq order;
  private final Seq input;
  private final Pipe pipe;
  private transient MapState blocks;
  private transient ValueState first;
  private transient UnsafeProjection prefixOf;
  private transient Comparator comparator;

  /**
   * @param port where its rows come.
   * @param width how many columns they have.
   * @param limit how many of them it gives.
   * @param descending whether the first column of the order is DESC.
   * @param nullsFirst whether its NULLs come first.
   * @param unsigned whether its sort prefix is compared as an unsigned number.
   * @param prefix whether the first column is NULL, and its sort prefix; empty without an order.
   * @param order Spark's sort orders.
   * @param input the columns.
   * @param pipe where the result goes.
   */
  public Top(
      int port,
      int width,
      int limit,
      boolean descending,
      boolean nullsFirst,
      boolean unsigned,
      Seq prefix,
      Seq order,
      Seq input,
      Pipe pipe) {
    this.port = port;
    this.width = width;
    this.limit = limit;
    this.descending = descending;
    this.nullsFirst = nullsFirst;
    this.unsigned = unsigned;
    this.prefix = prefix;
    this.order = order;
    this.input = input;
    this.pipe = pipe;
  }

  public void init(OutputMode mode, TimeMode time) {
    blocks =
        getHandle().getMapState("blocks", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
    first = getHandle().getValueState("first", Encoders.BINARY(), TTLConfig.NONE());
    prefixOf = UnsafeProjection.create(prefix, input);
    comparator = new ByOrder(new LazilyGeneratedOrdering(order, input), width);
  }

  boolean takes(int other) {
    return port == other;
  }

  void work(byte[] key, ArrayList changes, ArrayList out) {
    ArrayList before = unpack((byte[]) first.get());
    byte[] last = isFull(before) ? keyOf(((Change) before.get(before.size() - 1)).row) : null;
    boolean concerned = false;
    long lsn = 0L;
    for (int i = 0; i < changes.size(); i++) {
      Change change = (Change) changes.get(i);
      lsn = Math.max(lsn, change.lsn);
      byte[] at = keyOf(change.row);
      ArrayList block = unpack((byte[]) blocks.getValue(at));
      merge(block, change.row, change.weight);
      if (block.size() == 0) {
        blocks.removeKey(at);
      } else {
        blocks.updateValue(at, pack(block));
      }
      if (last == null || Arrays.compareUnsigned(at, last) <= 0) concerned = true;
    }
    if (!concerned) return;
    ArrayList after = firstRows(), difference = new ArrayList();
    for (int i = 0; i < before.size(); i++) merge(difference, (Change) before.get(i), -1L);
    for (int i = 0; i < after.size(); i++) merge(difference, (Change) after.get(i), 1L);
    for (int i = 0; i < difference.size(); i++) {
      Change change = (Change) difference.get(i);
      pipe.send(Pipe.row(change.row, width), lsn, change.weight, out);
    }
    first.update(pack(after));
  }

  private boolean isFull(ArrayList rows) {
    long count = 0L;
    for (int i = 0; i < rows.size(); i++) count += ((Change) rows.get(i)).weight;
    return count >= (long) limit && count > 0L;
  }

  private ArrayList firstRows() {
    ArrayList found = new ArrayList();
    long room = (long) limit;
    Iterator each = blocks.iterator();
    while (room > 0L && each.hasNext()) {
      ArrayList block = unpack((byte[]) ((Tuple2) each.next())._2());
      Collections.sort(block, comparator);
      for (int i = 0; i < block.size() && room > 0L; i++) {
        Change row = (Change) block.get(i);
        row.weight = Math.min(room, row.weight);
        room -= row.weight;
        found.add(row);
      }
    }
    return found;
  }

  /** The key of a row's block: whether the first column is NULL, and its prefix, in byte order. */
  private byte[] keyOf(byte[] row) {
    if (prefix.size() == 0) return new byte[KEY_BYTES];
    UnsafeRow found = prefixOf.apply(Pipe.row(row, width));
    if (found.getBoolean(0)) {
      return ByteBuffer.allocate(KEY_BYTES).put((byte) (nullsFirst ? 0 : 2)).array();
    }
    long value = found.getLong(1);
    if (!unsigned) value ^= Long.MIN_VALUE;
    if (descending) value = ~value;
    return ByteBuffer.allocate(KEY_BYTES).put((byte) 1).putLong(value).array();
  }

  // ---- rows with their weights, as bytes

  private static void merge(ArrayList rows, Change row, long sign) {
    merge(rows, row.row, sign * row.weight);
  }

  private static void merge(ArrayList rows, byte[] row, long weight) {
    for (int i = 0; i < rows.size(); i++) {
      Change known = (Change) rows.get(i);
      if (!Arrays.equals(known.row, row)) continue;
      known.weight += weight;
      if (known.weight == 0L) rows.remove(i);
      return;
    }
    rows.add(new Change(0, row, 0L, weight));
  }

  private static ArrayList unpack(byte[] bytes) {
    ArrayList rows = new ArrayList();
    Bytes in = new Bytes(bytes == null ? Pipe.NOTHING : bytes, 0);
    while (in.at < in.array.length) {
      long weight = in.getLong();
      int length = in.getInt();
      rows.add(new Change(0, Arrays.copyOfRange(in.array, in.at, in.at + length), 0L, weight));
      in.at += length;
    }
    return rows;
  }

  private static byte[] pack(ArrayList rows) {
    Bytes out = new Bytes(64);
    for (int i = 0; i < rows.size(); i++) {
      Change each = (Change) rows.get(i);
      out.putLong(each.weight);
      out.putInt(each.row.length);
      out.put(each.row, 0, each.row.length);
    }
    return out.written();
  }

  /** Compares rows by Spark's order, and else by their bytes. */
  static final class ByOrder implements Comparator {
    private final LazilyGeneratedOrdering ordering;
    private final int width;

    ByOrder(LazilyGeneratedOrdering ordering, int width) {
      this.ordering = ordering;
      this.width = width;
    }

    public int compare(Object one, Object other) {
      byte[] left = ((Change) one).row, right = ((Change) other).row;
      int found = ordering.compare(Pipe.row(left, width), Pipe.row(right, width));
      return found != 0 ? found : Arrays.compareUnsigned(left, right);
    }
  }
}
