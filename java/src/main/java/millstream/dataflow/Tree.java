package millstream.dataflow;

import java.util.Arrays;
import java.util.Comparator;

/**
 * Rows of each key, in order, with their weights: a B-tree of {@link Page}s. A key with few rows
 * has one page; a change of a row concerns one page of its key, and seldom those above it.
 */
final class Tree {
  private final State state;
  private final int slot;
  private final Comparator<byte[]> order;

  /**
   * @param order compares rows, as bytes; null for the order of the bytes themselves.
   */
  Tree(State state, int slot, Comparator<byte[]> order) {
    this.state = state;
    this.slot = slot;
    this.order = order;
  }

  private Page page(Key key, int number) {
    return (Page) state.get(key, slot, number, Page.KIND);
  }

  /** Add to the weight of a row, which goes when none is left; the weight before. */
  long add(Key key, byte[] row, long weight) {
    return put(page(key, 0), row, weight, 0L, false);
  }

  /** Add to the weight of a row, and set what is noted for it; the weight before. */
  long add(Key key, byte[] row, long weight, long note) {
    return put(page(key, 0), row, weight, note, true);
  }

  /** Add to the weight of a row of the key that has a root; the weight before. */
  long add(Page root, byte[] row, long weight) {
    return put(root, row, weight, 0L, false);
  }

  /** As before, and set what is noted for it. */
  long add(Page root, byte[] row, long weight, long note) {
    return put(root, row, weight, note, true);
  }

  /** Let go of all rows of a key. */
  void clear(Key key) {
    for (Rows each = first(key); each.next(); each = first(key)) {
      add(key, each.row(), -each.weight());
    }
  }

  private long put(Page root, byte[] row, long weight, long note, boolean noted) {
    long before = put(root, root, row, weight, note, noted);
    if (root.isFull()) {
      Page left = below(root, root), right = below(root, root);
      root.moveTo(left, 0);
      root.isLeaf = false;
      root.insert(0, left.rows[0], 1L, left.page);
      split(root, left, right, 0);
    } else if (root.count == 0) {
      root.isLeaf = true;
    }
    return before;
  }

  private long put(Page root, Page page, byte[] row, long weight, long note, boolean noted) {
    int at = search(page, row);
    if (page.isLeaf) return putInLeaf(page, at, row, weight, note, noted);
    if (at == -1) { // before all that it has: what its first page has begins there
      page.setFirst(row);
      state.changed(page.holder, 0);
    }
    at = at >= 0 ? at : Math.max(0, -at - 2);
    Page child = page(page.key, (int) page.note(at));
    long before = put(root, child, row, weight, note, noted);
    if (child.isFull()) {
      split(page, child, below(root, page), at);
    } else if (child.count == 0) {
      state.changed(page.holder, page.remove(at));
    }
    return before;
  }

  private long putInLeaf(Page leaf, int at, byte[] row, long weight, long note, boolean noted) {
    if (at < 0) {
      state.changed(leaf.holder, leaf.insert(-at - 1, row, weight, note));
      state.count(1L);
      return 0L;
    }
    long before = leaf.weight(at);
    boolean goes = before + weight == 0L;
    int grown = goes ? leaf.remove(at) : leaf.setWeight(at, before + weight);
    if (noted && !goes) grown += leaf.setNote(at, note);
    state.changed(leaf.holder, grown);
    if (goes) state.count(-1L);
    return before;
  }

  private Page below(Page root, Page above) {
    Page made = page(above.key, root.next++);
    state.changed(root.holder, 0);
    return made;
  }

  /** Move the second half of a page, which the one above has at a place, to a new page. */
  private void split(Page above, Page full, Page empty, int at) {
    full.moveTo(empty, full.count / 2);
    state.changed(full.holder, 0);
    state.changed(empty.holder, 0);
    state.changed(above.holder, above.insert(at + 1, empty.rows[0], 1L, empty.page));
  }

  private int search(Page page, byte[] row) {
    int low = 0, high = page.count - 1;
    while (low <= high) {
      int middle = (low + high) >>> 1;
      int found = compare(page.rows[middle], row);
      if (found == 0) return middle;
      if (found < 0) {
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    return -low - 1;
  }

  private int compare(byte[] one, byte[] other) {
    return order == null ? Arrays.compareUnsigned(one, other) : order.compare(one, other);
  }

  // ---- reading

  /** The rows of a key, from the first on. */
  Rows first(Key key) {
    return first(page(key, 0));
  }

  /** The rows of the key that has a root, from the first on; without a root it has none. */
  Rows first(Page root) {
    if (root == null) return new Rows(null);
    Rows rows = new Rows(root.key);
    rows.descend(root, null, true);
    return rows;
  }

  /** The rows of a key, from the last on backwards. */
  Rows last(Key key) {
    Rows rows = new Rows(key);
    rows.descend(page(key, 0), null, false);
    return rows;
  }

  /** The rows of a key, from a row on, or from where it would be. */
  Rows from(Key key, byte[] row) {
    return from(page(key, 0), row);
  }

  /** The rows of the key that has a root, if it has one, from a row on, or where it would be. */
  Rows from(Page root, byte[] row) {
    if (root == null) return new Rows(null);
    Rows rows = new Rows(root.key);
    rows.descend(root, row, true);
    return rows;
  }

  /** The rows of a key, from before a row on backwards. */
  Rows before(Key key, byte[] row) {
    Rows rows = new Rows(key);
    rows.descend(page(key, 0), row, false);
    return rows;
  }

  /**
   * Goes over the rows of a key. It begins before the first one that {@link #next} gives. Between
   * two calls notes may change, but no row may come or go.
   */
  final class Rows {
    private final Key key;
    private Page[] path; // most keys have one page: no path to it
    private int[] places;
    private int depth = 0;
    private Page leaf = Page.EMPTY;
    private int at = -1;

    private Rows(Key key) {
      this.key = key;
    }

    /** Go down to a leaf, before its first row, after its last one, or before a row. */
    private void descend(Page from, byte[] row, boolean forward) {
      Page page = from;
      while (!page.isLeaf) {
        int place = forward ? 0 : page.count - 1;
        if (row != null) {
          place = search(page, row);
          if (place < 0) place = Math.max(0, -place - 2);
        }
        push(page, place);
        page = page(key, (int) page.note(place));
      }
      leaf = page;
      at = forward ? -1 : page.count;
      if (row != null) {
        at = search(page, row);
        at = (at < 0 ? -at - 1 : at) - (forward ? 1 : 0);
      }
    }

    private void push(Page page, int place) {
      if (path == null) {
        path = new Page[4];
        places = new int[4];
      } else if (depth == path.length) {
        path = Arrays.copyOf(path, depth * 2);
        places = Arrays.copyOf(places, depth * 2);
      }
      path[depth] = page;
      places[depth++] = place;
    }

    boolean next() {
      return ++at < leaf.count || move(1);
    }

    boolean previous() {
      return --at >= 0 || move(-1);
    }

    private boolean move(int step) {
      while (depth > 0) {
        int place = places[depth - 1] + step;
        if (place >= 0 && place < path[depth - 1].count) {
          places[depth - 1] = place;
          descend(page(key, (int) path[depth - 1].note(place)), null, step > 0);
          at += step;
          return true;
        }
        depth--;
      }
      return false;
    }

    byte[] row() {
      return leaf.rows[at];
    }

    /** The number of the page that it is in. */
    int pageNumber() {
      return leaf.page;
    }

    /** Whether the row at hand is the first of its page. */
    boolean isPageFirst() {
      return at == 0;
    }

    /** The first row of the page; null if it has none. */
    byte[] pageFirst() {
      return leaf.count == 0 ? null : leaf.rows[0];
    }

    long weight() {
      return leaf.weight(at);
    }

    long note() {
      return leaf.note(at);
    }

    void setNote(long note) {
      state.changed(leaf.holder, leaf.setNote(at, note));
    }
  }
}
