package millstream.dataflow;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;

/** Sessions against going over the current rows in order of time. */
class SessionsProperties {
  private static final long GAP = 5;

  @Provide
  Arbitrary<Script> scripts() {
    return Script.over(Rows.of(Rows.ints(1), Rows.longs(60), Rows.ints(1)));
  }

  @Property
  void sessions(@ForAll("scripts") Script script) {
    Columns columns = Columns.of("k int, t bigint, v int");
    Columns output = columns.and(Columns.of("s bigint"));
    script.check(
        () ->
            Host.Plan.of(
                List.of(Host.pipe(1, columns, Pipe.NULLS_MATCH, 0)),
                new Sessions(
                    1,
                    3,
                    1,
                    GAP,
                    Columns.seq(List.of(Windowed.ascending(columns.get(1)))),
                    columns.seq(),
                    null,
                    Host.out(output)),
                output),
        inputs -> model(inputs.get(0), GAP));
  }

  static Bag model(Bag input, long gap) {
    Map<Object, List<List<Object>>> keys = new HashMap<>();
    for (List<Object> row : input.rows()) {
      keys.computeIfAbsent(row.get(0), key -> new ArrayList<>()).add(row);
    }
    Bag result = new Bag();
    for (List<List<Object>> rows : keys.values()) {
      rows.sort(Comparator.comparing(row -> (Long) row.get(1)));
      long session = Long.MIN_VALUE, last = Long.MIN_VALUE / 2;
      for (List<Object> row : rows) {
        long time = (long) row.get(1);
        if (time - last > gap) session = time;
        last = time;
        List<Object> made = new ArrayList<>(row);
        made.add(session);
        result.add(made, 1);
      }
    }
    return result;
  }
}
