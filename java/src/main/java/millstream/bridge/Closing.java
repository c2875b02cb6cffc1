package millstream.bridge;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.UUID;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution$;

/**
 * Makes the event time that the feed has come to Spark's own watermark: at the end of a batch Spark
 * then frees the groups whose windows had closed before it. No row is late for Spark: the feed has
 * left out all whose windows end by then.
 */
final class Closing {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long MILLISECOND = 1000L;
  /** Spark multiplies it by 1000 again. Its own beginning, 1970, would leave out what is older. */
  private static final long NEVER = Long.MIN_VALUE / MILLISECOND;

  private Closing() { }

  /** Sets the watermark of this thread's query before its next batch, which begins at an offset. */
  static void advanceWatermark(String offset, long lateness) {
    SparkSession session = SparkSession.active();
    String id = session.sparkContext().getLocalProperty(StreamExecution$.MODULE$.QUERY_ID_KEY());
    Object query = session.sharedState().activeStreamingQueries().get(UUID.fromString(id));
    ((MicroBatchExecution) query).watermarkTracker().setWatermark(closed(offset, lateness));
  }

  /** Windows that end by this time, in milliseconds, get no more rows after an offset. */
  static long closed(String offset, long lateness) {
    JsonNode marks = marksOf(offset);
    long least = Long.MAX_VALUE;
    for (int i = 0; i < marks.size(); i++) {
      if (!marks.hasNonNull(i)) return NEVER;
      least = Math.min(least, ((JsonNode) marks.get(i)).longValue());
    }
    long border = Math.max(least, Long.MIN_VALUE + lateness) - lateness;
    return Math.max(Math.floorDiv(border, MILLISECOND), NEVER);
  }

  private static JsonNode marksOf(String offset) {
    try {
      return (JsonNode) JSON.readTree(offset).get("watermarks");
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("not an offset: " + offset, e);
    }
  }
}
