package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;

/** FOR SYSTEM_TIME AS OF against looking up each row in the table as it is when the row comes. */
class TemporalProperties {
  private static final int LEFT = 1, RIGHT = 2;

  @Provide
  Arbitrary<Script> scripts() {
    Arbitrary<List<Object>> rows = Rows.of(Rows.ints(2).injectNull(0.1), Rows.ints(3));
    return Script.over(rows, rows);
  }

  @Property
  void lookups(@ForAll("scripts") Script script, @ForAll boolean outer) {
    Columns left = Columns.of("a int, b int"), right = Columns.of("c int, d int");
    Columns output = left.and(right);
    Host.Plan plan =
        Host.Plan.of(
            List.of(
                Host.pipe(LEFT, left, outer ? Pipe.NULLS_APART : Pipe.NULLS_DROP, 0),
                Host.pipe(RIGHT, right, Pipe.NULLS_DROP, 0)),
            new Temporal(LEFT, RIGHT, 2, 2, outer, Host.out(output)),
            output);
    Bag table = new Bag(), expected = new Bag();
    try (Host host = new Host(plan, script.memory())) {
      for (Script.Commit commit : script.commits()) {
        for (Script.Change each : commit.changes()) {
          if (each.input() == 0) {
            host.send(0, each.row(), each.weight());
            lookUp(each, table, outer, expected);
            continue;
          }
          // A table has a key: a row comes once, and goes before another one comes.
          boolean there = table.weight(each.row()) > 0;
          if (there != each.goes()) continue;
          table.add(each.row(), there ? -1 : 1);
          host.send(1, each.row(), there ? -1 : 1);
        }
        host.commit();
        assertEquals(expected, host.results());
        if (commit.restarts()) host.restart();
      }
    }
  }

  private static void lookUp(Script.Change change, Bag table, boolean outer, Bag expected) {
    List<Object> row = change.row();
    boolean any = false;
    for (List<Object> match : table.rows()) {
      if (row.get(0) == null || !row.get(0).equals(match.get(0))) continue;
      any = true;
      expected.add(joined(row, match), change.weight());
    }
    List<Object> none = Columns.list(null, null);
    if (!any && outer) expected.add(joined(row, none), change.weight());
  }

  private static List<Object> joined(List<Object> row, List<Object> match) {
    List<Object> both = new ArrayList<>(row);
    both.addAll(match);
    return both;
  }
}
