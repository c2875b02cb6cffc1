package millstream.bridge;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.net.SocketTimeoutException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;

/**
 * What arrives on a Unix socket, which takes a message to a thread of another process in about half
 * of the time that a loopback address takes. Java has such sockets as channels only: this is one as a
 * stream that says what has arrived, and whose reads may be given a time limit.
 */
final class LocalStream extends InputStream {
  private static final int SIZE = 1 << 16;

  private final SocketChannel channel;
  private final Selector selector;
  private final SelectionKey key;
  private final ByteBuffer arrived = ByteBuffer.allocateDirect(SIZE);
  private long timeoutMs = 0L;

  LocalStream(String path) throws IOException {
    channel = SocketChannel.open(UnixDomainSocketAddress.of(path));
    try {
      channel.configureBlocking(false);
      selector = Selector.open();
      key = channel.register(selector, SelectionKey.OP_READ);
    } catch (IOException e) {
      channel.close();
      throw e;
    }
    arrived.flip();
  }

  /** Has reads fail with a SocketTimeoutException after so long; 0: never. */
  void setTimeout(int ms) {
    timeoutMs = ms;
  }

  public int read() throws IOException {
    if (!arrived.hasRemaining() && await() < 0) return -1;
    return arrived.get() & 0xff;
  }

  public int read(byte[] bytes, int offset, int length) throws IOException {
    if (length == 0) return 0;
    if (!arrived.hasRemaining() && await() < 0) return -1;
    int count = Math.min(length, arrived.remaining());
    arrived.get(bytes, offset, count);
    return count;
  }

  public int available() throws IOException {
    if (!arrived.hasRemaining()) receive();
    return arrived.remaining();
  }

  /** Takes what is there, without waiting; -1 at the end. */
  private int receive() throws IOException {
    arrived.clear();
    int count = -1;
    try {
      count = channel.read(arrived);
    } finally {
      arrived.flip();
    }
    return count;
  }

  private int await() throws IOException {
    long deadline = timeoutMs == 0L ? 0L : System.nanoTime() + timeoutMs * 1000000L;
    while (true) {
      int count = receive();
      if (count != 0) return count;
      long left = deadline == 0L ? 0L : (deadline - System.nanoTime()) / 1000000L;
      if (deadline != 0L && left <= 0L) throw new SocketTimeoutException();
      selector.select(left);
      selector.selectedKeys().clear();
      // A selector does not wait in a thread that was interrupted, which Spark does to end a task.
      if (Thread.currentThread().isInterrupted()) {
        throw deadline != 0L ? new SocketTimeoutException() : new InterruptedIOException();
      }
    }
  }

  /** The way out, for one thread at a time, which may be the one that reads. */
  OutputStream out() {
    return new Out();
  }

  /**
   * Ends the connection, without waiting: a thread that interrupts the reading one may call this,
   * and hold a lock that the other one wants.
   */
  public void close() throws IOException {
    channel.close();
    selector.wakeup();
  }

  /** Closes all, once nobody reads any more. */
  void end() throws IOException {
    close();
    selector.close();
  }

  private final class Out extends OutputStream {
    private ByteBuffer one = ByteBuffer.allocateDirect(SIZE);

    public void write(int value) throws IOException {
      write(new byte[] {(byte) value}, 0, 1);
    }

    public void write(byte[] bytes, int offset, int length) throws IOException {
      while (length > 0) {
        int count = Math.min(length, one.capacity());
        one.clear();
        one.put(bytes, offset, count).flip();
        send(one);
        offset += count;
        length -= count;
      }
    }

    private void send(ByteBuffer data) throws IOException {
      channel.write(data);
      while (data.hasRemaining()) {
        if (!channel.isOpen()) throw new EOFException();
        key.interestOps(SelectionKey.OP_WRITE);
        try {
          selector.select();
          selector.selectedKeys().clear();
          if (Thread.currentThread().isInterrupted()) throw new InterruptedIOException();
        } finally {
          key.interestOps(SelectionKey.OP_READ);
        }
        channel.write(data);
      }
    }
  }
}
