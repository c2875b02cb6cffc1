package millstream.line;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * From the feed, with the columns log, LSN, weight and row, onto the line: each row goes through the
 * pipes of all that read its log.
 */
public class Entry implements FlatMapFunction {
  private static final long serialVersionUID = 1L;

  private final int[] widths;
  private final ArrayList[] pipes;
  private final ArrayList constants = new ArrayList();
  private final ArrayList globals = new ArrayList();

  /** The entry of a feed of so many logs, with so many columns each. */
  public Entry(List widths) {
    this.widths = new int[widths.size()];
    pipes = new ArrayList[widths.size()];
    for (int i = 0; i < pipes.length; i++) {
      this.widths[i] = ((Integer) widths.get(i)).intValue();
      pipes[i] = new ArrayList();
    }
  }

  /** Send the rows of a log through a pipe. */
  public void addLog(int log, Pipe pipe) {
    pipes[log].add(pipe);
  }

  /** Send rows through a pipe that are there from the beginning, and never change. */
  public void addConstants(scala.collection.immutable.Seq rows, Pipe pipe) {
    ArrayList copies = new ArrayList();
    for (int i = 0; i < rows.size(); i++) copies.add(((InternalRow) rows.apply(i)).copy());
    constants.add(new Object[] {copies, pipe});
  }

  /** Have an aggregate without keys give its row even if none ever comes. */
  public void addGlobal(int port) {
    globals.add(Integer.valueOf(port));
  }

  public Iterator call(Object object) {
    Row in = (Row) object;
    int log = in.getInt(0);
    long lsn = in.getLong(1);
    ArrayList out = new ArrayList();
    if (log == Line.MARK) {
      out.add(plain(Line.MARK, lsn));
    } else if (log == Line.BEGINNING) {
      begin(lsn, out);
    } else {
      UnsafeRow row = Pipe.row((byte[]) in.get(3), widths[log]);
      ArrayList to = pipes[log];
      for (int i = 0; i < to.size(); i++) ((Pipe) to.get(i)).send(row, lsn, in.getLong(2), out);
    }
    return out.iterator();
  }

  private void begin(long lsn, ArrayList out) {
    for (int i = 0; i < globals.size(); i++) {
      out.add(plain(((Integer) globals.get(i)).intValue(), lsn));
    }
    for (int i = 0; i < constants.size(); i++) {
      Object[] each = (Object[]) constants.get(i);
      ArrayList rows = (ArrayList) each[0];
      for (int j = 0; j < rows.size(); j++) {
        ((Pipe) each[1]).send((InternalRow) rows.get(j), lsn, 1L, out);
      }
    }
  }

  /** A row of no weight and no columns. */
  private static Row plain(int port, long lsn) {
    return RowFactory.create(
        new Object[] {
          Integer.valueOf(port), Long.valueOf(lsn), Long.valueOf(0L), Pipe.NOTHING, Pipe.NOTHING
        });
  }
}
