package millstream.bridge;

import java.io.ByteArrayOutputStream;
import java.util.Iterator;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkThrowable;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.streaming.DataStreamWriter;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A call of Spark whose error is a value. PySpark prints each error of a query that it raises to
 * the terminal, by a logger of its own; what never reaches it as an exception is not printed.
 */
public final class Attempt {
  private final Object value;
  private final Throwable error;

  private Attempt(Object value, Throwable error) {
    this.value = value;
    this.error = error;
  }

  /** What the call gave; null when it failed. */
  public Object value() {
    return value;
  }

  /** Why it failed, as PySpark would say it; null when it did not. */
  public String error() {
    if (error == null) return null;
    return error instanceof SparkThrowable ? error.getMessage() : error.toString();
  }

  /** The plan of a text, as Spark reads it under a session's settings. */
  public static Attempt parse(SparkSession session, String text) {
    Option<SparkSession> before = SparkSession.getActiveSession();
    SparkSession.setActiveSession(session);
    try {
      SessionState state = classic(session).sessionState();
      return new Attempt(state.sqlParser().parsePlan(text), null);
    } catch (Throwable thrown) {
      return new Attempt(null, thrown);
    } finally {
      if (before.isDefined()) SparkSession.setActiveSession(before.get());
      else SparkSession.clearActiveSession();
    }
  }

  /** The rows of a plan, which is analysed. */
  public static Attempt rows(SparkSession session, LogicalPlan plan) {
    try {
      return new Attempt(Dataset$.MODULE$.ofRows(classic(session), plan), null);
    } catch (Throwable thrown) {
      return new Attempt(null, thrown);
    }
  }

  /** The rows of a result, of which no value becomes too large: see ``Bounds``. */
  public static Attempt bounded(SparkSession session, Dataset<?> rows) {
    try {
      LogicalPlan plan = classic(rows).queryExecution().analyzed();
      LogicalPlan bounded = Bounds.of(plan);
      return bounded == plan ? new Attempt(rows, null) : rows(session, bounded);
    } catch (Throwable thrown) {
      return new Attempt(null, thrown);
    }
  }

  /** The optimized plan of a result: constants are computed, which may fail. */
  public static Attempt optimized(Dataset<?> rows) {
    try {
      return new Attempt(classic(rows).queryExecution().optimizedPlan(), null);
    } catch (Throwable thrown) {
      return new Attempt(null, thrown);
    }
  }

  /** All rows of a result, as a list. */
  public static Attempt collect(Dataset<?> rows) {
    Launch.await();
    try {
      return new Attempt(rows.collectAsList(), null);
    } catch (Throwable thrown) {
      return failedJob(thrown);
    }
  }

  /**
   * All rows of a result, as Arrow record batches one after the other.
   *
   * @param tag by which it can be cancelled.
   */
  public static Attempt arrow(Dataset<?> rows, String tag) {
    Launch.await();
    SparkContext context = rows.sparkSession().sparkContext();
    context.addJobTag(tag);
    try {
      JavaRDD<byte[]> batches = classic(rows).toArrowBatchRdd().toJavaRDD();
      long most = context.conf().getSizeAsBytes("spark.driver.maxResultSize", "1g");
      ByteArrayOutputStream all = new ByteArrayOutputStream();
      batches.mapPartitions(new Limited(most)).collect().forEach(all::writeBytes);
      return new Attempt(all.toByteArray(), null);
    } catch (Throwable thrown) {
      return failedJob(thrown);
    } finally {
      context.removeJobTag(tag);
    }
  }

  private static Attempt failedJob(Throwable thrown) {
    boolean ofJob = thrown.getCause() instanceof SparkThrowable;
    return new Attempt(null, ofJob ? thrown.getCause() : thrown);
  }

  private static org.apache.spark.sql.classic.SparkSession classic(SparkSession session) {
    return (org.apache.spark.sql.classic.SparkSession) session;
  }

  private static org.apache.spark.sql.classic.Dataset<?> classic(Dataset<?> rows) {
    return (org.apache.spark.sql.classic.Dataset<?>) rows;
  }

  /** End what has a tag. */
  public static void cancel(SparkSession session, String tag) {
    session.sparkContext().cancelJobsWithTag(tag);
  }

  /** A streaming query, started. */
  public static Attempt start(DataStreamWriter<?> writer) {
    Launch.await();
    try {
      return new Attempt(writer.start(), null);
    } catch (Throwable thrown) {
      return new Attempt(null, thrown);
    }
  }

  /** Limits the bytes that a task may give, since a result is held in memory as a whole. */
  private static final class Limited implements FlatMapFunction<Iterator<byte[]>, byte[]> {
    private static final long serialVersionUID = 1L;
    private final long most;

    Limited(long most) {
      this.most = most;
    }

    @Override
    public Iterator<byte[]> call(Iterator<byte[]> messages) {
      long[] bytes = {0L};
      return CollectionConverters.asJava(
          CollectionConverters.asScala(messages)
              .map(
                  message -> {
                    bytes[0] += message.length;
                    if (bytes[0] <= most) return message;
                    throw Sizes.raised("the result has more than " + most + " bytes");
                  }));
    }
  }
}
