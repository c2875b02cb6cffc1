package millstream.bridge;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The feed of a view as a streaming table: micro-batches of LSN ranges, or real-time mode. */
public class LogSource implements TableProvider {
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return options.containsKey("logs") ? LogRows.SCHEMA : structOf(options, "columns");
  }

  /** The columns that an option names; null when it is not given. */
  private static StructType structOf(CaseInsensitiveStringMap options, String name) {
    String json = options.get(name);
    return json == null ? null : (StructType) DataType.fromJson(json);
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new Feed(schema);
  }

  /** The table; all it knows is its columns. */
  public static class Feed implements Table, SupportsRead {
    private final StructType schema;

    Feed(StructType schema) {
      this.schema = schema;
    }

    public String name() {
      return "millstream feed";
    }

    public StructType schema() {
      return schema;
    }

    public Set capabilities() {
      return EnumSet.of(TableCapability.MICRO_BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      boolean live = options.getBoolean("live", false);
      Address address = new Address(options);
      LogStream.Readers readers =
          new LogStream.Readers(
              address,
              LogSource.structOf(options, "columns"),
              LogSource.structOf(options, "logs"),
              live);
      return new Reading(schema, address, readers, live, options.getLong("lateness", -1L));
    }
  }

  /** A scan of all columns: Spark prunes none of a stream, so the database names what is used. */
  public static class Reading implements ScanBuilder, Scan {
    private final StructType columns;
    private final Address address;
    private final LogStream.Readers readers;
    private final boolean live;
    private final long lateness;

    Reading(
        StructType columns,
        Address address,
        LogStream.Readers readers,
        boolean live,
        long lateness) {
      this.columns = columns;
      this.address = address;
      this.readers = readers;
      this.live = live;
      this.lateness = lateness;
    }

    public Scan build() {
      return this;
    }

    public StructType readSchema() {
      return columns;
    }

    public String description() {
      return "millstream feed " + address.feed;
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new LogStream(address, readers, live, lateness);
    }
  }
}
