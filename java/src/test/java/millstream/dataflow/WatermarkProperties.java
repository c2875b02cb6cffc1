package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BiPredicate;
import java.util.function.Function;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;

/**
 * Operators whose rows expire against models whose rows do not: as long as no row is older than the
 * watermark, expiry changes no result. In the end, the state has only what may still have a match.
 */
class WatermarkProperties {
  private static final int LEFT = 1, RIGHT = 2;
  private static final long GAP = 4;

  /** Rows of a commit, and by how much the watermark advances after it. */
  private record Commit(List<Row> rows, long advance, boolean restarts) {}

  /** A row of an input, whose time lies so far after the watermark. */
  private record Row(int input, int key, long ahead, int value) {}

  @Provide
  Arbitrary<List<Commit>> commits() {
    Arbitrary<Row> row =
        Combinators.combine(Rows.ints(1), Rows.ints(1), Rows.longs(12), Rows.ints(2)).as(Row::new);
    return Combinators.combine(
            row.list().ofMaxSize(8),
            Rows.longs(6),
            Arbitraries.frequencyOf(
                net.jqwik.api.Tuple.of(4, Arbitraries.just(false)),
                net.jqwik.api.Tuple.of(1, Arbitraries.just(true))))
        .as(Commit::new)
        .list()
        .ofMaxSize(8);
  }

  @Provide
  Arbitrary<Long> memories() {
    return Arbitraries.of(500L, 1L << 30);
  }

  /**
   * Run commits, and compare after each.
   *
   * @param left how many rows may be left in the state when the watermark is beyond all of them.
   */
  private static void check(
      List<Commit> commits, long memory, Host.Plan plan, Function<List<Bag>, Bag> model, int left) {
    List<Bag> inputs = List.of(new Bag(), new Bag());
    long watermark = 0;
    try (Host host = new Host(plan, memory)) {
      host.commit(watermark);
      for (Commit commit : commits) {
        for (Row each : commit.rows) {
          int input = Math.min(each.input, plan.inputs().size() - 1);
          List<Object> row = Columns.list(each.key, watermark + each.ahead, each.value);
          inputs.get(input).add(row, 1);
          host.send(input, row, 1);
        }
        watermark += commit.advance;
        host.commit(watermark);
        assertEquals(model.apply(inputs), host.results());
        if (commit.restarts) host.restart();
      }
      host.commit(watermark + 1000);
      assertEquals(model.apply(inputs), host.results());
      long rows = host.rows();
      assertEquals(Math.min(left, rows), rows, "rows in the state");
    }
  }

  private static Columns side(String prefix) {
    return Columns.of(prefix + "k int, " + prefix + "t bigint, " + prefix + "v int");
  }

  private static Expiry expiry(Columns columns, long shift) {
    return new Expiry(columns.pick(1), columns.seq(), shift);
  }

  private static long time(List<Object> row) {
    return (long) row.get(1);
  }

  @Property
  void asOf(
      @ForAll("commits") List<Commit> commits,
      @ForAll("memories") long memory,
      @ForAll AsOf.Direction direction) {
    Columns left = side("l"), right = side("r"), output = left.and(right);
    AsOf operator =
        new AsOf(
            new AsOf.Side(LEFT, 1, left.seq()),
            new AsOf.Side(RIGHT, 1, right.seq()),
            direction.ordinal(),
            false,
            true,
            null,
            output.seq(),
            expiry(left, 0),
            expiry(right, 0),
            Host.out(output));
    Host.Plan plan =
        Host.Plan.of(
            List.of(
                Host.pipe(LEFT, left, Pipe.NULLS_APART, 0),
                Host.pipe(RIGHT, right, Pipe.NULLS_DROP, 0)),
            operator,
            output);
    Function<List<Bag>, Bag> model =
        inputs -> {
          Bag result = new Bag();
          for (List<Object> row : inputs.get(0).rows()) {
            List<Object> match = AsOfProperties.match(row, inputs.get(1), direction, false);
            result.add(joined(row, match == null ? Columns.list(null, null, null) : match), 1);
          }
          return result;
        };
    // With a later match, a row waits for it; else the newest row of each key is left.
    check(commits, memory, plan, model, direction == AsOf.Direction.BACKWARD ? 2 : 1000);
  }

  @Property
  void sessions(@ForAll("commits") List<Commit> commits, @ForAll("memories") long memory) {
    Columns columns = side("");
    Columns output = columns.and(Columns.of("s bigint"));
    Sessions operator =
        new Sessions(
            LEFT,
            3,
            1,
            GAP,
            Columns.seq(List.of(Windowed.ascending(columns.get(1)))),
            columns.seq(),
            expiry(columns, GAP),
            Host.out(output));
    Host.Plan plan =
        Host.Plan.of(List.of(Host.pipe(LEFT, columns, Pipe.NULLS_MATCH, 0)), operator, output);
    check(commits, memory, plan, inputs -> SessionsProperties.model(inputs.get(0), GAP), 0);
  }

  /** Rows of the right side up to some time after a row of the left one. */
  @Property
  void joins(
      @ForAll("commits") List<Commit> commits,
      @ForAll("memories") long memory,
      @ForAll boolean outer) {
    Columns left = side("l"), right = side("r"), output = left.and(right);
    Expression from = new GreaterThanOrEqual(right.get(1), left.get(1));
    Expression to = new LessThanOrEqual(right.get(1), new Add(left.get(1), Columns.literal(GAP)));
    Join operator =
        new Join(
            LEFT,
            RIGHT,
            3,
            3,
            outer ? "LeftOuter" : "Inner",
            new And(from, to),
            output.seq(),
            null,
            null,
            expiry(left, GAP),
            expiry(right, 0),
            Host.out(output));
    Host.Plan plan =
        Host.Plan.of(
            List.of(
                Host.pipe(LEFT, left, outer ? Pipe.NULLS_APART : Pipe.NULLS_DROP, 0),
                Host.pipe(RIGHT, right, Pipe.NULLS_DROP, 0)),
            operator,
            output);
    BiPredicate<List<Object>, List<Object>> within =
        (one, other) -> time(other) >= time(one) && time(other) <= time(one) + GAP;
    Function<List<Bag>, Bag> model =
        inputs -> JoinProperties.model(outer ? "LeftOuter" : "Inner", inputs, within);
    check(commits, memory, plan, model, 0);
  }

  /** Groups by time. */
  @Property
  void groups(@ForAll("commits") List<Commit> commits, @ForAll("memories") long memory) {
    Columns columns = side("");
    Attribute count = Columns.of("n bigint").get(0);
    Columns key = new Columns(List.of(columns.get(1)));
    Columns output = key.and(new Columns(List.of(count)));
    Aggregate aggregate = new Count(0, List.of(columns.get(2).dataType()), false, false);
    Expiry expiry = new Expiry(key.pick(0), key.seq(), 0);
    Group operator =
        new Group(
            LEFT,
            1,
            new ArrayList<>(List.of(aggregate)),
            Columns.seq(List.of(count)),
            Columns.seq(List.of(count)),
            expiry,
            false,
            Host.out(output));
    Pipe pipe =
        new Pipe(
            LEFT, List.of(), columns.pick(1), columns.pick(2), columns.seq(), Pipe.NULLS_MATCH);
    Function<List<Bag>, Bag> model =
        inputs -> {
          Bag counts = new Bag(), result = new Bag();
          for (List<Object> row : inputs.get(0).rows()) counts.add(Columns.list(row.get(1)), 1);
          counts.weights().forEach((row, weight) -> result.add(joined(row, List.of(weight)), 1));
          return result;
        };
    check(commits, memory, Host.Plan.of(List.of(pipe), operator, output), model, 0);
  }

  private static List<Object> joined(List<Object> left, List<Object> right) {
    List<Object> both = new ArrayList<>(left);
    both.addAll(right);
    return both;
  }
}
