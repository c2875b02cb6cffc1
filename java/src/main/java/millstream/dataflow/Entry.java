package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import millstream.bridge.LiveReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * From the feed into the dataflow: each row of a frame goes through the pipes of all that read its
 * log. Frames have the columns _log, _lsn and _weight, those of the logs that are needed, and _wm,
 * the watermark before a row, if state expires by it.
 */
public class Entry implements Serializable {
  /** The log of the first row of all: what constant relations have comes with it. */
  private static final int INITIAL = -2;

  private static final long serialVersionUID = 1L;

  private final List<List<Pipe>> pipes = new ArrayList<>();
  private final List<Constants> constants = new ArrayList<>();
  private final List<Integer> globals = new ArrayList<>();
  private StructType columns;
  private StructType logs;
  private transient Dataflow dataflow;
  private transient Pipe[][] pipesOf;
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
    for (int i = 0; i < logs; i++) pipes.add(new ArrayList<>());
  }

  /** Send the rows of a log through a pipe. */
  public void addLog(int log, Pipe pipe) {
    pipes.get(log).add(pipe);
  }

  /** Send rows through a pipe that are there from the start, and never change. */
  public void addConstants(Seq<InternalRow> rows, Pipe pipe) {
    List<InternalRow> copies = new ArrayList<>();
    for (InternalRow each : CollectionConverters.asJava(rows)) copies.add(each.copy());
    constants.add(new Constants(copies, pipe));
  }

  /** Have an aggregate without keys, at a port, give its row even if none ever comes. */
  public void addGlobal(int port) {
    globals.add(port);
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
    mark = placeOf("_wm");
    watermark = Long.MIN_VALUE;
    for (List<Pipe> each : pipes) each.forEach(pipe -> pipe.open(dataflow));
    for (Constants each : constants) each.pipe.open(dataflow);
    pipesOf = pipes.stream().map(each -> each.toArray(Pipe[]::new)).toArray(Pipe[][]::new);
    this.dataflow = dataflow;
  }

  /** See the columns of each log among those of the frames, whose vectors are always the same. */
  private void setFeed(ColumnarBatch batch) {
    feed = batch;
    rows = new ColumnarBatch[pipesOf.length];
    for (int i = 0; i < rows.length; i++) {
      StructField[] fields = ((StructType) logs.fields()[i].dataType()).fields();
      ColumnVector[] vectors = new ColumnVector[fields.length];
      for (int j = 0; j < vectors.length; j++) vectors[j] = vector(fields[j]);
      rows[i] = new ColumnarBatch(vectors);
    }
  }

  private ColumnVector vector(StructField field) {
    int place = placeOf(field.name());
    if (place >= 0) return feed.column(place);
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
      if (from == INITIAL) {
        begin(row.getLong(lsn));
        continue;
      }
      InternalRow values = rows[from].getRow(i);
      for (Pipe each : pipesOf[from]) each.send(values, row.getLong(lsn), row.getLong(weight));
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
    for (int port : globals) ((Group) dataflow.at(port)).begin(at);
    for (Constants each : constants) {
      for (InternalRow row : each.rows) each.pipe.send(row, at, 1L);
    }
  }

  /** The place of a column in frames; -1 if they do not have it. */
  private int placeOf(String name) {
    Option<Object> found = columns.getFieldIndex(name);
    return found.isEmpty() ? -1 : (int) found.get();
  }

  /** Rows that are there from the start, and where they go. */
  private record Constants(List<InternalRow> rows, Pipe pipe) implements Serializable {}
}
