package millstream.dataflow;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The nodes of the state that are in memory: a hash table with open addresses. Nothing is allocated
 * to look one up, and one that is not the right one is seldom touched.
 */
final class NodeTable {
  private StateNode[] table = new StateNode[64];
  private int[] hashes = new int[64];
  private int count;
  private int hand;

  /** The root of a row as key; null if it is not at hand. */
  StateNode find(UnsafeRow key, int ofKey, int slot) {
    int hash = hash(ofKey, slot, 0), mask = table.length - 1;
    for (int at = hash & mask; table[at] != null; at = (at + 1) & mask) {
      if (hashes[at] != hash) continue;
      StateNode found = table[at];
      if (found.slot == slot && found.page == 0 && found.key.is(key)) return found;
    }
    return null;
  }

  /** A node of a key; null if it is not at hand. */
  StateNode find(Key key, int slot, int page) {
    int hash = hash(key.hash, slot, page), mask = table.length - 1;
    for (int at = hash & mask; table[at] != null; at = (at + 1) & mask) {
      if (hashes[at] != hash) continue;
      StateNode found = table[at];
      if (found.slot == slot && found.page == page && found.key.equals(key)) return found;
    }
    return null;
  }

  /** Add one that was not found. */
  void add(StateNode node) {
    if (count * 2 >= table.length) makeTable(count + 1);
    put(node, hash(node.key.hash, node.slot, node.page));
    count++;
  }

  private void put(StateNode node, int hash) {
    int mask = table.length - 1, at = hash & mask;
    while (table[at] != null) at = (at + 1) & mask;
    table[at] = node;
    hashes[at] = hash;
  }

  /**
   * Take out nodes that were not used in a generation, and are not touched, until they have so many
   * bytes. It goes around the table, so that those are evicted first that have been kept longest,
   * in no other order: what is gone over again and again is kept in part, if not all of it can be.
   */
  StateNode[] takeOut(int generation, long bytes) {
    StateNode[] out = new StateNode[count];
    int gone = 0, mask = table.length - 1, from = hand & mask;
    for (int i = 0; i <= mask && bytes > 0L; i++) {
      hand = (from + i) & mask;
      StateNode node = table[hand];
      if (node == null || node.generation >= generation || node.isTouched) continue;
      out[gone++] = node;
      bytes -= (long) node.counted;
      table[hand] = null;
    }
    hand++;
    count -= gone;
    if (gone > 0) makeTable(count);
    return Arrays.copyOf(out, gone);
  }

  /** Put what the table has in one with room for so many. */
  private void makeTable(int most) {
    int room = 64;
    while (room <= most * 2) room *= 2;
    StateNode[] nodes = table;
    int[] known = hashes;
    table = new StateNode[room];
    hashes = new int[room];
    for (int i = 0; i < nodes.length; i++) if (nodes[i] != null) put(nodes[i], known[i]);
  }

  /**
   * The pages of a key are far from each other, so that nothing else must be sought behind them.
   */
  private static int hash(int ofKey, int slot, int page) {
    int mixed = ((ofKey * 31 + slot) * 31 + page) * 0x9e3779b9;
    return mixed ^ (mixed >>> 15);
  }
}
