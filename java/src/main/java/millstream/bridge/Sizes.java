package millstream.bridge;

import java.io.Serializable;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** How large the value of a function will be, by what it is given, and the most that it may be. */
public final class Sizes implements Serializable {
  private static final long serialVersionUID = 1L;

  /** What a function's value may have: bytes, characters or elements. */
  public static final long MOST = 1000000;

  /** What it may have where a function of the query calls it for each element of an array. */
  public static final long MOST_EACH = 10000;

  private static final double DAY = 86400e6;
  private static final Pattern NUMBER = Pattern.compile("\\d{4,}");
  private final String kind;
  private final DataType[] types;
  private final long most;

  /**
   * @param kind the function: see ``of``.
   * @param types those of what it is given.
   * @param most how large its value may be.
   */
  Sizes(String kind, DataType[] types, long most) {
    this.kind = kind;
    this.types = types;
    this.most = most;
  }

  /** Raise if the value would be too large. */
  public void check(Object[] given) {
    for (Object each : given) if (each == null) return;
    if (of(given) <= most) return;
    throw raised(
        kind.toUpperCase(Locale.ROOT)
            + " would have more than "
            + most
            + " elements or characters");
  }

  /** What RAISE_ERROR throws. */
  static SparkRuntimeException raised(String message) {
    var messages = CollectionConverters.asScala(java.util.Map.of("errorMessage", message));
    Map<String, String> parameters = Map$.MODULE$.from(messages);
    return new SparkRuntimeException(
        "USER_RAISED_EXCEPTION", parameters, null, new QueryContext[0], "");
  }

  private double of(Object[] given) {
    return switch (kind) {
      case "repeat" -> ((UTF8String) given[0]).numBytes() * number(given[1]);
      case "sequence" -> steps(given);
      case "count_min_sketch" ->
          2 / number(given[0]) * -Math.log(1 - number(given[1])) / Math.log(2);
      default ->
          given[0] instanceof UTF8String text
              ? widths(text.toString())
              : Math.abs(number(given[0]));
    };
  }

  private static double number(Object value) {
    return value instanceof Number number
        ? number.doubleValue()
        : Double.parseDouble(value.toString());
  }

  /** How wide a format makes a text: it is as long as itself and the widths that it names. */
  private static double widths(String format) {
    double total = format.length();
    Matcher found = NUMBER.matcher(format);
    while (found.find()) total += Double.parseDouble(found.group());
    return total;
  }

  /** How many elements a sequence has, at the least, if a month has 28 days. */
  private double steps(Object[] given) {
    boolean dates = types[0] instanceof DateType;
    double length = Math.abs(number(given[1]) - number(given[0])) * (dates ? DAY : 1);
    double step = dates ? DAY : 1;
    if (given.length > 2) step = stepOf(given[2], types[2]);
    return step == 0 ? 0 : length / Math.abs(step);
  }

  private static double stepOf(Object step, DataType type) {
    if (!(step instanceof CalendarInterval interval)) {
      return number(step) * (type instanceof YearMonthIntervalType ? 28 * DAY : 1);
    }
    double months = interval.months * 28 * DAY;
    double rest = interval.days * DAY + interval.microseconds;
    // A month less 28 days is a step of any length: as if it were the shortest one.
    return months * rest < 0 ? 1 : months + rest;
  }
}
