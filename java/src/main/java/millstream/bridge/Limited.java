package millstream.bridge;

import java.util.Iterator;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.api.java.function.FlatMapFunction;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;

/**
 * Hands the messages of one task on, up to so many bytes: a result is held in memory as a whole.
 */
public final class Limited implements FlatMapFunction {
  private static final long serialVersionUID = 1L;
  private final long most;

  Limited(long most) {
    this.most = most;
  }

  public Iterator call(Object messages) {
    return new Counted((Iterator) messages, most);
  }

  private static final class Counted implements Iterator {
    private final Iterator messages;
    private final long most;
    private long bytes;

    Counted(Iterator messages, long most) {
      this.messages = messages;
      this.most = most;
    }

    public boolean hasNext() {
      return messages.hasNext();
    }

    public Object next() {
      byte[] message = (byte[]) messages.next();
      bytes += message.length;
      if (bytes <= most) return message;
      Map none = Map$.MODULE$.empty();
      Map text = (Map) none.updated("errorMessage", "the result has more than " + most + " bytes");
      throw new SparkRuntimeException("USER_RAISED_EXCEPTION", text, null, new QueryContext[0], "");
    }
  }
}
