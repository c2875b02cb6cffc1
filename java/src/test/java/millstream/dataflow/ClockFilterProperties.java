package millstream.dataflow;

import java.util.List;
import java.util.Set;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.apache.spark.sql.catalyst.expressions.Expression;

/** Conditions on the time against evaluating them for all current rows at each tick. */
class ClockFilterProperties {
  private static final int ROWS = 1, TICKS = 2;

  @Provide
  Arbitrary<Script> scripts() {
    Arbitrary<Long> times = Rows.longs(30).injectNull(0.1);
    return Script.over(
        Rows.of(times, times, net.jqwik.api.Arbitraries.of(true, false).injectNull(0.1)),
        Rows.of(Rows.longs(40)));
  }

  @Property
  void oneSpan(@ForAll("scripts") Script script) {
    check(script, false);
  }

  @Property
  void alternatives(@ForAll("scripts") Script script) {
    check(script, true);
  }

  /** WHERE now >= b AND now < e, and, as an alternative, OR f AND now >= b + 5. */
  private static void check(Script script, boolean two) {
    Columns columns = Columns.of("b bigint, e bigint, f boolean");
    Columns ticks = Columns.of("now bigint");
    script.check(
        () -> {
          Expression always = Columns.literal(true);
          List<Expression> values =
              two
                  ? List.of(always, columns.get(2), columns.get(0), columns.get(1), columns.get(0))
                  : List.of(always, columns.get(0), columns.get(1));
          ClockFilter filter =
              new ClockFilter(
                  ROWS, TICKS, Columns.seq(values), two ? 2 : 1, columns.seq(), Host.out(columns));
          filter.addBound(0, false, 0);
          filter.addBound(0, true, 0);
          if (two) filter.addBound(1, false, 5);
          return Host.Plan.of(
              List.of(
                  Host.pipe(ROWS, columns, Pipe.NULLS_MATCH),
                  Host.pipe(TICKS, ticks, Pipe.NULLS_MATCH)),
              filter,
              columns);
        },
        inputs -> {
          long now =
              inputs.get(1).rows().stream()
                  .mapToLong(each -> (long) each.get(0))
                  .max()
                  .orElse(Long.MIN_VALUE);
          Bag result = new Bag();
          for (List<Object> row : inputs.get(0).rows()) {
            Long begin = (Long) row.get(0), end = (Long) row.get(1);
            boolean first = begin != null && end != null && now >= begin && now < end;
            boolean second = Boolean.TRUE.equals(row.get(2)) && begin != null && now >= begin + 5;
            if (first || two && second) result.add(row, 1);
          }
          return result;
        },
        Set.of(1));
  }
}
