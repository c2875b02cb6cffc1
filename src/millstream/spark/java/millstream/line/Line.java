package millstream.line;

import java.util.List;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructType;

/**
 * A line of operators: the feed, the entry, one stage for each operator, and what leaves the last
 * one. All run in one thread, since each stage is of one partition: Spark puts no exchange between
 * them, and a row has passed them all before the next one comes.
 *
 * <p>A row on the line is for a port: an operator takes the rows of its ports, and passes the others
 * on. Key and row are the bytes of Spark's UnsafeRow. A mark ends the rows of a commit, or of some
 * commits: then the operators work.
 */
public final class Line {
  /** The port of what leaves the line. */
  public static final int SINK = 0;

  /** The port of a mark; also the log of one in the feed. */
  public static final int MARK = -1;

  /** In the feed, the log of the first row of all: what constant relations have comes with it. */
  public static final int BEGINNING = -2;

  public static final StructType ROW =
      StructType.fromDDL("port int, lsn bigint, weight bigint, key binary, row binary");

  private Line() {}

  /** The rows that leave a line whose feed has the columns of {@link Entry}. */
  public static Dataset connect(Dataset feed, Entry entry, List operators) {
    Dataset rows = feed.coalesce(1).flatMap((FlatMapFunction) entry, Encoders.row(ROW)).coalesce(1);
    for (int i = 0; i < operators.size(); i++) {
      rows =
          rows.groupByKey((MapFunction) new KeyOf(), Encoders.BINARY())
              .transformWithState(
                  (StatefulProcessor) operators.get(i),
                  TimeMode.None(),
                  OutputMode.Update(),
                  Encoders.row(ROW))
              .coalesce(1);
    }
    return rows;
  }

  /** The key of a row on the line. */
  public static class KeyOf implements MapFunction {
    private static final long serialVersionUID = 1L;

    public Object call(Object row) {
      return ((Row) row).get(3);
    }
  }
}
