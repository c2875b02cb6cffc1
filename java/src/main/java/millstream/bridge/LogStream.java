package millstream.bridge;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/**
 * The driver's side of a feed. What offsets mean, where batches end and how they are split is the
 * database's business: this asks, and hands the answers to Spark.
 */
public class LogStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, SupportsRealTimeMode {
  private final Address address;
  private final Readers readers;
  private final boolean live;
  private final long lateness;
  private Wire control;

  LogStream(Address address, Readers readers, boolean live, long lateness) {
    this.address = address;
    this.readers = readers;
    this.live = live;
    this.lateness = lateness;
  }

  private synchronized String ask(String question) {
    try {
      if (control == null) control = address.connect("control", "");
      return control.ask(question);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  public Offset initialOffset() {
    return new Place(ask("initial"));
  }

  public Offset deserializeOffset(String json) {
    return new Place(json);
  }

  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is the one to call");
  }

  /** In the live gear nobody knows where a batch will end, and Spark does not need to. */
  public Offset latestOffset(Offset start, ReadLimit limit) {
    if (lateness >= 0L) Closing.advanceWatermark(start.json(), lateness);
    if (live) return start;
    return new Place(ask("latest\t" + start.json()));
  }

  public void prepareForTriggerAvailableNow() {
    ask("available");
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    String[] parts = ask("split\t" + start.json() + "\t" + end.json()).split("\n");
    InputPartition[] planned = new InputPartition[parts.length];
    for (int i = 0; i < parts.length; i++) planned[i] = new Part("read", parts[i]);
    return planned;
  }

  /** The database takes the end of this connection for that of the query: so there has to be one. */
  public InputPartition[] planInputPartitions(Offset start) {
    ask("live");
    return new InputPartition[] {new Part("tail", start.json())};
  }

  public Offset mergeOffsets(PartitionOffset[] offsets) {
    return new Place(offsets[0].toString());
  }

  public PartitionReaderFactory createReaderFactory() {
    return readers;
  }

  public void commit(Offset end) {
    ask("committed\t" + end.json());
  }

  public synchronized void stop() {
    if (control != null) control.close();
    control = null;
  }

  /** A place in the log, in the database's own words. */
  public static class Place extends Offset {
    private final String json;

    Place(String json) {
      this.json = json;
    }

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

    public String toString() {
      return json;
    }
  }

  /** What one task reads. */
  public static class Part implements InputPartition {
    private static final long serialVersionUID = 1L;
    final String role;
    final String what;

    Part(String role, String what) {
      this.role = role;
      this.what = what;
    }
  }

  /** Makes the readers: whole Arrow batches for micro-batches, rows or frames for real-time mode. */
  public static class Readers implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;
    private final Address address;
    private final StructType columns;
    private final boolean live;
    private final boolean byFrame;

    /**
     * @param columns what the database sends.
     * @param byFrame whether frames are given to a line of operators, and not rows.
     */
    Readers(Address address, StructType columns, boolean live, boolean byFrame) {
      this.address = address;
      this.columns = columns;
      this.live = live;
      this.byFrame = byFrame;
    }

    public boolean supportColumnarReads(InputPartition part) {
      return !live;
    }

    public PartitionReader createReader(InputPartition part) {
      return new LiveReader(open((Part) part), ((Part) part).what, byFrame);
    }

    public PartitionReader createColumnarReader(InputPartition part) {
      return new BatchReader(open((Part) part));
    }

    private Frames open(Part part) {
      try {
        String names = String.join("\u001f", columns.fieldNames());
        return new Frames(address.connect(part.role, names + "\t" + part.what));
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
