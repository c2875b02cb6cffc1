package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Arrays;
import java.util.List;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.EdgeCasesMode;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;

/** Bounds of a range: just the rows between them lie between them in bytes. */
class RangeProperties {
  @Provide
  Arbitrary<Long> shifts() {
    return Arbitraries.of(0L, -5L, 1000L, Long.MAX_VALUE, Long.MIN_VALUE);
  }

  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void longs(
      @ForAll Long value, @ForAll Long low, @ForAll Long high, @ForAll("shifts") long shift) {
    boolean expected = value >= sum(low, shift) && value <= high;
    assertEquals(expected, isBetween("bigint", value, low, high, shift));
  }

  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void ints(@ForAll Integer value, @ForAll Integer low, @ForAll Integer high) {
    boolean expected = value >= low && value <= high;
    assertEquals(expected, isBetween("int", value, low, high, 0));
  }

  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void shorts(@ForAll Short value, @ForAll Short low, @ForAll Short high) {
    assertEquals(value >= low && value <= high, isBetween("smallint", value, low, high, 0));
  }

  /** NaN is greater than all others, and 0.0 equals -0.0, as in SQL. */
  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void doubles(
      @ForAll("doubles") Double value,
      @ForAll("doubles") Double low,
      @ForAll("doubles") Double high) {
    boolean expected = compare(value, low) >= 0 && compare(value, high) <= 0;
    assertEquals(expected, isBetween("double", value, low, high, 0));
  }

  @Provide
  Arbitrary<Double> doubles() {
    return Arbitraries.oneOf(
        Arbitraries.doubles(),
        Arbitraries.of(0.0, -0.0, Double.NaN, Double.NEGATIVE_INFINITY, Double.MIN_VALUE));
  }

  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void nullMatchesNothing(@ForAll Long value) {
    assertEquals(false, isBetween("bigint", value, null, value, 0));
  }

  private static int compare(double one, double other) {
    return one == other ? 0 : Double.compare(one, other);
  }

  private static long sum(long one, long other) {
    try {
      return Math.addExact(one, other);
    } catch (ArithmeticException e) {
      return other < 0 ? Long.MIN_VALUE : Long.MAX_VALUE;
    }
  }

  /** Whether a row is found that has a value, by its key: low + shift <= value <= high. */
  private static boolean isBetween(String type, Object value, Object low, Object high, long shift) {
    Columns side = Columns.of("v " + type), other = Columns.of("l " + type + ", h " + type);
    Range range = new Range(side.pick(0), side.seq(), other.pick(0, 1), other.seq());
    range.addBound(false, shift);
    range.addBound(true, 0);
    range.open();
    UnsafeRow row = unsafe(side, Columns.list(value));
    byte[] kept = range.kept(row, Pipe.bytes(row));
    if (!range.bound(unsafe(other, Columns.list(low, high)))) return false;
    return Arrays.compareUnsigned(kept, range.first()) >= 0 && !range.isAfter(kept);
  }

  private static UnsafeRow unsafe(Columns columns, List<Object> values) {
    DataType[] types =
        columns.attributes().stream().map(each -> each.dataType()).toArray(DataType[]::new);
    return UnsafeProjection.create(types).apply(Columns.row(values)).copy();
  }
}
