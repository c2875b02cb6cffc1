package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;

/** EMIT against the rows whose end has passed, and against those of the last tick. */
class EmitProperties {
  private static final int ROWS = 1;

  @Provide
  Arbitrary<Script> scripts() {
    return Script.over(Rows.of(Rows.longs(20).injectNull(0.1), Rows.ints(3)));
  }

  @Property
  void rowsWhoseEndHasPassed(@ForAll("scripts") Script script) {
    check(script, 0);
  }

  @Property
  void rowsOfTheLastTick(@ForAll("scripts") Script script) {
    check(script, 7);
  }

  /** Each commit passes a moment that is two later; rows wait for their end and one more. */
  private static void check(Script script, long every) {
    Columns columns = Columns.of("e bigint, v int");
    Emit emit = new Emit(ROWS, 0, 1, every, columns.pick(1), columns.seq(), Host.out(columns));
    List<Pipe> inputs = List.of(Host.pipe(ROWS, columns, Pipe.NULLS_MATCH));
    Bag input = new Bag(), wanted = new Bag();
    try (Host host = new Host(Host.Plan.of(inputs, emit, columns), script.memory())) {
      long moment = 0, tick = Long.MIN_VALUE;
      for (Script.Commit commit : script.commits()) {
        for (Script.Change each : commit.changes()) {
          Script.apply(each, each.goes(), List.of(input), host);
        }
        moment += 2;
        host.commitAt(moment);
        if (every == 0 || moment / every > tick) wanted = new Bag();
        if (every == 0) {
          for (List<Object> row : input.rows()) {
            if (row.get(0) != null && (long) row.get(0) <= moment - 1) wanted.add(row, 1);
          }
        } else if (moment / every > tick) {
          tick = moment / every;
          for (List<Object> row : input.rows()) wanted.add(row, 1);
        }
        assertEquals(wanted, host.results());
        if (commit.restarts()) host.restart();
      }
    }
  }
}
