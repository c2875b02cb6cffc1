package millstream.bridge;

/**
 * What happens when Java has no room in its memory. A task without room fails alone: see
 * ``spark.executor.killOnFatalError.depth``. A thread that all need must not end unseen.
 */
public final class Room {
  private static final int STATUS = 52;

  private Room() {}

  /** From now on Java ends, to be started again, when another thread than a task has no room. */
  public static void guard() {
    Thread.setDefaultUncaughtExceptionHandler(
        (thread, thrown) -> {
          System.err.println("The thread " + thread.getName() + " has ended: " + thrown);
          if (thrown instanceof VirtualMachineError) Runtime.getRuntime().halt(STATUS);
          thrown.printStackTrace();
        });
  }
}
