package millstream.dataflow;

import java.io.Serializable;
import java.util.IdentityHashMap;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** For {@code transform} of a plan's expressions: replaces some by others. */
public class Replace extends AbstractPartialFunction<Object, Object> implements Serializable {
  private static final long serialVersionUID = 1L;
  private final IdentityHashMap<Object, Object> replacements = new IdentityHashMap<>();

  public void put(Object found, Object by) {
    replacements.put(found, by);
  }

  @Override
  public boolean isDefinedAt(Object object) {
    return replacements.containsKey(object);
  }

  @Override
  @SuppressWarnings("unchecked") // an expression is replaced by an expression
  public <A, B> B applyOrElse(A object, Function1<A, B> otherwise) {
    return isDefinedAt(object) ? (B) replacements.get(object) : otherwise.apply(object);
  }
}
