package millstream.bridge;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local files of checkpoints, without a process for each. Hadoop's own file system runs chmod
 * for every file and folder that it makes, and makes a second file with checksums beside each: 16
 * processes at the start of a query, and a dozen at the end of each of its batches.
 */
public final class LocalFiles extends RawLocalFileSystem {
  private static final int BITS = 9;

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    String bits = permission.toString();
    if (bits.length() != BITS || bits.endsWith("t") || bits.endsWith("T")) {
      super.setPermission(path, permission);
    } else {
      Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(bits));
    }
  }
}
