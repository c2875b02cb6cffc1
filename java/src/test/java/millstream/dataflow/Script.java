package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Supplier;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.Tuple;

/** What happens to the inputs of an operator: commits of rows that come and go, and restarts. */
record Script(List<Commit> commits, long memory) {
  /** Changes that become visible together; then, perhaps, the task ends and another begins. */
  record Commit(List<Change> changes, boolean restarts) {}

  /**
   * A row that comes, or, of the rows that are there, one that goes.
   *
   * @param pick which of them it is.
   */
  record Change(int input, boolean goes, int pick, List<Object> row, long weight) {}

  /** Scripts over inputs whose rows are drawn from what is given for each. */
  @SafeVarargs
  static Arbitrary<Script> over(Arbitrary<List<Object>>... rows) {
    return over(0, 12, rows);
  }

  /** As above, with commits of so many changes. */
  @SafeVarargs
  static Arbitrary<Script> over(int least, int most, Arbitrary<List<Object>>... rows) {
    Arbitrary<Change> change =
        Arbitraries.integers()
            .between(0, rows.length - 1)
            .flatMap(
                input ->
                    Combinators.combine(
                            Arbitraries.frequencyOf(
                                Tuple.of(3, Arbitraries.just(false)),
                                Tuple.of(2, Arbitraries.just(true))),
                            Arbitraries.integers().between(0, 1000),
                            rows[input],
                            Arbitraries.frequency(Tuple.of(4, 1L), Tuple.of(1, 3L)))
                        .as(
                            (goes, pick, row, weight) ->
                                new Change(input, goes, pick, row, weight)));
    Arbitrary<Commit> commit =
        Combinators.combine(
                change.list().ofMinSize(least).ofMaxSize(most),
                Arbitraries.integers().between(0, 5))
            .as((changes, dice) -> new Commit(changes, dice == 5));
    return Combinators.combine(commit.list().ofMaxSize(8), Arbitraries.of(500L, 5_000L, 1L << 30))
        .as(Script::new);
  }

  /**
   * Run the script, and compare what has come out after each commit with what a model says of the
   * current rows of the inputs. In the end all rows go, and no state may be left.
   */
  void check(Supplier<Host.Plan> plan, Function<List<Bag>, Bag> model) {
    check(plan, model, Set.of());
  }

  /**
   * As above, with inputs of which no row ever goes.
   *
   * @param appendOnly which inputs these are.
   */
  void check(Supplier<Host.Plan> plan, Function<List<Bag>, Bag> model, Set<Integer> appendOnly) {
    check(plan, model, appendOnly, false);
  }

  /** As above, of an aggregate without keys, whose row is there from the beginning. */
  void checkGlobal(Supplier<Host.Plan> plan, Function<List<Bag>, Bag> model) {
    check(plan, model, Set.of(), true);
  }

  private void check(
      Supplier<Host.Plan> plan,
      Function<List<Bag>, Bag> model,
      Set<Integer> appendOnly,
      boolean isGlobal) {
    Host.Plan made = plan.get();
    List<Bag> inputs = new ArrayList<>();
    for (int i = 0; i < made.inputs().size(); i++) inputs.add(new Bag());
    try (Host host = new Host(made, memory)) {
      if (isGlobal) host.begin();
      for (Commit commit : commits) {
        for (Change each : commit.changes) {
          boolean goes = each.goes && !appendOnly.contains(each.input);
          apply(each, goes, inputs, host);
        }
        host.commit();
        assertEquals(model.apply(inputs), host.results());
        if (commit.restarts) host.restart();
      }
      for (int i = 0; i < inputs.size(); i++) {
        if (appendOnly.contains(i)) continue;
        for (var entry : List.copyOf(inputs.get(i).weights().entrySet())) {
          host.send(i, entry.getKey(), -entry.getValue());
          inputs.get(i).add(entry.getKey(), -entry.getValue());
        }
      }
      host.commit();
      assertEquals(model.apply(inputs), host.results());
      if (!appendOnly.isEmpty()) return;
      assertEquals(isGlobal ? 1 : 0, host.rows());
      // Besides the row of a global aggregate, all that is stored is how large the state is.
      assertEquals(isGlobal ? 2 : 1, host.store.size());
    }
  }

  static void apply(Change change, boolean goes, List<Bag> inputs, Host host) {
    Bag input = inputs.get(change.input);
    List<Object> row = change.row;
    long weight = change.weight;
    if (goes) {
      if (input.isEmpty()) return;
      List<List<Object>> there = new ArrayList<>(input.weights().keySet());
      row = there.get(change.pick % there.size());
      weight = -Math.min(weight, input.weight(row));
    }
    input.add(row, weight);
    host.send(change.input, row, weight);
  }
}
