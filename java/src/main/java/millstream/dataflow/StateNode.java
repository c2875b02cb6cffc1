package millstream.dataflow;

import java.util.Arrays;

/**
 * A node of the state: an object while it is used often, bytes in Spark's state store. It is found
 * by the slot of an operator, a key, and a page of that key; page 0 is the key's root.
 */
abstract class StateNode {
  Key key;
  int slot;
  int page;

  /** The generation in which it was used last. */
  int generation;

  /** How many bytes of memory are counted for it. */
  int counted;

  boolean isChanged;

  /** How many bytes are stored of it. */
  int stored;

  /** Of a root, whether rows of its key have come that the operator has not worked on. */
  boolean isTouched;

  /** Of these rows, those that the operator has not applied on arrival, in order. */
  Change first;

  Change last;

  /** Whether there is nothing to store. */
  abstract boolean isEmpty();

  abstract void write(Bytes out);

  /** How many bytes of memory it takes, about. */
  abstract int size();

  /** Say where it is in the state. */
  void place(Key ofKey, int inSlot, int atPage) {
    key = ofKey;
    slot = inSlot;
    page = atPage;
  }

  /** Where Spark's state store has it. */
  static byte[] packed(Key key, int slot, int page) {
    int length = key.bytes.length;
    byte[] packed = Arrays.copyOf(key.bytes, length + 6);
    packed[length] = (byte) (slot >> 8);
    packed[length + 1] = (byte) slot;
    for (int i = 0; i < 4; i++) packed[length + 2 + i] = (byte) (page >> (24 - 8 * i));
    return packed;
  }

  /** Makes the nodes of one kind. */
  interface Kind {
    /** What was stored, or, of null, an empty one. */
    StateNode read(Bytes in);
  }
}
