package millstream.dataflow;

import static millstream.dataflow.Columns.list;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Function;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.Tuple;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.BitXorAgg;
import org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.MaxBy;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** GROUP BY with each aggregate against computing it from the current rows of each group. */
class GroupProperties {
  /** The columns of the input: a key, one value of each type, and the condition of FILTER. */
  private static final int KEY = 0, LONG = 1, DOUBLE = 2, TEXT = 3, DECIMAL = 4, FILTER = 5;

  /** An aggregate as the operator has it, Spark's expressions for its result, and a naive one. */
  private record Case(
      int[] inputs,
      Aggregate aggregate,
      Expression result,
      List<Attribute> buffers,
      Function<List<List<Object>>, Object> model) {}

  private static Columns columns() {
    return Columns.of("k int, i bigint, x double, t string, n decimal(25,2), f boolean");
  }

  private static Arbitrary<List<Object>> rows() {
    Arbitrary<Double> doubles =
        Arbitraries.frequencyOf(
            Tuple.of(5, Arbitraries.doubles().between(-4, 4).ofScale(1)),
            Tuple.of(1, Arbitraries.of(1e300, -1e300, 1e-300, 0.0, Double.POSITIVE_INFINITY)));
    Arbitrary<Decimal> decimals =
        Arbitraries.longs()
            .between(-500, 500)
            .map(cents -> Decimal.apply(BigDecimal.valueOf(cents, 2), 25, 2));
    return Rows.of(
        Rows.ints(2).injectNull(0.1),
        Arbitraries.longs().between(-3, 3).injectNull(0.2),
        doubles.injectNull(0.2),
        Rows.texts().injectNull(0.2),
        decimals.injectNull(0.2),
        Arbitraries.of(true, false).injectNull(0.1));
  }

  @Provide
  Arbitrary<Script> scripts() {
    return Script.over(rows());
  }

  @Provide
  Arbitrary<String> aggregates() {
    return Arbitraries.of(
        "count",
        "sum long",
        "sum double",
        "sum decimal",
        "avg long",
        "min",
        "max",
        "max_by",
        "bit_xor");
  }

  @Property
  void groups(
      @ForAll("scripts") Script script,
      @ForAll("aggregates") String one,
      @ForAll("aggregates") String other,
      @ForAll boolean filtered,
      @ForAll boolean distinct) {
    Columns columns = columns();
    script.check(
        () -> plan(columns, made(columns, one, other, filtered, distinct, false), true),
        inputs -> {
          Map<Integer, List<List<Object>>> groups = new TreeMap<>(Rows.byValue());
          for (List<Object> row : inputs.get(0).rows()) {
            groups.computeIfAbsent((Integer) row.get(KEY), key -> new ArrayList<>()).add(row);
          }
          Bag result = new Bag();
          List<Case> cases = made(columns, one, other, filtered, distinct, false);
          groups.forEach((key, rows) -> result.add(result(list(key), cases, rows), 1));
          return result;
        });
  }

  /** A global aggregate has a row even when no row has come. */
  @Property
  void global(@ForAll("scripts") Script script, @ForAll("aggregates") String aggregate) {
    Columns columns = columns();
    List<Case> cases = made(columns, aggregate, "count", false, false, false);
    script.checkGlobal(
        () -> plan(columns, cases, false),
        inputs -> {
          Bag result = new Bag();
          result.add(result(list(), cases, inputs.get(0).rows()), 1);
          return result;
        });
  }

  /** Of input that only grows, MIN and MAX keep one value. */
  @Property
  void growing(@ForAll("scripts") Script script) {
    Columns columns = columns();
    List<Case> cases = made(columns, "max", "max_by", false, false, true);
    script.check(
        () -> plan(columns, cases, true),
        inputs -> {
          Map<Integer, List<List<Object>>> groups = new TreeMap<>(Rows.byValue());
          for (List<Object> row : inputs.get(0).rows()) {
            groups.computeIfAbsent((Integer) row.get(KEY), key -> new ArrayList<>()).add(row);
          }
          Bag result = new Bag();
          groups.forEach((key, rows) -> result.add(result(list(key), cases, rows), 1));
          return result;
        },
        Set.of(0));
  }

  private static List<Object> result(List<Object> key, List<Case> cases, List<List<Object>> rows) {
    List<Object> made = new ArrayList<>(key);
    for (Case each : cases) made.add(each.model.apply(rows));
    return made;
  }

  private static Host.Plan plan(Columns columns, List<Case> cases, boolean byKey) {
    List<Expression> inputs = new ArrayList<>(), results = new ArrayList<>();
    List<Attribute> buffers = new ArrayList<>();
    for (Case each : cases) {
      for (int input : each.inputs) inputs.add(columns.get(input));
      results.add(each.result);
      buffers.addAll(each.buffers);
    }
    List<Attribute> output = new ArrayList<>();
    if (byKey) output.add(columns.get(KEY));
    for (Expression each : results) {
      Attribute column = Columns.of("r int").get(0);
      output.add(Columns.typed(column, each.dataType()));
    }
    Group group =
        new Group(
            1,
            byKey ? 1 : 0,
            new ArrayList<>(cases.stream().map(Case::aggregate).toList()),
            Columns.seq(results),
            Columns.seq(buffers),
            null,
            false,
            Host.out(new Columns(output)));
    int[] keys = byKey ? new int[] {KEY} : new int[0];
    Pipe pipe =
        new Pipe(
            1, List.of(), columns.pick(keys), Columns.seq(inputs), columns.seq(), Pipe.NULLS_MATCH);
    return Host.Plan.of(List.of(pipe), group, new Columns(output));
  }

  private static List<Case> made(
      Columns columns,
      String one,
      String other,
      boolean filtered,
      boolean distinct,
      boolean grows) {
    Case first = made(columns, one, 0, filtered, distinct, grows);
    return List.of(first, made(columns, other, first.inputs.length, filtered, distinct, grows));
  }

  private static Case made(
      Columns columns, String name, int at, boolean filtered, boolean distinct, boolean grows) {
    int[] own =
        switch (name) {
          case "sum double" -> new int[] {DOUBLE};
          case "sum decimal" -> new int[] {DECIMAL};
          case "min", "max" -> new int[] {TEXT};
          case "max_by" -> new int[] {TEXT, LONG};
          default -> new int[] {LONG};
        };
    List<DataType> types = new ArrayList<>();
    for (int each : own) types.add(columns.get(each).dataType());
    Expression value = columns.get(own[0]);
    DeclarativeAggregate body =
        switch (name) {
          case "count" ->
              new org.apache.spark.sql.catalyst.expressions.aggregate.Count(columns.pick(own));
          case "avg long" -> new Average(value);
          case "min" -> new Min(value);
          case "max" -> new Max(value);
          case "max_by" -> new MaxBy(value, columns.get(LONG));
          case "bit_xor" -> new BitXorAgg(value);
          default -> new org.apache.spark.sql.catalyst.expressions.aggregate.Sum(value);
        };
    List<Attribute> buffers = Columns.list(body.aggBufferAttributes());
    Expression result = body.evaluateExpression();
    boolean once = distinct && !name.equals("min") && !name.equals("max") && !name.equals("max_by");
    Aggregate aggregate;
    switch (name) {
      case "count" -> aggregate = new Count(at, types, filtered, once);
      case "min", "max", "max_by" ->
          aggregate = new Extreme(at, types, filtered, !name.equals("min"), grows);
      case "bit_xor" -> {
        aggregate =
            new Replay(
                at,
                types,
                filtered,
                once,
                body,
                Columns.seq(List.of(columns.get(own[0]))),
                value.dataType());
        AggregateExpression whole = (AggregateExpression) Windowed.aggregate(body);
        buffers = List.of(whole.resultAttribute());
        result = whole.resultAttribute();
      }
      default ->
          aggregate =
              new Sum(
                  at,
                  types,
                  filtered,
                  once,
                  buffers.get(0).dataType(),
                  buffers.size(),
                  name.equals("avg long"));
    }
    int[] inputs = filtered ? java.util.Arrays.copyOf(own, own.length + 1) : own;
    if (filtered) inputs[own.length] = FILTER;
    return new Case(
        inputs, aggregate, result, buffers, rows -> model(name, own, filtered, once, rows));
  }

  // ---- by definition

  private static Object model(
      String name, int[] inputs, boolean filtered, boolean distinct, List<List<Object>> rows) {
    if (filtered) {
      rows = rows.stream().filter(row -> Boolean.TRUE.equals(row.get(FILTER))).toList();
    }
    if (name.equals("max_by")) return maxBy(rows);
    List<Object> values =
        rows.stream().map(row -> row.get(inputs[0])).filter(Objects::nonNull).toList();
    if (distinct) values = values.stream().distinct().toList();
    if (name.equals("count")) return (long) values.size();
    if (values.isEmpty()) return null;
    return switch (name) {
      case "min" ->
          values.stream().map(each -> (UTF8String) each).min(Comparator.naturalOrder()).get();
      case "max" ->
          values.stream().map(each -> (UTF8String) each).max(Comparator.naturalOrder()).get();
      case "sum double" -> sumOfDoubles(values);
      case "sum decimal" ->
          Decimal.apply(
              values.stream()
                  .map(each -> ((Decimal) each).toJavaBigDecimal())
                  .reduce(BigDecimal.ZERO.setScale(2), BigDecimal::add),
              35,
              2);
      case "bit_xor" -> values.stream().mapToLong(each -> (long) each).reduce(0, (a, b) -> a ^ b);
      case "avg long" -> (double) sum(values) / values.size();
      default -> sum(values);
    };
  }

  private static long sum(List<Object> values) {
    return values.stream().mapToLong(each -> (long) each).sum();
  }

  private static Object sumOfDoubles(List<Object> values) {
    if (values.contains(Double.POSITIVE_INFINITY)) return Double.POSITIVE_INFINITY;
    BigDecimal sum = BigDecimal.ZERO;
    for (Object each : values) sum = sum.add(new BigDecimal((double) each));
    return sum.doubleValue();
  }

  /** The text beside the greatest number; of several, the greatest text. */
  private static Object maxBy(List<List<Object>> rows) {
    Comparator<List<Object>> order = Comparator.comparing(row -> (Long) row.get(LONG));
    return rows.stream()
        .filter(row -> row.get(LONG) != null)
        .max(order.thenComparing(row -> (UTF8String) row.get(TEXT), Rows.byValue()))
        .map(row -> row.get(TEXT))
        .orElse(null);
  }
}
