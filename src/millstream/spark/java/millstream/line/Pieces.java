package millstream.line;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The pieces of state that are at hand: a hash table with open addresses. Nothing is allocated to
 * look one up, and one that is not the right one is seldom touched.
 */
final class Pieces {
  private Kept[] table = new Kept[64];
  private int[] hashes = new int[64];
  private int count;

  /** The root of a row as key; null if it is not at hand. */
  Kept find(UnsafeRow key, int ofKey, int slot) {
    int hash = hash(ofKey, slot, 0), mask = table.length - 1;
    for (int at = hash & mask; table[at] != null; at = (at + 1) & mask) {
      if (hashes[at] != hash) continue;
      Kept found = table[at];
      if (found.slot == slot && found.page == 0 && found.key.is(key)) return found;
    }
    return null;
  }

  /** A piece of a key; null if it is not at hand. */
  Kept find(Key key, int slot, int page) {
    int hash = hash(key.hash, slot, page), mask = table.length - 1;
    for (int at = hash & mask; table[at] != null; at = (at + 1) & mask) {
      if (hashes[at] != hash) continue;
      Kept found = table[at];
      if (found.slot == slot && found.page == page && found.key.equals(key)) return found;
    }
    return null;
  }

  /** Add one that was not found. */
  void add(Kept piece) {
    if (count * 2 >= table.length) grow();
    put(piece, hash(piece.key.hash, piece.slot, piece.page));
    count++;
  }

  private void put(Kept piece, int hash) {
    int mask = table.length - 1, at = hash & mask;
    while (table[at] != null) at = (at + 1) & mask;
    table[at] = piece;
    hashes[at] = hash;
  }

  private void grow() {
    Kept[] pieces = table;
    int[] known = hashes;
    table = new Kept[pieces.length * 2];
    hashes = new int[pieces.length * 2];
    for (int i = 0; i < pieces.length; i++) if (pieces[i] != null) put(pieces[i], known[i]);
  }

  /** How many bytes of memory those take at which changes wait. */
  long sizeOfWaiting() {
    long size = 0L;
    for (int i = 0; i < table.length; i++) {
      if (table[i] != null && table[i].first != null) size += (long) table[i].size();
    }
    return size;
  }

  /** Take out all that were not used in a generation, and at which no changes wait. */
  Kept[] removeBefore(int generation) {
    Kept[] pieces = table;
    int[] known = hashes;
    Kept[] removed = new Kept[count];
    int gone = 0, used = 0;
    for (int i = 0; i < pieces.length; i++) {
      if (pieces[i] == null) continue;
      if (pieces[i].generation < generation && pieces[i].first == null) {
        removed[gone++] = pieces[i];
        pieces[i] = null;
      } else {
        used++;
      }
    }
    int room = 64;
    while (room <= used * 2) room *= 2;
    table = new Kept[room];
    hashes = new int[room];
    for (int i = 0; i < pieces.length; i++) if (pieces[i] != null) put(pieces[i], known[i]);
    count = used;
    return (Kept[]) Arrays.copyOf(removed, gone);
  }

  private static int hash(int ofKey, int slot, int page) {
    int mixed = (ofKey * 31 + slot) * 31 + page;
    return mixed ^ (mixed >>> 16);
  }
}
