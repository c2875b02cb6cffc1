package millstream.dataflow;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A multiset of rows: each with its weight, none with weight 0. */
final class Bag {
  private final Map<List<Object>, Long> weights = new LinkedHashMap<>();

  void add(List<Object> row, long weight) {
    weights.merge(row, weight, (one, more) -> one + more == 0 ? null : one + more);
  }

  long weight(List<Object> row) {
    return weights.getOrDefault(row, 0L);
  }

  boolean isEmpty() {
    return weights.isEmpty();
  }

  Map<List<Object>, Long> weights() {
    return weights;
  }

  /** The rows, each as often as its weight says. */
  List<List<Object>> rows() {
    List<List<Object>> all = new ArrayList<>();
    weights.forEach(
        (row, weight) -> {
          for (long i = 0; i < weight; i++) all.add(row);
        });
    return all;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Bag bag && weights.equals(bag.weights);
  }

  @Override
  public int hashCode() {
    return weights.hashCode();
  }

  @Override
  public String toString() {
    return weights.toString();
  }
}
