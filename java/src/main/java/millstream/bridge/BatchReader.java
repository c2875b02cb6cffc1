package millstream.bridge;

import java.io.IOException;
import org.apache.spark.sql.connector.read.PartitionReader;

/** A range of the log, as Arrow batches. */
public class BatchReader implements PartitionReader {
  private final Frames frames;

  BatchReader(Frames frames) {
    this.frames = frames;
  }

  public boolean next() throws IOException {
    return frames.next();
  }

  public Object get() {
    return frames.batch();
  }

  public void close() {
    frames.close();
  }
}
