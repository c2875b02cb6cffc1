package millstream.dataflow;

import java.io.Serializable;
import java.util.IdentityHashMap;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** For {@code transform} of a plan's expressions: replaces some by others. */
public class Replace extends AbstractPartialFunction implements Serializable {
  private static final long serialVersionUID = 1L;
  private final IdentityHashMap replacements = new IdentityHashMap();

  public void put(Object found, Object by) {
    replacements.put(found, by);
  }

  public boolean isDefinedAt(Object object) {
    return replacements.containsKey(object);
  }

  public Object applyOrElse(Object object, Function1 otherwise) {
    return isDefinedAt(object) ? replacements.get(object) : otherwise.apply(object);
  }
}
