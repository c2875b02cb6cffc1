package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import org.apache.spark.PartitionEvaluator;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.window.WindowEvaluatorFactory;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's evaluator of window functions, for one run of rows after the other. To start it takes a
 * millisecond, so it is started once, over an endless stream in which each run is a partition: the
 * last column of a row is the number of the run. A partition ends where the next one begins, so one
 * row more follows each.
 */
public class Windows implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Seq functions;
  private final Seq run;
  private final Seq order;
  private final Seq input;
  private transient Runs runs;
  private transient Iterator results;

  /**
   * @param functions Spark's window expressions.
   * @param run the column of the number of the run.
   * @param order Spark's sort orders.
   * @param input all columns; that of the run is the last.
   */
  public Windows(Seq functions, Seq run, Seq order, Seq input) {
    this.functions = functions;
    this.run = run;
    this.order = order;
    this.input = input;
  }

  void open(int width) {
    runs = new Runs(width);
    results = null;
  }

  /** The results for some rows, in order; all of them must be read before others are evaluated. */
  Iterator evaluate(ArrayList rows) {
    if (rows.isEmpty()) return scala.collection.Iterator$.MODULE$.empty();
    boolean began = results != null;
    runs.add(rows);
    if (!began) begin();
    if (began) results.next(); // of the row more of the run before
    return results;
  }

  private void begin() {
    ArrayList one = new ArrayList();
    one.add(CollectionConverters.asScala((java.util.Iterator) runs));
    SQLMetric[] metrics = new SQLMetric[3];
    for (int i = 0; i < metrics.length; i++) metrics[i] = new SQLMetric("sum", 0L);
    PartitionEvaluator evaluator =
        new WindowEvaluatorFactory(functions, run, order, input, metrics[0], metrics[1], metrics[2])
            .createEvaluator();
    results = evaluator.eval(0, CollectionConverters.asScala(one).toSeq());
  }

  /** The rows of the runs. */
  private static final class Runs implements java.util.Iterator {
    private final int width;
    private ArrayList rows;
    private int at;
    private long number;

    Runs(int width) {
      this.width = width;
    }

    void add(ArrayList next) {
      rows = next;
      at = 0;
      number++;
    }

    public boolean hasNext() {
      return true;
    }

    public Object next() {
      boolean isMore = at == rows.size();
      byte[] bytes = (byte[]) rows.get(isMore ? 0 : at);
      at++;
      UnsafeRow row = Pipe.row(Arrays.copyOf(bytes, bytes.length), width);
      row.setLong(width - 1, isMore ? -number : number);
      return row;
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }
}
