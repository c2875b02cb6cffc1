package millstream.dataflow;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** COUNT. */
public class Count extends Aggregate {
  private static final long serialVersionUID = 1L;

  public Count(int at, List types, boolean filtered, boolean distinct) {
    super(at, types, filtered, distinct);
  }

  Object newPart() {
    return new long[1];
  }

  void add(UnsafeRow row, long weight, Object part) {
    ((long[]) part)[0] += weight;
  }

  void addBuffers(Key key, Object part, ArrayList out, long rows) {
    out.add(Long.valueOf(((long[]) part)[0]));
  }

  void write(Object part, Bytes out) {
    out.putSmall(((long[]) part)[0]);
  }

  Object read(Bytes in) {
    return new long[] {in.getSmall()};
  }
}
