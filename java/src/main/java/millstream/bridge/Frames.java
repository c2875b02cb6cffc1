package millstream.bridge;

import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Frames of a feed: a schema first, then each a kind, an LSN, the offset after it as text, and for
 * rows an Arrow record batch, or a few rows without Arrow, which replace those before.
 */
final class Frames {
  static final int ROWS = 1;
  static final int MORE = 2;
  static final int END = 3;
  static final int FAILED = 4;
  static final int MARK = 5;
  static final int FEW = 6;
  static final int PASSED = 7;

  private final Wire wire;
  private final ReadChannel channel;
  private final BufferAllocator memory;
  private VectorSchemaRoot root;
  private VectorLoader loader;
  private FeedColumn[] columns;
  private ColumnarBatch many;
  private FewRows few;
  private ColumnarBatch batch;

  private int kind;
  private long lsn;
  private byte[] offset;
  private long passed = Long.MIN_VALUE;

  Frames(Wire wire) {
    this.wire = wire;
    // Java's own channel: it closes when the task is interrupted, so that nothing waits for ever.
    this.channel = new ReadChannel(Channels.newChannel(wire.in));
    this.memory = ArrowUtils.rootAllocator().newChildAllocator("millstream", 0, Long.MAX_VALUE);
  }

  Wire wire() {
    return wire;
  }

  /** The rows of the last frame; valid until the next one is read. */
  ColumnarBatch batch() {
    return batch;
  }

  /** The LSN up to which everything has been sent after the last frame. */
  long lsn() {
    return lsn;
  }

  /** Whether what all frames up to the last one led to is to be sent now. */
  boolean isMark() {
    return kind == MARK;
  }

  /** Whether more rows follow those of the last frame, for which what these lead to may wait. */
  boolean isBehind() {
    return kind == MORE;
  }

  /** Whether more is there, or follows for sure. */
  boolean hasMore() throws IOException {
    return isBehind() || wire.hasMore();
  }

  /** The moment that the feed has passed with the last frame; the least one: that is not known. */
  long passed() {
    return passed;
  }

  String offset() {
    return new String(offset, StandardCharsets.UTF_8);
  }

  /** Reads the next frame; false at the end. */
  boolean next() throws IOException {
    if (root == null) begin();
    kind = wire.awaitByte();
    if (kind == PASSED) {
      passed = wire.in.readLong();
      kind = wire.awaitByte();
    }
    lsn = wire.in.readLong();
    offset = new byte[wire.in.readInt()];
    wire.in.readFully(offset);
    if (kind == END) return false;
    if (kind == FAILED) throw new IOException("millstream: " + offset());
    if (kind == FEW) {
      if (few == null) few = new FewRows(ArrowUtils.fromArrowSchema(root.getSchema()));
      batch = few.read(wire.in);
      return true;
    }
    try (ArrowRecordBatch data = MessageSerializer.deserializeRecordBatch(channel, memory)) {
      loader.load(data);
    }
    for (FeedColumn each : columns) each.refresh();
    batch = many;
    batch.setNumRows(root.getRowCount());
    return true;
  }

  private void begin() throws IOException {
    root = VectorSchemaRoot.create(MessageSerializer.deserializeSchema(channel), memory);
    loader = new VectorLoader(root);
    columns = root.getFieldVectors().stream().map(FeedColumn::new).toArray(FeedColumn[]::new);
    many = new ColumnarBatch(columns);
  }

  void close() {
    wire.close();
    if (root != null) root.close();
    memory.close();
  }
}
