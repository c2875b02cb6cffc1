package millstream.bridge;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.TaskContext;

/** One connection to the database: proof of the shared secret, then texts and frames. */
final class Wire implements AutoCloseable {
  private static final byte[] MAGIC = {'M', 'S', 'B', '2'};
  private static final int NONCE = 32;
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final int PROOF_MS = 60000;
  private static final int PATIENCE_MS = 250;

  final DataInputStream in;
  final DataOutputStream out;
  private final Socket socket;

  Wire(Socket socket) throws IOException {
    this.socket = socket;
    socket.setTcpNoDelay(true);
    in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 16));
    out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream(), 1 << 16));
  }

  /** Both sides prove that they know the secret, the database first. See handshake.py. */
  void prove(byte[] secret) throws IOException {
    byte[] ours = new byte[NONCE];
    RANDOM.nextBytes(ours);
    out.write(MAGIC);
    out.write(ours);
    out.flush();
    byte[] theirs = new byte[NONCE];
    byte[] proof = new byte[NONCE];
    socket.setSoTimeout(PROOF_MS);
    in.readFully(theirs);
    in.readFully(proof);
    socket.setSoTimeout(0);
    if (!MessageDigest.isEqual(proof, proof(secret, "server", ours, theirs))) {
      throw new IOException("millstream: another program listens on the database's port");
    }
    out.write(proof(secret, "task", ours, theirs));
  }

  private static byte[] proof(byte[] secret, String side, byte[] task, byte[] server)
      throws IOException {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(secret, "HmacSHA256"));
      mac.update(side.getBytes(StandardCharsets.US_ASCII));
      mac.update(task);
      return mac.doFinal(server);
    } catch (GeneralSecurityException e) {
      throw new IOException(e);
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
          return in.readUnsignedByte();
        } catch (SocketTimeoutException quiet) {
          if (task != null) task.killTaskIfInterrupted();
        }
      }
    } finally {
      socket.setSoTimeout(0);
    }
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException e) {
      // Nothing is left to be said on it.
    }
  }
}
