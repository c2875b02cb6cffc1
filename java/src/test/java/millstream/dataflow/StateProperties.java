package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.Tuple;
import org.apache.spark.TaskContext$;

/** The state, with little memory and with none to speak of, against a map. */
class StateProperties {
  private enum Kind {
    SET,
    GET,
    MAKE_ROOM,
    SETTLE,
    PAUSE,
    RESTART
  }

  private record Place(int key, int slot, int page) {}

  private record Step(Kind kind, Place place, long value) {}

  @Provide
  Arbitrary<List<Step>> steps() {
    Arbitrary<Kind> kinds =
        Arbitraries.frequency(
            Tuple.of(10, Kind.SET),
            Tuple.of(6, Kind.GET),
            Tuple.of(3, Kind.MAKE_ROOM),
            Tuple.of(2, Kind.SETTLE),
            Tuple.of(2, Kind.PAUSE),
            Tuple.of(1, Kind.RESTART));
    Arbitrary<Place> places =
        Combinators.combine(Rows.ints(20), Rows.ints(2), Rows.ints(1)).as(Place::new);
    return Combinators.combine(kinds, places, Rows.longs(3)).as(Step::new).list().ofMaxSize(150);
  }

  @Property
  void isAMap(@ForAll("steps") List<Step> steps, @ForAll("memories") long memory) {
    System.setProperty("millstream.dataflow.memory", Long.toString(memory));
    TaskContext$.MODULE$.setTaskContext(TaskContext$.MODULE$.empty());
    Store store = new Store();
    State state = begun(store);
    Map<Place, Long> model = new HashMap<>();
    for (Step step : steps) {
      switch (step.kind) {
        case SET -> {
          Cell cell = cell(state, step.place);
          cell.value = step.value;
          state.changed(cell, 0);
          model.put(step.place, step.value);
        }
        case GET -> assertEquals(model.getOrDefault(step.place, 0L), cell(state, step.place).value);
        case MAKE_ROOM -> state.makeRoom();
        case SETTLE -> state.settle();
        case PAUSE -> state.atPause();
        case RESTART -> {
          state.atEnd();
          state.close();
          state = begun(store);
        }
      }
    }
    for (Map.Entry<Place, Long> each : model.entrySet()) {
      assertEquals(each.getValue(), cell(state, each.getKey()).value);
    }
    state.atEnd();
    long stored = model.values().stream().filter(value -> value != 0).count();
    assertEquals(stored + 1, store.size(), "cells that are not empty, and the totals");
    state.close();
    TaskContext$.MODULE$.unset();
  }

  @Provide
  Arbitrary<Long> memories() {
    return Arbitraries.of(0L, 500L, 100_000L);
  }

  private static State begun(Store store) {
    State state = new State("cells", store);
    state.begin();
    return state;
  }

  private static Cell cell(State state, Place at) {
    Key key = new Key(new byte[] {(byte) at.key});
    return (Cell) state.get(key, at.slot, at.page, Cell::read);
  }

  /** A node of the state that is one number; 0 is nothing. */
  private static final class Cell extends StateNode {
    long value;

    static StateNode read(Bytes in) {
      Cell cell = new Cell();
      if (in != null) cell.value = in.getLong();
      return cell;
    }

    @Override
    boolean isEmpty() {
      return value == 0;
    }

    @Override
    void write(Bytes out) {
      out.putLong(value);
    }

    @Override
    int size() {
      return 50;
    }
  }
}
