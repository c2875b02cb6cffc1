package millstream.bridge;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import java.util.ArrayList;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.SpecificInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Sends result rows to the database. The reader, in the same thread, says when all that a commit
 * led to is here; it is sent at once when the stream pauses, and otherwise when it has grown large
 * or old. The database answers the latter with a byte: while answers are missing it is behind, and
 * rows are kept. What is sent when the stream pauses does not depend on answers, so there is none:
 * with ten views, ten fewer calls for each commit.
 */
public class ChangeWriter implements DataWriter<InternalRow> {
  private static final int ROWS = 1;
  private static final int FLUSH = 2;
  private static final int FEW = 3;
  private static final int LAST = 4;

  private static final int FEW_ROWS = 64;
  private static final int BATCH_ROWS = 1 << 14;
  private static final int LARGE = 1 << 13;
  private static final int FULL = 1 << 18;
  private static final long OLD_NANOS = 2000000L;
  private static final int MAX_UNANSWERED = 2;

  private static final StructType HIDDEN =
      new StructType().add("_lsn", DataTypes.LongType).add("_weight", DataTypes.LongType);

  private static final ThreadLocal<ChangeWriter> CURRENT = new ThreadLocal<>();

  private final Wire wire;
  private final ByteArrayOutputStream message = new ByteArrayOutputStream();
  private final WriteChannel channel = new WriteChannel(Channels.newChannel(message));

  /**
   * The first rows, as long as they are few; then they are in Arrow's vectors, with those after.
   */
  private final ArrayList<InternalRow> pending = new ArrayList<>();

  /** Batches of rows, as messages of the bridge, which are sent with the next flush. */
  private final ArrayList<byte[]> batches = new ArrayList<>();

  private final ArrowWriter arrow;
  private final VectorUnloader unloader;
  private final FewWriter few;
  private final JoinedRow joined = new JoinedRow();
  private final SpecificInternalRow hidden = new SpecificInternalRow(HIDDEN);
  private int rows = 0;
  private int inArrow = 0;
  private long since;
  private long shown = -1;
  private int unanswered = 0;

  /**
   * @param schema the columns of the result; _lsn and _weight are the last.
   */
  ChangeWriter(Wire wire, StructType schema) throws IOException {
    this.wire = wire;
    arrow = ArrowWriter.create(schema, "UTC", false, false);
    unloader = new VectorUnloader(arrow.root());
    few = FewWriter.of(schema);
    MessageSerializer.serialize(channel, arrow.root().getSchema());
    sendMessage();
    wire.out.flush();
    CURRENT.set(this);
  }

  /** The writer that this thread's rows end in, or null. */
  public static ChangeWriter ofThisThread() {
    return CURRENT.get();
  }

  /** What Spark has put between the reader and this would keep each from noticing the other. */
  public static IllegalStateException apart() {
    return new IllegalStateException("millstream: reader and sink do not share a thread");
  }

  @Override
  public void write(InternalRow row) {
    throw apart(); // a dataflow gives no rows to Spark
  }

  /** Write a row of a dataflow's result: the thread is known to be the reader's. */
  public void write(UnsafeRow row, long lsn, long weight) throws IOException {
    hidden.setLong(0, lsn);
    hidden.setLong(1, weight);
    if (rows++ == 0) since = System.nanoTime();
    joined.apply(row, hidden);
    if (few != null && rows <= FEW_ROWS) {
      pending.add(joined.copy());
    } else {
      for (InternalRow each : pending) toArrow(each);
      pending.clear();
      toArrow(joined);
    }
    if (rows >= FULL) sendRows();
  }

  private void toArrow(InternalRow row) throws IOException {
    arrow.write(row);
    if (++inArrow == BATCH_ROWS) endBatch();
  }

  /** All that the log up to an LSN led to has been written here. */
  void reached(long lsn, boolean pausing) throws IOException {
    shown = lsn;
    while (unanswered > 0 && wire.hasMore()) answered();
    if (pausing) {
      send(LAST, lsn);
    } else if (rows >= LARGE || System.nanoTime() - since > OLD_NANOS) {
      if (unanswered < MAX_UNANSWERED || rows >= FULL) flush(lsn);
    }
  }

  private void answered() throws IOException {
    wire.awaitByte();
    unanswered--;
  }

  private void flush(long lsn) throws IOException {
    send(FLUSH, lsn);
    unanswered++;
  }

  private void send(int kind, long lsn) throws IOException {
    sendRows();
    wire.out.writeByte(kind);
    wire.out.writeLong(lsn);
    wire.out.flush();
    since = System.nanoTime();
  }

  private void sendRows() throws IOException {
    if (!pending.isEmpty()) sendFew();
    if (inArrow > 0) endBatch();
    for (byte[] batch : batches) {
      wire.out.writeByte(ROWS);
      wire.out.writeInt(batch.length);
      wire.out.write(batch);
    }
    batches.clear();
    rows = 0;
  }

  private void endBatch() throws IOException {
    arrow.finish();
    try (ArrowRecordBatch batch = unloader.getRecordBatch()) {
      MessageSerializer.serialize(channel, batch);
    }
    batches.add(message.toByteArray());
    message.reset();
    arrow.reset();
    inArrow = 0;
  }

  private void sendFew() throws IOException {
    DataOutputStream to = new DataOutputStream(message);
    to.writeInt(pending.size());
    for (InternalRow each : pending) few.write(each, to);
    pending.clear();
    wire.out.writeByte(FEW);
    sendMessage();
  }

  private void sendMessage() throws IOException {
    wire.out.writeInt(message.size());
    message.writeTo(wire.out);
    message.reset();
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    if (shown >= 0) flush(shown);
    while (unanswered > 0) answered();
    return new ChangeSink.Written();
  }

  @Override
  public void abort() {
    // The connection ends: the database forgets what was not flushed.
  }

  @Override
  public void close() {
    if (CURRENT.get() == this) CURRENT.remove();
    wire.close();
    arrow.root().close();
  }
}
