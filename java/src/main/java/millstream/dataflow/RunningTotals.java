package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AggregateWindowFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CurrentRow$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.MutableProjection;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NthValue;
import org.apache.spark.sql.catalyst.expressions.RangeFrame$;
import org.apache.spark.sql.catalyst.expressions.SizeBasedWindowFunction;
import org.apache.spark.sql.catalyst.expressions.SpecifiedWindowFrame;
import org.apache.spark.sql.catalyst.expressions.UnboundedPreceding$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.WindowExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Window functions whose frames go from the first row to the one at hand, by Spark's own
 * expressions for their buffers. ROWS frames end with the row itself, RANGE frames with the last of
 * its peers.
 */
public class RunningTotals implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Seq<NamedExpression> functions;
  private final Seq<Attribute> input;
  private transient int resultWidth;
  private transient DataType[] types;
  private transient boolean[] byPeers;
  private transient boolean hasPeers;
  private transient boolean hasRows;
  private transient UnsafeProjection initialRow;
  private transient MutableProjection update;
  private transient UnsafeProjection bytesOf;
  private transient UnsafeProjection resultOf;
  private transient UnsafeRow row;
  private transient JoinedRow joined;

  /**
   * @param functions Spark's window expressions.
   * @param input the columns of the rows.
   */
  public RunningTotals(Seq<NamedExpression> functions, Seq<Attribute> input) {
    this.functions = functions;
    this.input = input;
  }

  /** Whether window expressions are all such functions. */
  public static boolean suit(Seq<NamedExpression> functions) {
    return windows(functions)
        .allMatch(
            window ->
                window.windowSpec().frameSpecification() instanceof SpecifiedWindowFrame frame
                    && frame.lower().equals(UnboundedPreceding$.MODULE$)
                    && frame.upper().equals(CurrentRow$.MODULE$)
                    && function(window) != null);
  }

  private static Stream<WindowExpression> windows(Seq<NamedExpression> functions) {
    return CollectionConverters.asJava(functions).stream()
        .map(each -> (WindowExpression) ((Alias) each).child());
  }

  private static SpecifiedWindowFrame frame(WindowExpression window) {
    return (SpecifiedWindowFrame) window.windowSpec().frameSpecification();
  }

  /** The aggregate, if it is one of expressions over a few buffers; else null. */
  private static DeclarativeAggregate function(WindowExpression window) {
    Expression found = window.windowFunction();
    if (found instanceof AggregateExpression aggregate) {
      if (aggregate.isDistinct() || aggregate.filter().isDefined()) return null;
      found = aggregate.aggregateFunction();
    } else if (!(found instanceof AggregateWindowFunction)) {
      return null;
    }
    if (found instanceof SizeBasedWindowFunction || found instanceof NthValue) return null;
    return found instanceof DeclarativeAggregate declarative ? declarative : null;
  }

  void open(int width) {
    List<Attribute> buffers = new ArrayList<>(), own = CollectionConverters.asJava(input);
    List<Expression> initial = new ArrayList<>(), updates = new ArrayList<>();
    List<Expression> results = new ArrayList<>(own);
    List<Boolean> peers = new ArrayList<>();
    windows(functions)
        .forEach(
            window -> {
              DeclarativeAggregate function = function(window);
              boolean toPeers = frame(window).frameType().equals(RangeFrame$.MODULE$);
              buffers.addAll(CollectionConverters.asJava(function.aggBufferAttributes()));
              initial.addAll(CollectionConverters.asJava(function.initialValues()));
              updates.addAll(CollectionConverters.asJava(function.updateExpressions()));
              while (peers.size() < buffers.size()) peers.add(toPeers);
              results.add(function.evaluateExpression());
              hasPeers |= toPeers;
              hasRows |= !toPeers;
            });
    types = buffers.stream().map(Attribute::dataType).toArray(DataType[]::new);
    byPeers = new boolean[types.length];
    for (int i = 0; i < types.length; i++) byPeers[i] = peers.get(i);
    List<Attribute> after = new ArrayList<>(buffers), before = new ArrayList<>(own);
    after.addAll(own);
    before.addAll(buffers);
    initialRow = UnsafeProjection.create(Seqs.of(initial));
    update = MutableProjection.create(Seqs.of(updates), Seqs.of(after));
    bytesOf = UnsafeProjection.create(types);
    resultOf = UnsafeProjection.create(Seqs.of(results), Seqs.of(before));
    resultWidth = results.size();
    row = new UnsafeRow(width);
    joined = new JoinedRow();
  }

  /** Whether the result of a row depends on those that are equal to it in the order. */
  boolean hasPeers() {
    return hasPeers;
  }

  int resultWidth() {
    return resultWidth;
  }

  /** The totals that bytes have; null: those before the first row. */
  Values values(byte[] bytes) {
    UnsafeRow from =
        bytes == null ? initialRow.apply(InternalRow.empty()) : Pipe.row(bytes, types.length);
    Object[] found = new Object[types.length];
    for (int i = 0; i < found.length; i++) {
      found[i] = from.isNullAt(i) ? null : InternalRow.copyValue(from.get(i, types[i]));
    }
    return new Values(found);
  }

  /** Totals at some row. */
  final class Values {
    private final GenericInternalRow buffers;

    private Values(Object[] values) {
      buffers = new GenericInternalRow(values);
    }

    Values copy() {
      return new Values(buffers.values().clone());
    }

    void add(byte[] bytes) {
      row.pointTo(bytes, bytes.length);
      update.target(buffers).apply(joined.apply(buffers, row));
    }

    /** What a result needs of the totals as they are now. */
    Object[] snapshot() {
      return hasRows ? buffers.values().clone() : null;
    }

    byte[] bytes() {
      return Pipe.bytes(bytesOf.apply(buffers));
    }

    /** The result of a row, whose last peer was added last. */
    byte[] result(byte[] bytes, Object[] snapshot) {
      row.pointTo(bytes, bytes.length);
      if (snapshot == null) return Pipe.bytes(resultOf.apply(joined.apply(row, buffers)));
      Object[] values = snapshot;
      if (hasPeers) {
        values = snapshot.clone();
        for (int i = 0; i < values.length; i++) if (byPeers[i]) values[i] = buffers.values()[i];
      }
      return Pipe.bytes(resultOf.apply(joined.apply(row, new GenericInternalRow(values))));
    }
  }
}
