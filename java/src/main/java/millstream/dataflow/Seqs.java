package millstream.dataflow;

import java.util.List;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Scala's sequences. */
final class Seqs {
  private Seqs() {}

  static <T> Seq<T> of(List<T> items) {
    return CollectionConverters.asScala(items).toSeq();
  }

  /** A sequence as one of a supertype: to Scala it is one, to Java it is not. */
  @SuppressWarnings("unchecked") // it is immutable
  static <T> Seq<T> widened(Seq<? extends T> items) {
    return (Seq<T>) items;
  }
}
