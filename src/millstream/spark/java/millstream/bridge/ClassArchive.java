package millstream.bridge;

import java.lang.management.ManagementFactory;
import java.util.HashSet;
import java.util.Set;
import javax.management.JMException;
import javax.management.ObjectName;

/** Writes the classes that this Java has loaded to a file, which the next one maps at its start. */
public final class ClassArchive {
  private ClassArchive() { }

  /** Writes the file, under another name first; returns what Java says about it. */
  public static String write(String path) throws JMException {
    linkAll();
    return command("vmCds", new String[] {"dynamic_dump", path});
  }

  /**
   * Links all classes that are loaded: Java archives no others.
   *
   * <p>A fifth of them were loaded only to verify another class. The next start needs them for the
   * same reason, and would read them from their jars. To link one may load more.
   */
  private static void linkAll() throws JMException {
    Set linked = new HashSet();
    int before = -1;
    while (linked.size() > before) {
      before = linked.size();
      String[] lines = command("vmClassHierarchy", new String[0]).split("\n");
      for (int i = 0; i < lines.length; i++) {
        String name = lines[i].substring(lines[i].lastIndexOf('-') + 1).split("/")[0].trim();
        if (linked.add(name)) {
          link(name);
        }
      }
    }
  }

  private static void link(String name) {
    try {
      Class.forName(name, false, ClassLoader.getSystemClassLoader()).getDeclaredConstructors();
    } catch (Throwable error) {
      return;  // of another class loader, or without what it refers to: it is not archived
    }
  }

  private static String command(String name, String[] arguments) throws JMException {
    Object said = ManagementFactory.getPlatformMBeanServer().invoke(
        new ObjectName("com.sun.management:type=DiagnosticCommand"),
        name,
        new Object[] {arguments},
        new String[] {String[].class.getName()});
    return String.valueOf(said);
  }
}
