package millstream.dataflow;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.window.WindowEvaluatorFactory;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's evaluator of window functions, for one run of rows after the other. To start it takes a
 * millisecond, so it is started once, over an endless stream in which each run is a partition: the
 * last column of a row is the number of the run. A partition ends where the next one begins, so one
 * more row follows each run.
 */
public class Windows implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Seq<NamedExpression> functions;
  private final Seq<Expression> run;
  private final Seq<SortOrder> order;
  private final Seq<Attribute> input;
  private transient Runs runs;
  private transient Iterator<InternalRow> results;

  /**
   * @param functions Spark's window expressions.
   * @param run the column of the number of the run.
   * @param order Spark's sort orders.
   * @param input all columns; that of the run is the last.
   */
  public Windows(
      Seq<NamedExpression> functions,
      Seq<Expression> run,
      Seq<SortOrder> order,
      Seq<Attribute> input) {
    this.functions = functions;
    this.run = run;
    this.order = order;
    this.input = input;
  }

  void open(int width) {
    runs = new Runs(width);
    results = null;
  }

  /** Evaluate rows in order. All results must be read before other rows are evaluated. */
  Iterator<InternalRow> evaluate(List<byte[]> rows) {
    if (rows.isEmpty()) return Stream.<InternalRow>empty().iterator();
    runs.add(rows);
    if (results == null) {
      results = begun();
    } else {
      results.next(); // of the row that followed the run before
    }
    return results;
  }

  private Iterator<InternalRow> begun() {
    var evaluator =
        new WindowEvaluatorFactory(functions, run, order, input, metric(), metric(), metric())
            .createEvaluator();
    var stream = CollectionConverters.<InternalRow>asScala(runs);
    return CollectionConverters.asJava(evaluator.eval(0, Seqs.of(List.of(stream))));
  }

  private static SQLMetric metric() {
    return new SQLMetric("sum", 0L);
  }

  /** The rows of the runs. */
  private static final class Runs implements Iterator<InternalRow> {
    private final int width;
    private List<byte[]> rows;
    private int at;
    private long number;

    Runs(int width) {
      this.width = width;
    }

    void add(List<byte[]> next) {
      rows = next;
      at = 0;
      number++;
    }

    @Override
    public boolean hasNext() {
      return true;
    }

    @Override
    public InternalRow next() {
      boolean isMore = at == rows.size();
      byte[] bytes = rows.get(isMore ? 0 : at);
      at++;
      UnsafeRow row = Pipe.row(Arrays.copyOf(bytes, bytes.length), width);
      row.setLong(width - 1, isMore ? -number : number);
      return row;
    }
  }
}
