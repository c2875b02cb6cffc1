package millstream.dataflow;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.RowOrdering;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.SortOrder$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import org.apache.spark.sql.catalyst.types.PhysicalDataType;
import org.apache.spark.sql.catalyst.types.PhysicalIntegerType;
import org.apache.spark.sql.catalyst.types.PhysicalLongType;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.math.Ordering;

/**
 * The order of rows by a time of any type; rows at the same time are ordered by their other columns
 * or by their bytes.
 *
 * <p>A row with other columns can be searched for, too, by its time alone: {@link #find} says which
 * row that is, and on which side of the rows at its time it is taken to be.
 */
final class TimeOrder implements Comparator<byte[]> {
  private final int place;
  private final DataType type;
  private final boolean isLong;
  private final boolean isInt;
  private final Ordering<Object> times;
  private final LazilyGeneratedOrdering ordering;
  private final UnsafeRow left;
  private final UnsafeRow right;
  private byte[] sought;
  private UnsafeRow soughtRow;
  private int soughtPlace;
  private int ofEqual;

  /**
   * @param columns the attributes of the rows.
   * @param place that of the time among them.
   * @param byAll whether the other columns are compared, too.
   */
  TimeOrder(Seq<Attribute> columns, int place, boolean byAll) {
    this.place = place;
    type = columns.apply(place).dataType();
    PhysicalDataType physical = PhysicalDataType.apply(type);
    isLong = physical instanceof PhysicalLongType;
    isInt = physical instanceof PhysicalIntegerType;
    times = isLong || isInt ? null : TypeUtils.getInterpretedOrdering(type);
    ordering = byAll ? new LazilyGeneratedOrdering(sorts(columns), columns) : null;
    left = new UnsafeRow(columns.size());
    right = new UnsafeRow(columns.size());
  }

  private static Seq<SortOrder> sorts(Seq<Attribute> columns) {
    Seq<Expression> none = Seqs.of(List.of());
    List<SortOrder> all = new ArrayList<>();
    for (Attribute column : CollectionConverters.asJava(columns)) {
      if (!RowOrdering.isOrderable(column.dataType())) continue;
      all.add(SortOrder$.MODULE$.apply(column, Ascending$.MODULE$, none));
    }
    return Seqs.of(all);
  }

  /** Take a row, of any columns, to be before (1) or after (-1) all rows at its time. */
  void find(byte[] row, UnsafeRow bound, int itsPlace, int equal) {
    sought = row;
    soughtRow = bound;
    soughtPlace = itsPlace;
    ofEqual = equal;
  }

  /** Take that row to be as any other again. */
  void found() {
    sought = null;
  }

  @Override
  public int compare(byte[] one, byte[] other) {
    left.pointTo(one, one.length);
    if (other == sought) {
      int found = compareTimes(left, place, soughtRow, soughtPlace);
      return found != 0 ? found : ofEqual;
    }
    right.pointTo(other, other.length);
    int found = compareTimes(left, place, right, place);
    if (found == 0 && ordering != null) found = ordering.compare(left, right);
    return found != 0 ? found : Arrays.compareUnsigned(one, other);
  }

  int compareTimes(UnsafeRow one, int itsPlace, UnsafeRow other, int otherPlace) {
    if (isLong) return Long.compare(one.getLong(itsPlace), other.getLong(otherPlace));
    if (isInt) return Integer.compare(one.getInt(itsPlace), other.getInt(otherPlace));
    return times.compare(one.get(itsPlace, type), other.get(otherPlace, type));
  }

  /** A time as a number; of integers, dates and times only. */
  long longAt(UnsafeRow row, int itsPlace) {
    return isLong ? row.getLong(itsPlace) : row.getInt(itsPlace);
  }
}
