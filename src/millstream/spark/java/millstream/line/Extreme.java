package millstream.line;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import millstream.functions.Bytes;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.math.Ordering;

/** MIN and MAX: the extreme is kept beside the values, and looked for again when it goes. */
public class Extreme extends Aggregate {
  private static final long serialVersionUID = 1L;
  private static final byte[] LOST = new byte[0];

  private final boolean greatest;
  private transient Ordering order;
  private transient byte[] best;

  public Extreme(int at, List types, boolean filtered, boolean greatest) {
    super(at, types, filtered, false);
    this.greatest = greatest;
  }

  boolean keepsValues() {
    return true;
  }

  void clear() {
    best = null;
  }

  void add(UnsafeRow row, long weight) {
    throw new UnsupportedOperationException();
  }

  void changed(UnsafeRow row, byte[] value, long before, long after) {
    if (best == LOST) return;
    if (after > 0L) {
      if (best == null || isBetter(value, best)) best = value;
    } else if (Arrays.equals(value, best)) {
      best = LOST;
    }
  }

  void addBuffers(ArrayList out, long rows) {
    if (best == LOST) best = search();
    out.add(best == null ? null : of(best));
  }

  private Object of(byte[] value) {
    return Pipe.row(value, 1).get(0, types[0]);
  }

  private boolean isBetter(byte[] one, byte[] other) {
    if (order == null) order = TypeUtils.getInterpretedOrdering(types[0]);
    int compared = order.compare(of(one), of(other));
    return greatest ? compared > 0 : compared < 0;
  }

  private byte[] search() {
    byte[] found = null;
    Iterator each = values.iterator();
    while (each.hasNext()) {
      Tuple2 entry = (Tuple2) each.next();
      byte[] value = (byte[]) entry._1();
      if (((Long) entry._2()).longValue() <= 0L) continue;
      if (found == null || isBetter(value, found)) found = value;
    }
    return found;
  }

  void write(Bytes out) {
    if (best == LOST) best = search();
    out.putInt(best == null ? -1 : best.length);
    if (best != null) out.put(best, 0, best.length);
  }

  void read(Bytes in) {
    int length = in.getInt();
    if (length < 0) return;
    best = Arrays.copyOfRange(in.array, in.at, in.at + length);
    in.at += length;
  }
}
