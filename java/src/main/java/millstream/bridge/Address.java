package millstream.bridge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.Serializable;
import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.HexFormat;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Where a database listens, and what a task must know to be let in. The options of a source or a
 * sink, which plans and logs show, name only host and port; the driver adds the rest, and it
 * reaches the executors inside the serialized task.
 */
public final class Address implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final ConcurrentHashMap<String, Secrets> KNOWN = new ConcurrentHashMap<>();

  final String host;
  final int port;
  final String feed;
  private final Secrets secrets;

  /** What proves each side to the other; the certificate is empty where nothing is encrypted. */
  private record Secrets(byte[] shared, byte[] certificate) implements Serializable {}

  Address(CaseInsensitiveStringMap options) {
    host = options.get("host");
    port = Integer.parseInt(options.get("port"));
    feed = options.get("feed");
    secrets = KNOWN.get(host + ":" + port);
    if (secrets == null) throw new IllegalStateException("millstream: no database at this address");
  }

  /** Learns what belongs to a host and a port, from a file that the database has written. */
  public static void learn(String file) throws IOException {
    JsonNode known = new ObjectMapper().readTree(new File(file));
    HexFormat hex = HexFormat.of();
    Secrets secrets =
        new Secrets(
            hex.parseHex(known.get("secret").asText()),
            hex.parseHex(known.get("certificate").asText()));
    KNOWN.put(known.get("host").asText() + ":" + known.get("port").asText(), secrets);
  }

  /** Connects and says what for. Parts are joined with tabs; the server knows what they mean. */
  Wire connect(String role, String more) throws IOException {
    Socket socket = secrets.certificate.length == 0 ? new Socket(host, port) : encrypted();
    try {
      Wire wire = new Wire(socket);
      wire.prove(secrets.shared);
      wire.sendText(role + "\t" + feed + "\t" + more);
      wire.out.flush();
      return wire;
    } catch (IOException e) {
      socket.close();
      throw e;
    }
  }

  /** A connection to whoever has the key of that very certificate, whatever the host's name is. */
  private Socket encrypted() throws IOException {
    try {
      KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
      trusted.load(null, null);
      CertificateFactory reader = CertificateFactory.getInstance("X.509");
      trusted.setCertificateEntry(
          "millstream", reader.generateCertificate(new ByteArrayInputStream(secrets.certificate)));
      TrustManagerFactory trust =
          TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(trusted);
      SSLContext context = SSLContext.getInstance("TLSv1.3");
      context.init(null, trust.getTrustManagers(), null);
      SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(host, port);
      socket.startHandshake();
      return socket;
    } catch (GeneralSecurityException e) {
      throw new IOException("millstream: no encrypted connection to the database", e);
    }
  }
}
