package millstream.dataflow;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** How two results differ: rows by how much more often the new one has them. */
final class Difference {
  private final LinkedHashMap weights = new LinkedHashMap();

  /** A row of the new result, or, with a negative weight, of the old one. */
  void add(byte[] row, long weight) {
    Key key = new Key(row);
    long[] known = (long[]) weights.get(key);
    if (known == null) {
      weights.put(key, new long[] {weight});
    } else {
      known[0] += weight;
    }
  }

  /** Send what goes, then what comes. */
  void send(Pipe pipe, int width, long lsn) {
    send(-1, pipe, width, lsn);
    send(1, pipe, width, lsn);
  }

  private void send(int sign, Pipe pipe, int width, long lsn) {
    Iterator each = weights.entrySet().iterator();
    while (each.hasNext()) {
      Map.Entry entry = (Map.Entry) each.next();
      long weight = ((long[]) entry.getValue())[0];
      if (Long.signum(weight) != sign) continue;
      pipe.send(Pipe.row(((Key) entry.getKey()).bytes, width), lsn, weight);
    }
  }
}
