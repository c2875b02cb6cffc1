package millstream.functions;

import java.util.Arrays;
import java.util.HashMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * How often each key is there. Weights may be below zero for a while: a row that goes can be counted
 * before the row that came. A record is a key and its weight: one byte, or eight and the byte -128.
 */
final class Multiset {
  private static final int LARGE = -128;
  private static final int FEW = 4096;

  private Run run;
  /** What came since, key to weight: adding to a long run one by one would copy it each time. */
  private final HashMap fresh = new HashMap();

  Multiset(Run run) { this.run = run; }

  /** Changes the weight of a key, whose bytes are copied. */
  void add(Bytes key, long weight) {
    if (weight == 0L) return;
    long[] now = (long[]) fresh.get(UTF8String.fromBytes(key.array, 0, key.at));
    if (now == null) {
      now = new long[1];
      fresh.put(UTF8String.fromBytes(key.copy()), now);
    }
    now[0] = Math.addExact(now[0], weight);
    if (fresh.size() >= Math.max(FEW, run.size / 8)) run();
  }

  void addAll(Multiset other) { run = merge(run(), other.run()); }

  /** All of it in one run. */
  Run run() {
    if (fresh.isEmpty()) return run;
    RunBuilder builder = new RunBuilder(16 * fresh.size());
    Bytes record = new Bytes(32);
    Object[] keys = fresh.keySet().toArray();
    Arrays.sort(keys);
    for (int i = 0; i < keys.length; i++) {
      byte[] key = ((UTF8String) keys[i]).getBytes();
      write(builder, record, key, 0, key.length, ((long[]) fresh.get(keys[i]))[0]);
    }
    fresh.clear();
    run = merge(run, builder.finish());
    return run;
  }

  /** The place of the least or greatest key in the run that is there at least once, or -1. */
  static int edge(Run run, boolean greatest) {
    int step = greatest ? -1 : 1;
    for (int i = greatest ? run.size - 1 : 0; i >= 0 && i < run.size; i += step) {
      if (weight(run, i) > 0L) return i;
    }
    return -1;
  }

  /** How many keys are there at least once. */
  static long count(Run run) {
    long count = 0L;
    for (int i = 0; i < run.size; i++) if (weight(run, i) > 0L) count++;
    return count;
  }

  private static Run merge(Run a, Run b) {
    Run large = a.size >= b.size ? a : b, small = large == a ? b : a;
    if (small.size == 0) return large;
    RunBuilder builder = new RunBuilder(large.bytes.length + small.bytes.length);
    Bytes record = new Bytes(32);
    int at = 0;
    for (int i = 0; i < small.size; i++) {
      int start = small.start(i), end = keyEnd(small, i);
      int place = large.find(small.bytes, start, end, at);
      builder.addAll(large, at, place);
      at = place;
      if (place < large.size && large.startsWith(place, small.bytes, start, end)) {
        long weight = Math.addExact(weight(large, place), weight(small, i));
        write(builder, record, small.bytes, start, end, weight);
        at++;
      } else {
        builder.addAll(small, i, i + 1);
      }
    }
    builder.addAll(large, at, large.size);
    return builder.finish();
  }

  private static void write(RunBuilder builder, Bytes record, byte[] key, int from, int to, long weight) {
    if (weight == 0L) return;
    record.at = 0;
    record.put(key, from, to - from);
    if (weight > LARGE && weight < -LARGE) {
      record.putByte((int) weight);
    } else {
      record.putLong(weight);
      record.putByte(LARGE);
    }
    builder.add(record.array, 0, record.at);
  }

  private static int keyEnd(Run run, int index) {
    int end = run.end(index);
    return end - (run.bytes[end - 1] == LARGE ? 9 : 1);
  }

  private static long weight(Run run, int index) {
    int end = run.end(index);
    if (run.bytes[end - 1] != LARGE) return (long) run.bytes[end - 1];
    return new Bytes(run.bytes, end - 9).getLong();
  }
}
