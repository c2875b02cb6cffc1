package millstream.bridge;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
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
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return new StructType();
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Results();
  }

  /** The table that is written to. */
  public static class Results implements Table, SupportsWrite {
    @Override
    public String name() {
      return "millstream results";
    }

    @Override
    @SuppressWarnings("deprecation") // Spark makes columns() of it
    public StructType schema() {
      return new StructType();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Writing(info);
    }
  }

  /** A write in update mode: its rows are changes. */
  public static class Writing implements SupportsStreamingUpdateAsAppend, Write {
    private final LogicalWriteInfo info;

    Writing(LogicalWriteInfo info) {
      this.info = info;
    }

    @Override
    public Write build() {
      return this;
    }

    @Override
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

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      return writers;
    }

    @Override
    public boolean useCommitCoordinator() {
      return true;
    }

    @Override
    public void commit(long epoch, WriterCommitMessage[] written) {
      try (Wire wire = address.connect("commit", "")) {
        wire.ask("commit");
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    @Override
    public void abort(long epoch, WriterCommitMessage[] written) {
      // What a task has sent counts only once it was flushed.
    }
  }

  /** A task has written all, and it counts. */
  public static class Written implements WriterCommitMessage {
    private static final long serialVersionUID = 1L;
  }

  /** Makes the writers of the tasks. */
  public static class Writers implements StreamingDataWriterFactory {
    private static final long serialVersionUID = 1L;
    private final Address address;
    private final StructType columns;

    /** The columns are those of what leaves the dataflow, which Spark does not know. */
    Writers(LogicalWriteInfo info) {
      address = new Address(info.options());
      columns = (StructType) DataType.fromJson(info.options().get("columns"));
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
      try {
        return new ChangeWriter(address.connect("sink", ""), columns);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
