package millstream.bridge;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One connection to the database: a greeting with the shared secret, then texts and frames. */
final class Wire {
  private static final byte[] MAGIC = new byte[] {'M', 'S', 'B', '1'};
  private static final int PATIENCE_MS = 250;

  final DataInputStream in;
  final DataOutputStream out;
  private final Socket socket;

  private Wire(Socket socket) throws IOException {
    this.socket = socket;
    socket.setTcpNoDelay(true);
    in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 16));
    out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream(), 1 << 16));
  }

  /** Where the database listens, as the options of a source or a sink say it. */
  static final class Address implements java.io.Serializable {
    private static final long serialVersionUID = 1L;
    final String host;
    final int port;
    final String secret;
    final String feed;

    Address(CaseInsensitiveStringMap options) {
      host = options.get("host");
      port = Integer.parseInt(options.get("port"));
      secret = options.get("secret");
      feed = options.get("feed");
    }

    /** Connects and says what for. Parts are joined with tabs; the server knows what they mean. */
    Wire connect(String role, String more) throws IOException {
      Wire wire = new Wire(new Socket(host, port));
      wire.out.write(MAGIC);
      wire.sendText(secret);
      wire.sendText(role + "\t" + feed + "\t" + more);
      wire.out.flush();
      return wire;
    }
  }

  void sendText(String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  String receiveText() throws IOException {
    byte[] bytes = new byte[in.readInt()];
    in.readFully(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** Asks the server; its answer begins with '=', or it is an error. */
  String ask(String question) throws IOException {
    sendText(question);
    out.flush();
    String answer = receiveText();
    if (!answer.startsWith("=")) throw new IOException("millstream: " + answer);
    return answer.substring(1);
  }

  /** Whether something has arrived that was not read yet. */
  boolean hasMore() throws IOException {
    return in.available() > 0;
  }

  /** Waits for the next byte, but not beyond the end of the task. */
  int awaitByte() throws IOException {
    if (in.available() > 0) return in.readUnsignedByte();
    TaskContext task = TaskContext.get();
    socket.setSoTimeout(PATIENCE_MS);
    try {
      while (true) {
        try {
          int next = in.readUnsignedByte();
          return next;
        } catch (SocketTimeoutException quiet) {
          if (task != null) task.killTaskIfInterrupted();
        }
      }
    } finally {
      socket.setSoTimeout(0);
    }
  }

  void close() {
    try {
      socket.close();
    } catch (IOException e) {
      // Nothing is left to be said on it.
    }
  }
}
