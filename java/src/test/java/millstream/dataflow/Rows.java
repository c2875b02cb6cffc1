package millstream.dataflow;

import java.util.Comparator;
import java.util.List;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/** Rows to draw, and their order. */
final class Rows {
  private Rows() {}

  /** Rows of what is drawn for each column. */
  static Arbitrary<List<Object>> of(Arbitrary<?>... columns) {
    List<Arbitrary<Object>> all = java.util.Arrays.stream(columns).map(Rows::objects).toList();
    return Combinators.combine(all).as(values -> Columns.list(values.toArray()));
  }

  private static Arbitrary<Object> objects(Arbitrary<?> values) {
    return values.map(value -> (Object) value);
  }

  static Arbitrary<Integer> ints(int most) {
    return Arbitraries.integers().between(0, most);
  }

  static Arbitrary<Long> longs(long most) {
    return Arbitraries.longs().between(0, most);
  }

  static Arbitrary<UTF8String> texts() {
    return Arbitraries.strings().withChars("abé").ofMaxLength(9).map(UTF8String::fromString);
  }

  /** The order by a column, NULLs first, and then by the bytes of the rows. */
  static Comparator<List<Object>> order(Columns columns, int by) {
    UnsafeProjection bytes =
        UnsafeProjection.create(
            columns.attributes().stream().map(each -> each.dataType()).toArray(DataType[]::new));
    Comparator<List<Object>> order = Comparator.comparing(row -> (Integer) row.get(by), byValue());
    return order.thenComparing(
        row -> Pipe.bytes(bytes.apply(Columns.row(row))), java.util.Arrays::compareUnsigned);
  }

  static <T extends Comparable<T>> Comparator<T> byValue() {
    return Comparator.nullsFirst(Comparator.naturalOrder());
  }
}
