package millstream.dataflow;

import static millstream.dataflow.Columns.list;

import java.util.ArrayList;
import java.util.List;
import java.util.function.BiPredicate;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LessThan;

/** Joins of all kinds against nested loops over the current rows. */
class JoinProperties {
  private static final int LEFT = 1, RIGHT = 2;

  @Provide
  Arbitrary<Script> scripts() {
    Arbitrary<Integer> keys = Arbitraries.integers().between(0, 3).injectNull(0.1);
    Arbitrary<Integer> values = Arbitraries.integers().between(0, 4).injectNull(0.1);
    Arbitrary<List<Object>> rows =
        Combinators.combine(keys, values).as((key, value) -> list(key, value));
    return Script.over(rows, rows);
  }

  @Provide
  Arbitrary<String> kinds() {
    return Arbitraries.of(
        "Inner",
        "LeftOuter",
        "RightOuter",
        "FullOuter",
        "LeftSemi",
        "LeftAnti",
        "ExistenceJoin(e)");
  }

  @Property
  void equalKeys(@ForAll("scripts") Script script, @ForAll("kinds") String kind) {
    script.check(() -> plan(kind, false), inputs -> model(kind, inputs, (one, other) -> true));
  }

  @Property
  void conditionsBesidesTheKey(@ForAll("scripts") Script script, @ForAll("kinds") String kind) {
    script.check(() -> plan(kind, true), inputs -> model(kind, inputs, JoinProperties::less));
  }

  private static boolean less(List<Object> left, List<Object> right) {
    return left.get(1) != null && right.get(1) != null && (int) left.get(1) < (int) right.get(1);
  }

  private static Host.Plan plan(String kind, boolean less) {
    Columns left = Columns.of("a int, b int"), right = Columns.of("c int, d int");
    boolean keepsLeft =
        !kind.equals("Inner") && !kind.equals("RightOuter") && !kind.equals("LeftSemi");
    boolean keepsRight = kind.equals("RightOuter") || kind.equals("FullOuter");
    Columns output =
        switch (kind) {
          case "LeftSemi", "LeftAnti" -> left;
          case "ExistenceJoin(e)" -> left.and(Columns.of("e boolean"));
          default -> left.and(right);
        };
    Expression condition = less ? new LessThan(left.get(1), right.get(1)) : null;
    Join join =
        new Join(
            LEFT,
            RIGHT,
            2,
            2,
            kind,
            condition,
            left.and(right).seq(),
            null,
            null,
            null,
            null,
            Host.out(output));
    return Host.Plan.of(
        List.of(
            Host.pipe(LEFT, left, keepsLeft ? Pipe.NULLS_APART : Pipe.NULLS_DROP, 0),
            Host.pipe(RIGHT, right, keepsRight ? Pipe.NULLS_APART_RIGHT : Pipe.NULLS_DROP, 0)),
        join,
        output);
  }

  static Bag model(
      String kind, List<Bag> inputs, BiPredicate<List<Object>, List<Object>> condition) {
    Bag result = new Bag();
    BiPredicate<List<Object>, List<Object>> matches =
        (left, right) ->
            left.get(0) != null && left.get(0).equals(right.get(0)) && condition.test(left, right);
    List<List<Object>> rights = inputs.get(1).rows();
    boolean pairs = !kind.equals("LeftSemi") && !kind.equals("LeftAnti") && !kind.startsWith("Ex");
    for (List<Object> left : inputs.get(0).rows()) {
      List<List<Object>> found = rights.stream().filter(each -> matches.test(left, each)).toList();
      if (pairs) found.forEach(right -> result.add(joined(left, right), 1));
      switch (kind) {
        case "LeftSemi" -> {
          if (!found.isEmpty()) result.add(left, 1);
        }
        case "LeftAnti" -> {
          if (found.isEmpty()) result.add(left, 1);
        }
        case "ExistenceJoin(e)" -> result.add(joined(left, list(!found.isEmpty())), 1);
        case "LeftOuter", "FullOuter" -> {
          if (found.isEmpty()) result.add(joined(left, nulls(left)), 1);
        }
        default -> {}
      }
    }
    if (kind.equals("RightOuter") || kind.equals("FullOuter")) {
      for (List<Object> right : rights) {
        boolean any = inputs.get(0).rows().stream().anyMatch(left -> matches.test(left, right));
        if (!any) result.add(joined(nulls(right), right), 1);
      }
    }
    return result;
  }

  /** As many NULLs as a row has columns: both sides have the same number. */
  private static List<Object> nulls(List<Object> row) {
    return java.util.Collections.nCopies(row.size(), null);
  }

  private static List<Object> joined(List<Object> left, List<Object> right) {
    List<Object> both = new ArrayList<>(left);
    both.addAll(right);
    return both;
  }
}
