package millstream.functions;

import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;

/**
 * The sessions of one group: rows whose distance is at most the gap belong together, in whatever order
 * they come. As Spark's session_window, a row exactly at a session's end still belongs to it.
 */
final class Sessions {
  private final SessionPart[] parts;
  private final long gap;
  private Run run;
  /** What came since, start to session. */
  private final TreeMap fresh = new TreeMap();

  Sessions(SessionPart[] parts, long gap, Run run) {
    this.parts = parts;
    this.gap = gap;
    this.run = run;
  }

  void add(Session session) {
    Map.Entry before = fresh.floorEntry(Long.valueOf(session.start));
    if (before != null && touch(((Session) before.getValue()).last, session.start)) {
      Session earlier = (Session) before.getValue();
      earlier.absorb(session, parts);
      session = earlier;
    } else {
      fresh.put(Long.valueOf(session.start), session);
    }
    Map.Entry after = fresh.higherEntry(Long.valueOf(session.start));
    while (after != null && touch(session.last, ((Session) after.getValue()).start)) {
      Session later = (Session) after.getValue();
      // The key is the start, so the later one goes and the earlier one stays in its place.
      fresh.remove(after.getKey());
      session.absorb(later, parts);
      after = fresh.higherEntry(Long.valueOf(session.start));
    }
  }

  void addAll(Sessions other) { run = merge(run(), other.run()); }

  /** All of them in one run. */
  Run run() {
    if (fresh.isEmpty()) return run;
    RunBuilder builder = new RunBuilder(64 * fresh.size());
    Bytes record = new Bytes(64);
    for (Iterator sessions = fresh.values().iterator(); sessions.hasNext();) {
      write((Session) sessions.next(), record, builder);
    }
    fresh.clear();
    run = merge(run, builder.finish());
    return run;
  }

  private Run merge(Run a, Run b) {
    Run large = a.size >= b.size ? a : b, small = large == a ? b : a;
    if (small.size == 0) return large;
    RunBuilder builder = new RunBuilder(large.bytes.length + small.bytes.length);
    Bytes record = new Bytes(64);
    Session current = null;
    int at = 0;
    for (int i = 0; i < small.size; i++) {
      Session next = Session.read(small, i, parts);
      if (current != null && touch(current.last, next.start)) {
        current.absorb(next, parts);
      } else {
        if (current != null) write(current, record, builder);
        int start = small.start(i);
        int place = large.find(small.bytes, start, start + Session.START, at);
        if (place > at && touch(Session.last(large, place - 1), next.start)) place--;
        builder.addAll(large, at, place);
        at = place;
        current = next;
      }
      while (at < large.size && touch(current.last, Session.start(large, at))) {
        current.absorb(Session.read(large, at++, parts), parts);
      }
    }
    write(current, record, builder);
    builder.addAll(large, at, large.size);
    return builder.finish();
  }

  /** Whether a session that begins at start, not before another one, belongs to it. */
  private boolean touch(long last, long start) { return start <= last || start - last <= gap; }

  private void write(Session session, Bytes record, RunBuilder builder) {
    record.at = 0;
    session.write(parts, record);
    builder.add(record.array, 0, record.at);
  }
}
