package millstream.dataflow;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.RowOrdering$;
import org.apache.spark.sql.catalyst.expressions.SortOrder$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import org.apache.spark.sql.catalyst.types.PhysicalDataType$;
import org.apache.spark.sql.catalyst.types.PhysicalIntegerType;
import org.apache.spark.sql.catalyst.types.PhysicalLongType;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.math.Ordering;

/**
 * The order of rows by a time, whatever its type; of those at the same time, by their other columns
 * or by their bytes.
 *
 * <p>A place among them is found by a row of another kind, too, by its time alone: {@link #find}
 * says which row that is, and on which side of the rows at its time it is taken to be.
 */
final class TimeOrder implements Comparator {
  private final int place;
  private final DataType type;
  private final boolean isLong;
  private final boolean isInt;
  private final Ordering times;
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
  TimeOrder(Seq columns, int place, boolean byAll) {
    this.place = place;
    type = ((Attribute) columns.apply(place)).dataType();
    Object physical = PhysicalDataType$.MODULE$.apply(type);
    isLong = physical instanceof PhysicalLongType;
    isInt = physical instanceof PhysicalIntegerType;
    times = isLong || isInt ? null : TypeUtils$.MODULE$.getInterpretedOrdering(type);
    ordering = byAll ? new LazilyGeneratedOrdering(sorts(columns), columns) : null;
    left = new UnsafeRow(columns.size());
    right = new UnsafeRow(columns.size());
  }

  private static Seq sorts(Seq columns) {
    ArrayList all = new ArrayList();
    for (int i = 0; i < columns.size(); i++) {
      Expression column = (Expression) columns.apply(i);
      if (!RowOrdering$.MODULE$.isOrderable(column.dataType())) continue;
      all.add(SortOrder$.MODULE$.apply(column, Ascending$.MODULE$, sequence(new ArrayList())));
    }
    return sequence(all);
  }

  private static Seq sequence(ArrayList items) {
    return (Seq) CollectionConverters.asScala(items).toSeq();
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

  public int compare(Object one, Object other) {
    byte[] first = (byte[]) one, second = (byte[]) other;
    left.pointTo(first, first.length);
    if (second == sought) {
      int found = compareTimes(left, place, soughtRow, soughtPlace);
      return found != 0 ? found : ofEqual;
    }
    right.pointTo(second, second.length);
    int found = compareTimes(left, place, right, place);
    if (found == 0 && ordering != null) found = ordering.compare(left, right);
    return found != 0 ? found : Arrays.compareUnsigned(first, second);
  }

  int compareTimes(UnsafeRow one, int itsPlace, UnsafeRow other, int otherPlace) {
    if (isLong) return Long.compare(one.getLong(itsPlace), other.getLong(otherPlace));
    if (isInt) return Integer.compare(one.getInt(itsPlace), other.getInt(otherPlace));
    return times.compare(one.get(itsPlace, type), other.get(otherPlace, type));
  }

  /** A time as a number; of integers, dates and times only. */
  long longAt(UnsafeRow row, int itsPlace) {
    return isLong ? row.getLong(itsPlace) : (long) row.getInt(itsPlace);
  }
}
