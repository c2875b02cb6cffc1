package millstream.dataflow;

/**
 * The nodes that are in Spark's state store only, as a Bloom filter: a new key is seldom looked for
 * there, though others have been evicted. Its memory is taken with the first of them.
 */
final class EvictedNodes {
  /** Two megabytes: of a million nodes one in a hundred is looked for in vain. */
  private static final int BITS = 24;

  private long[] bits;

  void add(StateNode node) {
    if (bits == null) bits = new long[1 << BITS - 6];
    long mixed = mixed(node.key, node.slot, node.page);
    for (int i = 0; i < 2; i++, mixed >>>= BITS) bits[word(mixed)] |= 1L << mixed;
  }

  /** Whether a node may be among those that were added. */
  boolean mayHave(Key key, int slot, int page) {
    if (bits == null) return false;
    long mixed = mixed(key, slot, page);
    for (int i = 0; i < 2; i++, mixed >>>= BITS) {
      if ((bits[word(mixed)] & 1L << mixed) == 0L) return false;
    }
    return true;
  }

  private static int word(long mixed) {
    return (int) (mixed & (1L << BITS) - 1L) >>> 6;
  }

  private static long mixed(Key key, int slot, int page) {
    long mixed = ((long) slot << 32 | page) * 0x9e3779b97f4a7c15L ^ key.hash;
    mixed = (mixed ^ mixed >>> 32) * 0xd6e8feb86659fd93L;
    return mixed ^ mixed >>> 32;
  }
}
