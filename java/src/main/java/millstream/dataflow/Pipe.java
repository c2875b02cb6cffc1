package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.Seq;

/**
 * The way from one operator to the port of the next: the filters and projections of the plan that
 * lie between the two, then the key and the row that the next one wants. Each step binds to its
 * input by position, so the pipes of a union's children may share their steps.
 */
public class Pipe implements Serializable {
  /** A key with NULLs is one as any other: that of a group. */
  public static final int NULLS_MATCH = 0;

  /** A row whose key has a NULL is dropped: it has no match, and gives nothing without one. */
  public static final int NULLS_DROP = 1;

  /** A row whose key has a NULL is kept, and has no match: the preserved side of an outer join. */
  public static final int NULLS_APART = 2;

  /** As before, on the right side: of a full join, the rows of both sides are kept. */
  public static final int NULLS_APART_RIGHT = 3;

  static final byte[] NOTHING = new byte[0];
  private static final long serialVersionUID = 1L;

  private final int port;
  private final Step[] steps;
  private final Seq key;
  private final Seq row;
  private final Seq input;
  private final int nulls;
  private Pipe next;
  private transient Operator target;
  private transient UnsafeProjection keyOf;
  private transient UnsafeProjection rowOf;

  /**
   * @param port where it leads.
   * @param steps of {@link Step}, in order.
   * @param key the expressions of the key, over the input.
   * @param row the expressions of the row, over the input.
   * @param input the attributes that the last step gives.
   * @param nulls what a NULL in the key means.
   */
  public Pipe(int port, List steps, Seq key, Seq row, Seq input, int nulls) {
    this.port = port;
    this.steps = (Step[]) steps.toArray(new Step[0]);
    this.key = key;
    this.row = row;
    this.input = input;
    this.nulls = nulls;
  }

  /** Have what goes through this pipe go through another one, too. */
  public void add(Pipe other) {
    other.next = next;
    next = other;
  }

  /** Get ready, in the task. */
  void open(Dataflow dataflow) {
    target = dataflow.at(port);
    for (int i = 0; i < steps.length; i++) steps[i].open();
    if (key.size() > 0) keyOf = UnsafeProjection.create(key, input);
    rowOf = UnsafeProjection.create(row, input);
    if (next != null) next.open(dataflow);
  }

  /** Send a row. */
  void send(InternalRow in, long lsn, long weight) {
    if (weight == 0L) return;
    try {
      send(0, in, lsn, weight);
    } catch (RuntimeException e) {
      throw FailedRow.of(e, "millstream: at LSN " + lsn + ": ");
    }
    if (next != null) next.send(in, lsn, weight);
  }

  /** A row has no value: the database reads the row's LSN and Spark's error in the text. */
  static final class FailedRow extends RuntimeException implements SparkThrowable {
    private static final long serialVersionUID = 1L;
    private final String condition;

    private FailedRow(String text, String condition, RuntimeException error) {
      super(text, error);
      this.condition = condition;
    }

    /**
     * What to throw for an error in the middle of the dataflow: itself, unless a value has led to
     * it.
     */
    static RuntimeException of(RuntimeException error, String where) {
      String text = error.getMessage();
      if (error instanceof FailedRow) return error;
      if (error instanceof SparkThrowable) {
        return new FailedRow(where + text, ((SparkThrowable) error).getCondition(), error);
      }
      if (!(error instanceof ArithmeticException)) return error;
      String overflow = "[ARITHMETIC_OVERFLOW] " + text + ". SQLSTATE: 22003";
      return new FailedRow(where + overflow, "ARITHMETIC_OVERFLOW", error);
    }

    /** Spark passes on errors that have one, and says of any other only that there was one. */
    public String getCondition() {
      return condition;
    }
  }

  private void send(int from, InternalRow in, long lsn, long weight) {
    for (int i = from; i < steps.length; i++) {
      if (steps[i].gives() != 1) {
        ArrayList all = new ArrayList();
        steps[i].all(in, all);
        for (int j = 0; j < all.size(); j++) send(i + 1, (InternalRow) all.get(j), lsn, weight);
        return;
      }
      in = steps[i].one(in);
      if (in == null) return;
    }
    if (target == null) {
      Dataflow.write(rowOf.apply(in), lsn, weight);
      return;
    }
    UnsafeRow found = keyOf == null ? null : keyOf.apply(in);
    boolean apart = found != null && nulls != NULLS_MATCH && found.anyNull();
    if (apart && nulls == NULLS_DROP) return;
    UnsafeRow out = rowOf.apply(in);
    if (found == null) {
      target.take(Key.NOTHING, port, out, lsn, weight);
    } else if (apart) { // unlike any key of the other side
      byte[] alone = bytes(found);
      Key unmatched = new Key(Arrays.copyOf(alone, alone.length + nulls - 1));
      target.take(unmatched, port, out, lsn, weight);
    } else {
      target.take(found, port, out, lsn, weight);
    }
  }

  /** A copy: a projection's own bytes are overwritten by the next row. */
  static byte[] bytes(UnsafeRow row) {
    byte[] copy = new byte[row.getSizeInBytes()];
    Platform.copyMemory(
        row.getBaseObject(),
        row.getBaseOffset(),
        copy,
        (long) Platform.BYTE_ARRAY_OFFSET,
        (long) copy.length);
    return copy;
  }

  static UnsafeRow row(byte[] bytes, int columns) {
    UnsafeRow row = new UnsafeRow(columns);
    row.pointTo(bytes, bytes.length);
    return row;
  }
}
