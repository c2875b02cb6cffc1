package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import millstream.bridge.LiveReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * From the feed into the dataflow: each row of a frame goes through the pipes of all that read its
 * log. Frames have the columns _log, _lsn and _weight, those of the logs that are needed, and _wm,
 * the watermark before a row, if it lets state go.
 */
public class Entry implements Serializable {
  /** The log of the first row of all: what constant relations have comes with it. */
  private static final int BEGINNING = -2;

  private static final long serialVersionUID = 1L;

  private final ArrayList[] pipes;
  private final ArrayList constants = new ArrayList();
  private final ArrayList globals = new ArrayList();
  private StructType columns;
  private StructType logs;
  private transient Dataflow dataflow;
  private transient int log;
  private transient int lsn;
  private transient int weight;
  private transient int mark;
  private transient long watermark;
  private transient boolean advanced;
  private transient ColumnarBatch feed;
  private transient ColumnarBatch[] rows;

  /** The entry of a feed of so many logs. */
  public Entry(int logs) {
    pipes = new ArrayList[logs];
    for (int i = 0; i < pipes.length; i++) pipes[i] = new ArrayList();
  }

  /** Send the rows of a log through a pipe. */
  public void addLog(int log, Pipe pipe) {
    pipes[log].add(pipe);
  }

  /** Send rows through a pipe that are there from the beginning, and never change. */
  public void addConstants(scala.collection.immutable.Seq rows, Pipe pipe) {
    ArrayList copies = new ArrayList();
    for (int i = 0; i < rows.size(); i++) copies.add(((InternalRow) rows.apply(i)).copy());
    constants.add(new Object[] {copies, pipe});
  }

  /** Have an aggregate without keys, at a port, give its row even if none ever comes. */
  public void addGlobal(int port) {
    globals.add(Integer.valueOf(port));
  }

  /**
   * @param columns what frames have.
   * @param logs the columns of each log, by the names that they have in frames; one that frames do
   *     not have is not needed, and is NULL.
   */
  void setColumns(StructType columns, StructType logs) {
    this.columns = columns;
    this.logs = logs;
  }

  void open(Dataflow dataflow) {
    log = columns.fieldIndex("_log");
    lsn = columns.fieldIndex("_lsn");
    weight = columns.fieldIndex("_weight");
    scala.Option found = columns.getFieldIndex("_wm");
    mark = found.isEmpty() ? -1 : ((Integer) found.get()).intValue();
    watermark = Long.MIN_VALUE;
    for (int i = 0; i < pipes.length; i++) {
      for (int j = 0; j < pipes[i].size(); j++) ((Pipe) pipes[i].get(j)).open(dataflow);
    }
    for (int i = 0; i < constants.size(); i++)
      ((Pipe) ((Object[]) constants.get(i))[1]).open(dataflow);
    this.dataflow = dataflow;
  }

  /** See the columns of each log among those of the frames, whose vectors are always the same. */
  private void setFeed(ColumnarBatch batch) {
    feed = batch;
    rows = new ColumnarBatch[pipes.length];
    for (int i = 0; i < rows.length; i++) {
      StructField[] fields = ((StructType) logs.fields()[i].dataType()).fields();
      ColumnVector[] vectors = new ColumnVector[fields.length];
      for (int j = 0; j < vectors.length; j++) vectors[j] = vector(fields[j]);
      rows[i] = new ColumnarBatch(vectors);
    }
  }

  private ColumnVector vector(StructField field) {
    scala.Option place = columns.getFieldIndex(field.name());
    if (!place.isEmpty()) return feed.column(((Integer) place.get()).intValue());
    ConstantColumnVector nulls = new ConstantColumnVector(1, field.dataType());
    nulls.setNull();
    return nulls;
  }

  /** Send what the reader has at hand. */
  void take(LiveReader reader) {
    ColumnarBatch batch = reader.batch();
    if (batch != feed) setFeed(batch);
    for (int i = 0; i < rows.length; i++) rows[i].setNumRows(batch.numRows());
    if (reader.to() > reader.from()) see(batch.getRow(reader.to() - 1));
    for (int i = reader.from(); i < reader.to(); i++) {
      InternalRow row = batch.getRow(i);
      int from = row.getInt(log);
      if (from == BEGINNING) {
        begin(row.getLong(lsn));
        continue;
      }
      InternalRow values = rows[from].getRow(i);
      ArrayList to = pipes[from];
      for (int j = 0; j < to.size(); j++) {
        ((Pipe) to.get(j)).send(values, row.getLong(lsn), row.getLong(weight));
      }
    }
  }

  private void see(InternalRow last) {
    if (mark < 0 || last.isNullAt(mark) || last.getLong(mark) <= watermark) return;
    watermark = last.getLong(mark);
    advanced = true;
  }

  /** Whether the watermark has advanced since this was asked last. */
  boolean advance() {
    boolean found = advanced;
    advanced = false;
    return found;
  }

  long watermark() {
    return watermark;
  }

  private void begin(long at) {
    for (int i = 0; i < globals.size(); i++) {
      int port = ((Integer) globals.get(i)).intValue();
      ((Group) dataflow.at(port)).begin(at);
    }
    for (int i = 0; i < constants.size(); i++) {
      Object[] each = (Object[]) constants.get(i);
      ArrayList found = (ArrayList) each[0];
      for (int j = 0; j < found.size(); j++) {
        ((Pipe) each[1]).send((InternalRow) found.get(j), at, 1L);
      }
    }
  }
}
