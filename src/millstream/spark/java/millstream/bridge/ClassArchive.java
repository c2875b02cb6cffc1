package millstream.bridge;

import java.lang.management.ManagementFactory;
import javax.management.JMException;
import javax.management.ObjectName;

/** Writes the classes that this Java has loaded to a file, which the next one maps at its start. */
public final class ClassArchive {
  private ClassArchive() { }

  /** Writes the file, under another name first; returns what Java says about it. */
  public static String write(String path) throws JMException {
    Object[] arguments = new Object[] {new String[] {"dynamic_dump", path}};
    Object said = ManagementFactory.getPlatformMBeanServer().invoke(
        new ObjectName("com.sun.management:type=DiagnosticCommand"),
        "vmCds",
        arguments,
        new String[] {String[].class.getName()});
    return String.valueOf(said);
  }
}
