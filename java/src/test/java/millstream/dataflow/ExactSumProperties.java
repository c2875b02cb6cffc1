package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.EdgeCasesMode;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;

/** Sums of doubles against BigDecimal. */
class ExactSumProperties {
  private record Term(double value, long weight) {}

  @Provide
  Arbitrary<List<Term>> finite() {
    Arbitrary<Double> all =
        Arbitraries.longs()
            .map(Double::longBitsToDouble)
            .filter(Double::isFinite)
            .edgeCases(edges -> edges.add(0.0, -0.0, Double.MIN_VALUE, Double.MAX_VALUE));
    // Sums of these lie halfway between two doubles, or just beside that.
    Arbitrary<Double> halves =
        Arbitraries.of(0, -53, -54, -106, -1, 10).map(power -> Math.scalb(1.0, power));
    return Arbitraries.oneOf(terms(all), terms(halves));
  }

  @Provide
  Arbitrary<List<Term>> any() {
    return terms(
        Arbitraries.of(
            1.5, -2.0, 0.0, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY));
  }

  private static Arbitrary<List<Term>> terms(Arbitrary<Double> values) {
    return Combinators.combine(values, Arbitraries.longs().between(1, 5))
        .as(Term::new)
        .list()
        .ofMinSize(1)
        .ofMaxSize(20);
  }

  /** Rounded once, and equal to the exact sum of what is left when some terms are taken back. */
  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void isExact(
      @ForAll("finite") List<Term> terms, @ForAll("finite") List<Term> others, @ForAll long seed) {
    ExactSum sum = new ExactSum();
    List<Term> all = new ArrayList<>(terms);
    all.addAll(others);
    for (Term each : others) all.add(new Term(each.value, -each.weight));
    Collections.shuffle(all, new Random(seed));
    for (Term each : all) {
      sum.add(each.value, each.weight);
      sum = stored(sum);
    }
    BigDecimal exact = BigDecimal.ZERO;
    for (Term each : terms) {
      exact = exact.add(new BigDecimal(each.value).multiply(BigDecimal.valueOf(each.weight)));
    }
    assertEquals(exact.doubleValue(), sum.value());
  }

  /** Infinities and NaN come and go, too. */
  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void specialValues(@ForAll("any") List<Term> terms, @ForAll("any") List<Term> others) {
    ExactSum sum = new ExactSum();
    for (Term each : others) sum.add(each.value, each.weight);
    for (Term each : terms) sum.add(each.value, each.weight);
    for (Term each : others) sum.add(each.value, -each.weight);
    double expected = 0.0;
    for (Term each : terms) expected += each.value * each.weight;
    assertEquals(expected, stored(sum).value());
    for (Term each : terms) sum.add(each.value, -each.weight);
    assertNull(sum.value());
  }

  private static ExactSum stored(ExactSum sum) {
    Bytes out = new Bytes(8);
    sum.write(out);
    return ExactSum.read(new Bytes(out.copy(), 0));
  }
}
