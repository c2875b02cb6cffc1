package millstream.dataflow;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import scala.collection.immutable.Seq;

/** An operator whose state has the rows of each key in an order. */
abstract class OrderedOperator extends Operator {
  private static final long serialVersionUID = 1L;

  final int width;
  final Pipe pipe;
  private final Seq<SortOrder> order;
  private final Seq<Attribute> input;
  transient Tree rows;
  transient ByOrder comparator;

  /**
   * @param port where its rows come.
   * @param width how many columns they have.
   * @param order Spark's sort orders.
   * @param input the columns.
   * @param pipe where the result goes.
   */
  OrderedOperator(int port, int width, Seq<SortOrder> order, Seq<Attribute> input, Pipe pipe) {
    super(port);
    this.width = width;
    this.order = order;
    this.input = input;
    this.pipe = pipe;
  }

  @Override
  void open(Dataflow dataflow) {
    comparator = new ByOrder(order, input);
    int slot = dataflow.newSlot();
    rows = new Tree(dataflow.state(), slot, comparator);
    setRoots(dataflow, slot, Page.KIND);
    pipe.open(dataflow);
  }

  /** Changes in the order of their rows, those of the same row as one. */
  final ArrayList<Delta> sorted(Change changes) {
    ArrayList<Delta> all = new ArrayList<>();
    for (Change each = changes; each != null; each = each.next) {
      all.add(new Delta(each.row, each.weight));
    }
    if (all.size() > 1) all.sort(Comparator.comparing(each -> each.row, comparator));
    ArrayList<Delta> sorted = new ArrayList<>(all.size());
    for (int i = 0; i < all.size(); ) {
      Delta one = all.get(i);
      for (i++; i < all.size() && comparator.compare(all.get(i).row, one.row) == 0; i++) {
        one.weight += all.get(i).weight;
      }
      if (one.weight != 0L) sorted.add(one);
    }
    return sorted;
  }

  /** How the weight of a row changes, and what it was, and the row's note. */
  static final class Delta {
    final byte[] row;
    long weight;
    long before;
    long note;

    private Delta(byte[] row, long weight) {
      this.row = row;
      this.weight = weight;
    }
  }

  /** How two results differ: rows by how much more often the new one has them. */
  static final class Difference {
    private final Map<Key, long[]> weights = new LinkedHashMap<>();

    /** A row of the new result, or, with a negative weight, of the old one. */
    void add(byte[] row, long weight) {
      weights.computeIfAbsent(new Key(row), key -> new long[1])[0] += weight;
    }

    /** Send what goes, then what comes. */
    void send(Pipe pipe, int width, long lsn) {
      send(-1, pipe, width, lsn);
      send(1, pipe, width, lsn);
    }

    private void send(int sign, Pipe pipe, int width, long lsn) {
      weights.forEach(
          (key, weight) -> {
            if (Long.signum(weight[0]) == sign)
              pipe.send(Pipe.row(key.bytes, width), lsn, weight[0]);
          });
    }
  }

  /** Compares rows by Spark's order, and those that are equal in it by their bytes. */
  static final class ByOrder implements Comparator<byte[]> {
    private final LazilyGeneratedOrdering ordering;
    private final UnsafeRow left;
    private final UnsafeRow right;

    ByOrder(Seq<SortOrder> order, Seq<Attribute> input) {
      ordering = new LazilyGeneratedOrdering(order, input);
      left = new UnsafeRow(input.size());
      right = new UnsafeRow(input.size());
    }

    @Override
    public int compare(byte[] one, byte[] other) {
      int found = compareOrder(one, other);
      return found != 0 ? found : Arrays.compareUnsigned(one, other);
    }

    /** Compare by the order alone. */
    int compareOrder(byte[] one, byte[] other) {
      left.pointTo(one, one.length);
      right.pointTo(other, other.length);
      return ordering.compare(left, right);
    }
  }
}
