package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.Tuple;
import org.apache.spark.TaskContext$;

/** Trees of pages, with so little memory that pages are stored and read back, against a TreeMap. */
class TreeProperties {
  private static final Key KEY = new Key(new byte[] {7});

  private enum Kind {
    ADD,
    REMOVE,
    MAKE_ROOM,
    PAUSE,
    RESTART,
    CLEAR,
    FORWARD,
    BACKWARD
  }

  /** A step: rows from a number on, of so many bytes each. */
  private record Step(Kind kind, int from, int count, int bytes) {}

  private record Weight(long weight, long note) {}

  @Provide
  Arbitrary<List<Step>> steps() {
    Arbitrary<Kind> kinds =
        Arbitraries.frequency(
            Tuple.of(12, Kind.ADD),
            Tuple.of(8, Kind.REMOVE),
            Tuple.of(4, Kind.MAKE_ROOM),
            Tuple.of(2, Kind.PAUSE),
            Tuple.of(2, Kind.RESTART),
            Tuple.of(1, Kind.CLEAR),
            Tuple.of(4, Kind.FORWARD),
            Tuple.of(4, Kind.BACKWARD));
    return Combinators.combine(
            kinds,
            Arbitraries.integers().between(0, 500),
            Arbitraries.integers().between(1, 90),
            Arbitraries.of(4, 4, 40, 2000))
        .as(Step::new)
        .list()
        .ofMaxSize(40);
  }

  @Property
  void isAnOrderedMap(@ForAll("steps") List<Step> steps, @ForAll boolean descending) {
    System.setProperty("millstream.dataflow.memory", "3000");
    TaskContext$.MODULE$.setTaskContext(TaskContext$.MODULE$.empty());
    Store store = new Store();
    State state = begun(store);
    NavigableMap<byte[], Weight> model = new TreeMap<>(Arrays::compareUnsigned);
    if (descending) model = new TreeMap<byte[], Weight>(TreeProperties::reversed);
    Tree tree = tree(state, descending);
    for (Step step : steps) {
      switch (step.kind) {
        case ADD, REMOVE -> {
          for (int i = 0; i < step.count; i++) {
            byte[] row = row((step.from + i * 7) % 500, step.bytes);
            Weight known = model.get(row);
            if (step.kind == Kind.REMOVE) {
              if (known == null) continue;
              assertEquals(known.weight, tree.add(KEY, row, -known.weight));
              model.remove(row);
            } else {
              long before = known == null ? 0 : known.weight, note = step.from + i;
              assertEquals(before, tree.add(KEY, row, 2, note));
              model.put(row, new Weight(before + 2, note));
            }
          }
        }
        case MAKE_ROOM -> state.makeRoom();
        case PAUSE -> state.atPause();
        case RESTART -> {
          state.atEnd();
          assertEquals(model.size(), State.sizeOf("tree")[0]);
          state.close();
          state = begun(store);
          tree = tree(state, descending);
        }
        case CLEAR -> {
          if (step.from < 400) continue;
          tree.clear(KEY);
          model.clear();
        }
        case FORWARD -> {
          byte[] from = row(step.from, step.bytes);
          check(tree.from(KEY, from), true, model.tailMap(from, true));
          check(tree.first(KEY), true, model);
        }
        case BACKWARD -> {
          byte[] from = row(step.from, step.bytes);
          check(tree.before(KEY, from), false, model.headMap(from, false).descendingMap());
          check(tree.last(KEY), false, model.descendingMap());
        }
      }
    }
    check(tree.first(KEY), true, model);
    tree.clear(KEY);
    state.atEnd();
    assertEquals(1, store.size(), "only the totals are left");
    state.close();
    TaskContext$.MODULE$.unset();
  }

  private static State begun(Store store) {
    State state = new State("tree", store);
    state.begin();
    return state;
  }

  private static Tree tree(State state, boolean descending) {
    return new Tree(state, 3, descending ? TreeProperties::reversed : null);
  }

  private static int reversed(Object one, Object other) {
    return Arrays.compareUnsigned((byte[]) other, (byte[]) one);
  }

  private static byte[] row(int number, int bytes) {
    return ByteBuffer.allocate(bytes).putInt(number * 0x01000193).array();
  }

  private static void check(Tree.Rows rows, boolean forward, Map<byte[], Weight> expected) {
    for (Map.Entry<byte[], Weight> each : expected.entrySet()) {
      assertTrue(forward ? rows.next() : rows.previous());
      assertArrayEquals(each.getKey(), rows.row());
      assertEquals(each.getValue(), new Weight(rows.weight(), rows.note()));
    }
    assertFalse(forward ? rows.next() : rows.previous());
  }
}
