package millstream.bridge;

import org.apache.spark.sql.classic.SparkSession;

/** The session of one view, made and set up by one call. */
public final class ViewSession {
  private static final String END = "\u001e";
  private static final String IS = "\u001f";

  private ViewSession() {}

  /** A copy of a session, with more settings: names and values, as one text. */
  public static SparkSession of(SparkSession session, String settings) {
    SparkSession made = session.cloneSession();
    for (String each : settings.split(END)) {
      int is = each.indexOf(IS);
      made.conf().set(each.substring(0, is), each.substring(is + 1));
    }
    return made;
  }
}
