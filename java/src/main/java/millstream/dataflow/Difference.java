package millstream.dataflow;

import java.util.LinkedHashMap;
import java.util.Map;

/** How two results differ: rows by how much more often the new one has them. */
final class Difference {
  private final Map<Key, long[]> weights = new LinkedHashMap<>();

  /** A row of the new result, or, with a negative weight, of the old one. */
  void add(byte[] row, long weight) {
    weights.computeIfAbsent(new Key(row), key -> new long[1])[0] += weight;
  }

  /** Send what goes, then what comes. */
  void send(Pipe pipe, int width, long lsn) {
    send(-1, pipe, width, lsn);
    send(1, pipe, width, lsn);
  }

  private void send(int sign, Pipe pipe, int width, long lsn) {
    weights.forEach(
        (key, weight) -> {
          if (Long.signum(weight[0]) == sign) pipe.send(Pipe.row(key.bytes, width), lsn, weight[0]);
        });
  }
}
