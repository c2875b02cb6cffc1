package millstream.dataflow;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.constraints.IntRange;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Lag;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.RangeFrame$;
import org.apache.spark.sql.catalyst.expressions.Rank;
import org.apache.spark.sql.catalyst.expressions.RowFrame$;
import org.apache.spark.sql.catalyst.expressions.RowNumber;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;

/** Window functions against their definition over the current rows. */
class OverProperties {
  /** A result for the row at a place of its partition, which is in order. */
  private interface Function {
    Object of(List<List<Object>> rows, int at);
  }

  @Provide
  Arbitrary<Script> scripts() {
    return Script.over(
        Rows.of(Rows.ints(2).injectNull(0.1), Rows.ints(5).injectNull(0.1), Rows.longs(3)));
  }

  @Provide
  Arbitrary<Script> longPartitions() {
    return Script.over(60, Rows.of(Rows.ints(0), Rows.ints(300), Rows.longs(3)));
  }

  // ---- frames that begin with the first row

  @Property
  void running(@ForAll("scripts") Script script) {
    checkRunning(script);
  }

  @Property
  void runningInLongPartitions(@ForAll("longPartitions") Script script) {
    checkRunning(script);
  }

  private static void checkRunning(Script script) {
    Columns columns = columns();
    SortOrder order = Windowed.ascending(columns.get(1));
    List<NamedExpression> functions =
        List.of(
            Windowed.over(
                Windowed.aggregate(new Sum(columns.get(2))),
                order,
                Windowed.running(RowFrame$.MODULE$)),
            Windowed.over(
                Windowed.aggregate(new Count(columns.pick(2))),
                order,
                Windowed.running(RangeFrame$.MODULE$)),
            Windowed.over(new RowNumber(), order, new RowNumber().frame()),
            Windowed.over(new Rank(columns.pick(1)), order, new Rank().frame()));
    script.check(
        () -> {
          Columns output = output(columns, functions);
          RunningTotals totals = new RunningTotals(Columns.seq(functions), columns.seq());
          Running running =
              new Running(
                  1, 3, Columns.seq(List.of(order)), columns.seq(), totals, Host.out(output));
          return Host.Plan.of(List.of(Host.pipe(1, columns, Pipe.NULLS_MATCH, 0)), running, output);
        },
        inputs ->
            model(
                columns,
                inputs.get(0),
                (rows, at) -> sum(rows, 0, at),
                (rows, at) ->
                    rows.stream()
                        .filter(
                            each ->
                                Rows.<Integer>byValue().compare(by(each), by(rows.get(at))) <= 0)
                        .count(),
                (rows, at) -> at + 1,
                OverProperties::rank));
  }

  // ---- frames that reach so many rows

  @Property
  void reaching(@ForAll("scripts") Script script) {
    Columns columns = columns();
    SortOrder order = Windowed.ascending(columns.get(1));
    Lag lag =
        new Lag(columns.get(2), Columns.literal(1), Columns.nothing(columns.get(2).dataType()));
    List<NamedExpression> functions =
        List.of(
            Windowed.over(lag, order, lag.frame()),
            Windowed.over(
                Windowed.aggregate(new Sum(columns.get(2))),
                order,
                Windowed.rows(Columns.literal(-1), Columns.literal(2))));
    script.check(
        () -> over(columns, functions, order, new Over.Reach(1, 2, false, -1, 0)),
        inputs ->
            model(
                columns,
                inputs.get(0),
                (rows, at) -> at == 0 ? null : rows.get(at - 1).get(2),
                (rows, at) -> sum(rows, Math.max(0, at - 1), Math.min(rows.size() - 1, at + 2))));
  }

  // ---- the first rows

  @Property
  void firstByRowNumber(
      @ForAll("scripts") Script script, @ForAll @IntRange(min = 1, max = 4) int n) {
    Columns columns = columns();
    SortOrder order = Windowed.ascending(columns.get(1));
    List<NamedExpression> functions =
        List.of(Windowed.over(new RowNumber(), order, new RowNumber().frame()));
    script.check(
        () -> over(columns, functions, order, new Over.Reach(-1, 0, false, n, 0)),
        inputs -> first(n, model(columns, inputs.get(0), (rows, at) -> at + 1)));
  }

  @Property
  void firstByRank(@ForAll("scripts") Script script, @ForAll @IntRange(min = 1, max = 4) int n) {
    Columns columns = columns();
    SortOrder order = Windowed.ascending(columns.get(1));
    List<NamedExpression> functions =
        List.of(Windowed.over(new Rank(columns.pick(1)), order, new Rank().frame()));
    script.check(
        () -> over(columns, functions, order, new Over.Reach(-1, 0, false, n, 1)),
        inputs -> first(n, model(columns, inputs.get(0), OverProperties::rank)));
  }

  private static Bag first(int n, Bag all) {
    Bag found = new Bag();
    all.weights()
        .forEach(
            (row, weight) -> {
              if ((int) row.get(3) <= n) found.add(row, weight);
            });
    return found;
  }

  // ---- plans and models

  private static Columns columns() {
    return Columns.of("p int, o int, v bigint");
  }

  private static Columns output(Columns columns, List<NamedExpression> functions) {
    List<Attribute> made = functions.stream().map(NamedExpression::toAttribute).toList();
    return columns.and(new Columns(made));
  }

  private static Host.Plan over(
      Columns columns, List<NamedExpression> functions, SortOrder order, Over.Reach reach) {
    Columns row = columns.and(Columns.of("run bigint"));
    Columns output = output(columns, functions);
    Windows windows =
        new Windows(Columns.seq(functions), row.pick(3), Columns.seq(List.of(order)), row.seq());
    Over over =
        new Over(
            1,
            4,
            reach,
            Columns.seq(List.of(order)),
            row.seq(),
            output.seq(),
            output(row, functions).seq(),
            windows,
            Host.out(output));
    List<Expression> given = new ArrayList<>(columns.attributes());
    given.add(Columns.literal(0L));
    Pipe pipe =
        new Pipe(
            1, List.of(), columns.pick(0), Columns.seq(given), columns.seq(), Pipe.NULLS_MATCH);
    return Host.Plan.of(List.of(pipe), over, output);
  }

  private static Bag model(Columns columns, Bag input, Function... functions) {
    Map<Integer, List<List<Object>>> partitions = new TreeMap<>(Rows.byValue());
    for (List<Object> row : input.rows()) {
      partitions.computeIfAbsent((Integer) row.get(0), key -> new ArrayList<>()).add(row);
    }
    Bag result = new Bag();
    for (List<List<Object>> rows : partitions.values()) {
      rows.sort(Rows.order(columns, 1));
      for (int at = 0; at < rows.size(); at++) {
        List<Object> made = new ArrayList<>(rows.get(at));
        for (Function each : functions) made.add(each.of(rows, at));
        result.add(made, 1);
      }
    }
    return result;
  }

  private static Integer by(List<Object> row) {
    return (Integer) row.get(1);
  }

  private static Object sum(List<List<Object>> rows, int from, int to) {
    long sum = 0;
    for (int i = from; i <= to; i++) sum += (long) rows.get(i).get(2);
    return sum;
  }

  private static Object rank(List<List<Object>> rows, int at) {
    int rank = at;
    while (rank > 0 && Objects.equals(by(rows.get(rank - 1)), by(rows.get(at)))) rank--;
    return rank + 1;
  }
}
