package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AggregateWindowFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CurrentRow$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.MutableProjection;
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

  private final Seq functions;
  private final Seq input;
  private transient int resultWidth;
  private transient DataType[] types;
  private transient boolean[] byPeers;
  private transient boolean hasPeers;
  private transient boolean hasRows;
  private transient UnsafeProjection beginning;
  private transient MutableProjection update;
  private transient UnsafeProjection bytesOf;
  private transient UnsafeProjection resultOf;
  private transient UnsafeRow row;
  private transient JoinedRow joined;

  /**
   * @param functions Spark's window expressions.
   * @param input the columns of the rows.
   */
  public RunningTotals(Seq functions, Seq input) {
    this.functions = functions;
    this.input = input;
  }

  /** Whether window expressions are all such functions. */
  public static boolean suit(Seq functions) {
    for (int i = 0; i < functions.size(); i++) {
      WindowExpression window = window(functions, i);
      if (!(window.windowSpec().frameSpecification() instanceof SpecifiedWindowFrame)) return false;
      SpecifiedWindowFrame frame = frame(window);
      if (!frame.lower().equals(UnboundedPreceding$.MODULE$)) return false;
      if (!frame.upper().equals(CurrentRow$.MODULE$)) return false;
      if (function(window) == null) return false;
    }
    return true;
  }

  private static WindowExpression window(Seq functions, int at) {
    return (WindowExpression) ((Alias) functions.apply(at)).child();
  }

  private static SpecifiedWindowFrame frame(WindowExpression window) {
    return (SpecifiedWindowFrame) window.windowSpec().frameSpecification();
  }

  /** The aggregate, if it is one of expressions over a few buffers; else null. */
  private static DeclarativeAggregate function(WindowExpression window) {
    Expression found = window.windowFunction();
    if (found instanceof AggregateExpression) {
      AggregateExpression aggregate = (AggregateExpression) found;
      if (aggregate.isDistinct() || aggregate.filter().isDefined()) return null;
      found = (Expression) aggregate.aggregateFunction();
    } else if (!(found instanceof AggregateWindowFunction)) {
      return null;
    }
    boolean needsMore = found instanceof SizeBasedWindowFunction || found instanceof NthValue;
    return needsMore || !(found instanceof DeclarativeAggregate)
        ? null
        : (DeclarativeAggregate) found;
  }

  void open(int width) {
    ArrayList buffers = new ArrayList(), initial = new ArrayList(), updates = new ArrayList();
    ArrayList results = new ArrayList(CollectionConverters.asJava(input));
    ArrayList peers = new ArrayList();
    for (int i = 0; i < functions.size(); i++) {
      WindowExpression window = window(functions, i);
      DeclarativeAggregate function = function(window);
      boolean toPeers = frame(window).frameType().equals(RangeFrame$.MODULE$);
      for (int j = 0; j < function.aggBufferAttributes().size(); j++) {
        buffers.add(function.aggBufferAttributes().apply(j));
        initial.add(function.initialValues().apply(j));
        updates.add(function.updateExpressions().apply(j));
        peers.add(Boolean.valueOf(toPeers));
      }
      results.add(function.evaluateExpression());
      hasPeers = hasPeers || toPeers;
      hasRows = hasRows || !toPeers;
    }
    types = new DataType[buffers.size()];
    byPeers = new boolean[types.length];
    for (int i = 0; i < types.length; i++) {
      types[i] = ((Attribute) buffers.get(i)).dataType();
      byPeers[i] = ((Boolean) peers.get(i)).booleanValue();
    }
    ArrayList after = new ArrayList(buffers),
        before = new ArrayList(CollectionConverters.asJava(input));
    after.addAll(CollectionConverters.asJava(input));
    before.addAll(buffers);
    beginning = UnsafeProjection.create(seq(initial));
    update = MutableProjection.create(seq(updates), seq(after));
    bytesOf = UnsafeProjection.create(types);
    resultOf = UnsafeProjection.create(seq(results), seq(before));
    resultWidth = results.size();
    row = new UnsafeRow(width);
    joined = new JoinedRow();
  }

  private static Seq seq(ArrayList values) {
    return CollectionConverters.asScala(values).toSeq();
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
        bytes == null ? beginning.apply(InternalRow.empty()) : Pipe.row(bytes, types.length);
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
      return new Values((Object[]) buffers.values().clone());
    }

    void add(byte[] bytes) {
      row.pointTo(bytes, bytes.length);
      update.target(buffers).apply(joined.apply(buffers, row));
    }

    /** What a result needs of the totals as they are now. */
    Object snapshot() {
      return hasRows ? buffers.values().clone() : null;
    }

    byte[] bytes() {
      return Pipe.bytes(bytesOf.apply(buffers));
    }

    /** The result of a row, whose last peer was added last. */
    byte[] result(byte[] bytes, Object snapshot) {
      row.pointTo(bytes, bytes.length);
      if (snapshot == null) return Pipe.bytes(resultOf.apply(joined.apply(row, buffers)));
      Object[] values = (Object[]) snapshot;
      if (hasPeers) {
        Object[] mixed = (Object[]) values.clone();
        for (int i = 0; i < mixed.length; i++) if (byPeers[i]) mixed[i] = buffers.values()[i];
        values = mixed;
      }
      return Pipe.bytes(resultOf.apply(joined.apply(row, new GenericInternalRow(values))));
    }
  }
}
