package millstream.bridge;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The driver's side of a feed, in real-time mode. What offsets mean and where batches end is the
 * database's business: this asks, and hands the answers to Spark.
 */
public class LogStream implements MicroBatchStream, SupportsAdmissionControl, SupportsRealTimeMode {
  private final Address address;
  private final Readers readers;
  private Wire control;

  LogStream(Address address, Readers readers) {
    this.address = address;
    this.readers = readers;
  }

  private synchronized String ask(String question) {
    try {
      if (control == null) control = address.connect("control", "");
      return control.ask(question);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public Offset initialOffset() {
    return new LogOffset(ask("initial"));
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new LogOffset(json);
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is the one to call");
  }

  /** Nobody knows where a batch will end, and Spark does not need to. */
  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return start;
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    throw new UnsupportedOperationException("real-time mode reads from an offset on");
  }

  /**
   * The database takes the end of this connection for that of the query: so there has to be one.
   */
  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    ask("live");
    return new InputPartition[] {new Partition(Partition.TAIL, start.json())};
  }

  @Override
  public Offset mergeOffsets(PartitionOffset[] offsets) {
    return new LogOffset(offsets[0].toString());
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return readers;
  }

  @Override
  public void commit(Offset end) {
    ask("committed\t" + end.json());
  }

  @Override
  public synchronized void stop() {
    if (control != null) control.close();
    control = null;
  }

  /** A position in the log, in the database's own words. */
  public static class LogOffset extends Offset {
    private final String json;

    LogOffset(String json) {
      this.json = json;
    }

    @Override
    public String json() {
      return json;
    }
  }

  /**
   * How far a live reader has come. The driver may have loaded this class by another class loader
   * than the task, so it asks for the text instead of casting.
   */
  public static class Reached implements PartitionOffset {
    private static final long serialVersionUID = 1L;
    private final String json;

    Reached(String json) {
      this.json = json;
    }

    @Override
    public String toString() {
      return json;
    }
  }

  /** What one task reads. */
  public record Partition(String role, String what) implements InputPartition {
    static final String TAIL = "tail";
    static final String PAST = "past";
  }

  /**
   * Makes the readers: of the live tail for real-time mode, of whole Arrow batches for the past.
   */
  public static class Readers implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;
    private final Address address;
    private final StructType columns;

    /**
     * @param columns what the database sends.
     */
    Readers(Address address, StructType columns) {
      this.address = address;
      this.columns = columns;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return ((Partition) partition).role.equals(Partition.PAST);
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new LiveReader(open((Partition) partition), ((Partition) partition).what);
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new BatchReader(open((Partition) partition));
    }

    private Frames open(Partition partition) {
      try {
        String names = String.join("\u001f", columns.fieldNames());
        return new Frames(address.connect(partition.role, names + "\t" + partition.what));
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  /** A range of the log, as Arrow batches. */
  private static final class BatchReader implements PartitionReader<ColumnarBatch> {
    private final Frames frames;

    BatchReader(Frames frames) {
      this.frames = frames;
    }

    @Override
    public boolean next() throws IOException {
      return frames.next();
    }

    @Override
    public ColumnarBatch get() {
      return frames.batch();
    }

    @Override
    public void close() {
      frames.close();
    }
  }
}
