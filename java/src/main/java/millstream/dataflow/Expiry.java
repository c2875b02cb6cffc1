package millstream.dataflow;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.immutable.Seq;

/**
 * When rows expire: once the watermark has passed the moment that an expression gives for a row, no
 * row that it could meet will come. The state has the rows in the order of that moment.
 */
public class Expiry implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Seq<Expression> moment;
  private final Seq<Attribute> input;
  private final long shift;
  private transient UnsafeProjection momentOf;
  private transient Tree entries;
  private transient Dataflow dataflow;
  private transient ArrayDeque<Expired> due;

  /**
   * @param moment one expression of a timestamp.
   * @param input the columns of the rows.
   * @param shift how many microseconds are added to it.
   */
  public Expiry(Seq<Expression> moment, Seq<Attribute> input, long shift) {
    this.moment = moment;
    this.input = input;
    this.shift = shift;
  }

  void open(Dataflow dataflow) {
    this.dataflow = dataflow;
    due = new ArrayDeque<>();
    entries = new Tree(dataflow.state(), dataflow.newSlot(), null);
    momentOf = UnsafeProjection.create(moment, input);
  }

  /** A row of a key comes, or goes. One without a moment meets nothing that is to come. */
  void add(Key key, byte[] bytes, InternalRow row, long weight) {
    long at = moment(row);
    if (at < dataflow.watermark()) { // as most are when there is much to read
      due.add(new Expired(key, bytes, weight));
      return;
    }
    ByteBuffer entry = ByteBuffer.allocate(12 + key.bytes.length + bytes.length);
    entry.putLong(at ^ Long.MIN_VALUE).putInt(key.bytes.length).put(key.bytes).put(bytes);
    entries.add(Key.NOTHING, entry.array(), weight);
  }

  /** Whether a watermark has passed the moment of a row. */
  boolean hasPassed(InternalRow row, long watermark) {
    return moment(row) < watermark;
  }

  private long moment(InternalRow row) {
    UnsafeRow found = momentOf.apply(row);
    return found.isNullAt(0) ? Long.MIN_VALUE : found.getLong(0) + shift;
  }

  /** Take the first row whose moment a watermark has passed; null if there is none. */
  Expired next(long watermark) {
    dataflow.state().makeRoom();
    if (!due.isEmpty()) return due.poll();
    Tree.Rows each = entries.first(Key.NOTHING);
    if (!each.next()) return null;
    ByteBuffer entry = ByteBuffer.wrap(each.row());
    if ((entry.getLong() ^ Long.MIN_VALUE) >= watermark) return null;
    byte[] key = new byte[entry.getInt()];
    entry.get(key);
    byte[] row = new byte[entry.remaining()];
    entry.get(row);
    Expired found = new Expired(new Key(key), row, each.weight());
    entries.add(Key.NOTHING, each.row(), -each.weight());
    return found;
  }

  /** Whether rows came whose moment has passed already. */
  boolean isDue() {
    return !due.isEmpty();
  }

  /** A row that has expired. */
  static final class Expired {
    final Key key;
    final byte[] row;
    final long weight;

    Expired(Key key, byte[] row, long weight) {
      this.key = key;
      this.row = row;
      this.weight = weight;
    }
  }
}
