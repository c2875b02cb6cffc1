package millstream.dataflow;

import java.util.ArrayList;
import java.util.List;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Subtract;

/** ASOF joins against looking at all rows of the right side for each row of the left one. */
class AsOfProperties {
  private static final int LEFT = 1, RIGHT = 2;
  private static final long FAR = 6;

  @Provide
  Arbitrary<Script> scripts() {
    Arbitrary<List<Object>> rows =
        Rows.of(Rows.ints(1).injectNull(0.1), Rows.longs(20).injectNull(0.1), Rows.ints(2));
    return Script.over(rows, rows);
  }

  @Property
  void matches(
      @ForAll("scripts") Script script,
      @ForAll AsOf.Direction direction,
      @ForAll boolean mayBeStrict,
      @ForAll boolean outer,
      @ForAll boolean near) {
    boolean strict = mayBeStrict && direction != AsOf.Direction.NEAREST;
    Columns left = Columns.of("a int, s bigint, b int"),
        right = Columns.of("c int, t bigint, d int");
    Columns output = left.and(right);
    Expression tolerance =
        near && direction == AsOf.Direction.BACKWARD ? within(left, right) : null;
    script.check(
        () ->
            Host.Plan.of(
                List.of(
                    Host.pipe(LEFT, left, outer ? Pipe.NULLS_APART : Pipe.NULLS_DROP, 0),
                    Host.pipe(RIGHT, right, Pipe.NULLS_DROP, 0)),
                new AsOf(
                    new AsOf.Side(LEFT, 1, left.seq()),
                    new AsOf.Side(RIGHT, 1, right.seq()),
                    direction.ordinal(),
                    strict,
                    outer,
                    tolerance,
                    output.seq(),
                    null,
                    null,
                    Host.out(output)),
                output),
        inputs -> {
          Bag result = new Bag();
          for (List<Object> row : inputs.get(0).rows()) {
            List<Object> match = match(row, inputs.get(1), direction, strict);
            if (match != null && tolerance != null && time(row) - time(match) > FAR) match = null;
            if (match == null && !outer) continue;
            List<Object> made = new ArrayList<>(row);
            made.addAll(match == null ? Columns.list(null, null, null) : match);
            result.add(made, 1);
          }
          return result;
        });
  }

  private static Expression within(Columns left, Columns right) {
    return new LessThanOrEqual(new Subtract(left.get(1), right.get(1)), Columns.literal(FAR));
  }

  private static Long time(List<Object> row) {
    return (Long) row.get(1);
  }

  /** The nearest row; if two are as near, the earlier one; at the same time, the greatest. */
  static List<Object> match(
      List<Object> row, Bag others, AsOf.Direction direction, boolean strict) {
    List<Object> best = null;
    for (List<Object> other : others.rows()) {
      boolean known = row.get(0) != null && time(row) != null && time(other) != null;
      if (!known || !row.get(0).equals(other.get(0))) continue;
      long ahead = time(other) - time(row);
      if (strict && ahead == 0) continue;
      if (direction == AsOf.Direction.BACKWARD && ahead > 0
          || direction == AsOf.Direction.FORWARD && ahead < 0) continue;
      if (best == null || isNearer(other, best, time(row))) best = other;
    }
    return best;
  }

  private static boolean isNearer(List<Object> one, List<Object> other, long time) {
    long far = Math.abs(time(one) - time), otherFar = Math.abs(time(other) - time);
    if (far != otherFar) return far < otherFar;
    if (!time(one).equals(time(other))) return time(one) < time(other);
    return (int) one.get(2) > (int) other.get(2);
  }
}
