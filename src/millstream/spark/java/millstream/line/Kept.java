package millstream.line;

import millstream.functions.Bytes;

/** A piece of state: an object while it is used often, bytes in Spark's state store. */
abstract class Kept {
  Key key;
  boolean isChanged;

  /** How many bytes are stored of it. */
  int stored;

  /** Whether there is nothing to store. */
  abstract boolean isEmpty();

  abstract void write(Bytes out);

  /** How many bytes of memory it takes, about. */
  abstract int size();

  /** Makes the pieces of one kind. */
  interface Kind {
    /** What was stored, or, of null, an empty one. */
    Kept read(Bytes in);
  }
}
