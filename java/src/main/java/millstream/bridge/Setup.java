package millstream.bridge;

import org.apache.spark.sql.classic.SparkSession;

/** What Python sets up in Java by one call each. */
public final class Setup {
  private static final String END = "\u001e";
  private static final String IS = "\u001f";
  private static final int STATUS = 52;

  private Setup() {}

  /** The session of a view: a copy of one, with more settings: names and values, as one text. */
  public static SparkSession session(SparkSession session, String settings) {
    SparkSession made = session.cloneSession();
    for (String each : settings.split(END)) {
      int is = each.indexOf(IS);
      made.conf().set(each.substring(0, is), each.substring(is + 1));
    }
    return made;
  }

  /**
   * From now on Java ends, to be started again, when another thread than a task has no room in
   * memory. A task without room fails alone: see ``spark.executor.killOnFatalError.depth``. A
   * thread that all need must not end unseen.
   */
  public static void guard() {
    Thread.setDefaultUncaughtExceptionHandler(
        (thread, thrown) -> {
          System.err.println("The thread " + thread.getName() + " has ended: " + thrown);
          if (thrown instanceof VirtualMachineError) Runtime.getRuntime().halt(STATUS);
          thrown.printStackTrace();
        });
  }
}
