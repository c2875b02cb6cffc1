package millstream.dataflow;

import java.util.List;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.constraints.IntRange;

/** ORDER BY ... LIMIT ... OFFSET against sorting the current rows. */
class TopProperties {
  @Provide
  Arbitrary<Script> scripts() {
    return Script.over(Rows.of(Rows.ints(6).injectNull(0.1), Rows.texts()));
  }

  @Property
  void first(
      @ForAll("scripts") Script script,
      @ForAll @IntRange(max = 8) int limit,
      @ForAll @IntRange(max = 4) int offset) {
    Columns columns = Columns.of("o int, t string");
    script.check(
        () ->
            Host.Plan.of(
                List.of(Host.pipe(1, columns, Pipe.NULLS_MATCH)),
                new Top(
                    1,
                    2,
                    limit,
                    offset,
                    Columns.seq(List.of(Windowed.ascending(columns.get(0)))),
                    columns.seq(),
                    Host.out(columns)),
                columns),
        inputs -> {
          Bag result = new Bag();
          inputs.get(0).rows().stream()
              .sorted(Rows.order(columns, 0))
              .skip(offset)
              .limit(limit)
              .forEach(row -> result.add(row, 1));
          return result;
        });
  }
}
