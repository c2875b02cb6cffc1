package millstream.bridge;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Where the result rows of a view go: back to the database, as Arrow batches. */
public class ChangeSink implements TableProvider {
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return new StructType();
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new Results();
  }

  /** The table that is written to. */
  public static class Results implements Table, SupportsWrite {
    public String name() {
      return "millstream results";
    }

    public StructType schema() {
      return new StructType();
    }

    public Set capabilities() {
      return EnumSet.of(TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Writing(info);
    }
  }

  /** A write in update mode: each row replaces the one of its group. */
  public static class Writing implements SupportsStreamingUpdateAsAppend, Write {
    private final LogicalWriteInfo info;

    Writing(LogicalWriteInfo info) {
      this.info = info;
    }

    public Write build() {
      return this;
    }

    public StreamingWrite toStreaming() {
      return new Epochs(new Address(info.options()), new Writers(info));
    }
  }

  /** The driver's side: an epoch is over for Spark only when the database has it on its disk. */
  public static class Epochs implements StreamingWrite {
    private final Address address;
    private final Writers writers;

    Epochs(Address address, Writers writers) {
      this.address = address;
      this.writers = writers;
    }

    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      return writers;
    }

    public boolean useCommitCoordinator() {
      return true;
    }

    public void commit(long epoch, WriterCommitMessage[] written) {
      StringBuilder tasks = new StringBuilder();
      for (int i = 0; i < written.length; i++) {
        if (written[i] != null) tasks.append(i == 0 ? "" : ",").append(written[i].toString());
      }
      try {
        Wire wire = address.connect("commit", epoch + "\t" + tasks);
        try {
          wire.ask("commit");
        } finally {
          wire.close();
        }
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    public void abort(long epoch, WriterCommitMessage[] written) {
      // What a task has sent counts only once its epoch is committed, or was flushed by itself.
    }
  }

  /** Which task has written; as text, see LogStream.Reached. */
  public static class Written implements WriterCommitMessage {
    private static final long serialVersionUID = 1L;
    private final long task;

    Written(long task) {
      this.task = task;
    }

    public String toString() {
      return Long.toString(task);
    }
  }

  /** Makes the writers of the tasks. */
  public static class Writers implements StreamingDataWriterFactory {
    private static final long serialVersionUID = 1L;
    private final Address address;
    private final StructType schema;
    private final String keys;
    private final int hash;
    private final boolean live;

    Writers(LogicalWriteInfo info) {
      address = new Address(info.options());
      String columns = info.options().get("columns");
      schema = columns == null ? info.schema() : (StructType) DataType.fromJson(columns);
      keys = info.options().get("keys");
      hash = info.options().getInt("hash", -1);
      live = info.options().getBoolean("live", false);
    }

    public DataWriter createWriter(int partition, long task, long epoch) {
      try {
        Wire wire = address.connect("sink", epoch + "\t" + task);
        Pending pending = Pending.of(schema, keys, hash);
        return new ChangeWriter(wire, schema, pending, task, live);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
