package millstream.bridge;

import java.util.Iterator;
import org.apache.spark.api.java.function.FlatMapFunction;

/** Limits the bytes that a task may give, since a result is held in memory as a whole. */
public final class Limited implements FlatMapFunction<Iterator<byte[]>, byte[]> {
  private static final long serialVersionUID = 1L;
  private final long most;

  Limited(long most) {
    this.most = most;
  }

  @Override
  public Iterator<byte[]> call(Iterator<byte[]> messages) {
    return new Counted(messages, most);
  }

  private static final class Counted implements Iterator<byte[]> {
    private final Iterator<byte[]> messages;
    private final long most;
    private long bytes;

    Counted(Iterator<byte[]> messages, long most) {
      this.messages = messages;
      this.most = most;
    }

    @Override
    public boolean hasNext() {
      return messages.hasNext();
    }

    @Override
    public byte[] next() {
      byte[] message = messages.next();
      bytes += message.length;
      if (bytes <= most) return message;
      throw Sizes.raised("the result has more than " + most + " bytes");
    }
  }
}
