package millstream.dataflow;

/** A row that comes to an operator, or goes from it, by its weight. */
final class Change {
  final int port;
  final byte[] row;
  long lsn;
  long weight;

  /** The one of the same key that came after it; null: it is the last. */
  Change next;

  Change(int port, byte[] row, long lsn, long weight) {
    this.port = port;
    this.row = row;
    this.lsn = lsn;
    this.weight = weight;
  }
}
