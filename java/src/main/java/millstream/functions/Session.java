package millstream.functions;

/** A session: its first and its last time, and what each aggregate knows of its rows. */
final class Session {
  /** A record begins with the start, written so that bytes are ordered as times are. */
  static final int START = 8;

  long start;
  long last;
  final Object[] known;

  Session(long start, long last, Object[] known) {
    this.start = start;
    this.last = last;
    this.known = known;
  }

  void absorb(Session other, SessionPart[] parts) {
    start = Math.min(start, other.start);
    last = Math.max(last, other.last);
    for (int i = 0; i < parts.length; i++) known[i] = parts[i].join(known[i], other.known[i]);
  }

  void write(SessionPart[] parts, Bytes out) {
    out.putLong(start ^ Long.MIN_VALUE);
    out.putLong(last ^ Long.MIN_VALUE);
    for (int i = 0; i < parts.length; i++) parts[i].write(known[i], out);
  }

  static Session read(Run run, int index, SessionPart[] parts) {
    Bytes in = new Bytes(run.bytes, run.start(index));
    long start = in.getLong() ^ Long.MIN_VALUE, last = in.getLong() ^ Long.MIN_VALUE;
    Object[] known = new Object[parts.length];
    for (int i = 0; i < parts.length; i++) known[i] = parts[i].read(in);
    return new Session(start, last, known);
  }

  static long start(Run run, int index) {
    return new Bytes(run.bytes, run.start(index)).getLong() ^ Long.MIN_VALUE;
  }

  static long last(Run run, int index) {
    return new Bytes(run.bytes, run.start(index) + START).getLong() ^ Long.MIN_VALUE;
  }
}
