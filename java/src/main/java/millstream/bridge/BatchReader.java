package millstream.bridge;

import java.io.IOException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** A range of the log, as Arrow batches. */
public class BatchReader implements PartitionReader<ColumnarBatch> {
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
