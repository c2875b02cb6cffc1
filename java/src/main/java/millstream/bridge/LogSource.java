package millstream.bridge;

import java.util.EnumSet;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The feed of a view as a streaming table of frames, for real-time mode. Rows of the past are a
 * table that is read in batch.
 */
public class LogSource implements TableProvider {
  /** What a dataflow gets of Spark: that there is a frame, which it asks the reader for. */
  private static final StructType FRAME = StructType.fromDDL("_lsn bigint");

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return isPast(options) ? columnsOf(options) : FRAME;
  }

  /** The columns that the database sends. */
  private static StructType columnsOf(CaseInsensitiveStringMap options) {
    return (StructType) DataType.fromJson(options.get("columns"));
  }

  private static boolean isPast(CaseInsensitiveStringMap options) {
    return options.containsKey("partitions");
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Feed(schema);
  }

  /** The table; all it knows is its columns. */
  public static class Feed implements Table, SupportsRead {
    private final StructType schema;

    Feed(StructType schema) {
      this.schema = schema;
    }

    @Override
    public String name() {
      return "millstream feed";
    }

    @Override
    @SuppressWarnings("deprecation") // Spark makes columns() of it
    public StructType schema() {
      return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      if (LogSource.isPast(options)) return new Past(schema, options);
      Address address = new Address(options);
      LogStream.Readers readers = new LogStream.Readers(address, LogSource.columnsOf(options));
      return new Reading(schema, address, readers);
    }
  }

  /** A scan of all columns: Spark prunes none of a stream, so the database names what is used. */
  public static class Reading implements ScanBuilder, Scan {
    private final StructType columns;
    private final Address address;
    private final LogStream.Readers readers;

    Reading(StructType columns, Address address, LogStream.Readers readers) {
      this.columns = columns;
      this.address = address;
      this.readers = readers;
    }

    @Override
    public Scan build() {
      return this;
    }

    @Override
    public StructType readSchema() {
      return columns;
    }

    @Override
    public String description() {
      return "millstream feed " + address.feed;
    }

    /** Else Spark would plan the partitions twice, to ask each of them. */
    @Override
    public Scan.ColumnarSupportMode columnarSupportMode() {
      return Scan.ColumnarSupportMode.UNSUPPORTED;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new LogStream(address, readers);
    }
  }

  /** A scan in batch: partitions, each read by its number, of the columns that are needed. */
  public static class Past
      implements SupportsPushDownRequiredColumns, SupportsReportStatistics, Batch, Statistics {
    private final StructType all;
    private final Address address;
    private final int partitions;
    private final long bytes;
    private StructType columns;

    Past(StructType columns, CaseInsensitiveStringMap options) {
      this.all = columns;
      this.columns = columns;
      this.address = new Address(options);
      this.partitions = options.getInt("partitions", 1);
      this.bytes = options.getLong("bytes", -1L);
    }

    @Override
    public void pruneColumns(StructType required) {
      columns = required;
    }

    @Override
    public Scan build() {
      return this;
    }

    @Override
    public StructType readSchema() {
      return columns;
    }

    @Override
    public String description() {
      return "millstream past " + address.feed;
    }

    @Override
    public Batch toBatch() {
      return this;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      InputPartition[] planned = new InputPartition[partitions];
      for (int i = 0; i < partitions; i++)
        planned[i] = new LogStream.Partition(LogStream.Partition.PAST, String.valueOf(i));
      return planned;
    }

    /** Without any column rows could not be counted. */
    @Override
    public PartitionReaderFactory createReaderFactory() {
      StructType sent = columns;
      if (sent.isEmpty()) sent = new StructType(new StructField[] {all.fields()[0]});
      return new LogStream.Readers(address, sent);
    }

    @Override
    public Statistics estimateStatistics() {
      return this;
    }

    @Override
    public OptionalLong sizeInBytes() {
      return bytes < 0L ? OptionalLong.empty() : OptionalLong.of(bytes);
    }

    @Override
    public OptionalLong numRows() {
      return OptionalLong.empty();
    }
  }
}
