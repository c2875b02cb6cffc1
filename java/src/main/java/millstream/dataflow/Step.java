package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BindReferences;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.package$;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** A step of a pipe, which needs no state: it gives none, one or several rows for a row. */
public abstract class Step implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Get ready, in the task. */
  abstract void open();

  /** How many rows it gives at most; 1, or any number. */
  int gives() {
    return 1;
  }

  /** The row that it gives; null when it gives none. It may be overwritten by the next one. */
  InternalRow one(InternalRow in) {
    throw new UnsupportedOperationException();
  }

  /** Add the rows that it gives to a list. */
  void all(InternalRow in, ArrayList out) {
    throw new UnsupportedOperationException();
  }

  /** Keeps the rows for which a condition is true. */
  public static class Filter extends Step {
    private static final long serialVersionUID = 1L;
    private final Expression condition;
    private final Seq input;
    private transient BasePredicate test;

    public Filter(Expression condition, Seq input) {
      this.condition = condition;
      this.input = input;
    }

    void open() {
      if (test == null) test = Predicate$.MODULE$.create(condition, input);
    }

    InternalRow one(InternalRow in) {
      return test.eval(in) ? in : null;
    }
  }

  /** Gives a row of other columns. */
  public static class Project extends Step {
    private static final long serialVersionUID = 1L;
    private final Seq columns;
    private final Seq input;
    private transient UnsafeProjection projection;

    public Project(Seq columns, Seq input) {
      this.columns = columns;
      this.input = input;
    }

    void open() {
      if (projection == null) projection = UnsafeProjection.create(columns, input);
    }

    InternalRow one(InternalRow in) {
      return projection.apply(in);
    }
  }

  /** Gives several rows of other columns, as GROUPING SETS need them. */
  public static class Expand extends Step {
    private static final long serialVersionUID = 1L;
    private final Seq[] lists;
    private final Seq input;
    private transient UnsafeProjection[] projections;

    public Expand(List lists, Seq input) {
      this.lists = (Seq[]) lists.toArray(new Seq[0]);
      this.input = input;
    }

    void open() {
      if (projections != null) return;
      projections = new UnsafeProjection[lists.length];
      for (int i = 0; i < lists.length; i++) {
        projections[i] = UnsafeProjection.create(lists[i], input);
      }
    }

    int gives() {
      return projections.length;
    }

    InternalRow one(InternalRow in) {
      return projections[0].apply(in);
    }

    void all(InternalRow in, ArrayList out) {
      for (int i = 0; i < projections.length; i++) out.add(projections[i].apply(in).copy());
    }
  }

  /** Gives a row for each that a generator makes of a row, such as EXPLODE. */
  public static class Generate extends Step {
    private static final long serialVersionUID = 1L;
    private final Expression generator;
    private final Seq kept;
    private final Seq input;
    private final Seq output;
    private final int width;
    private final boolean outer;
    private transient Generator bound;
    private transient UnsafeProjection keptOf;
    private transient UnsafeProjection result;

    /**
     * @param generator makes the rows.
     * @param kept the columns of the input that the result has first.
     * @param input the columns of the input.
     * @param output the columns of the result.
     * @param width how many columns the generator makes.
     * @param outer whether a row for which nothing is made is kept, with NULLs.
     */
    public Generate(
        Expression generator, Seq kept, Seq input, Seq output, int width, boolean outer) {
      this.generator = generator;
      this.kept = kept;
      this.input = input;
      this.output = output;
      this.width = width;
      this.outer = outer;
    }

    void open() {
      if (bound != null) return;
      bound =
          (Generator)
              BindReferences.bindReference(generator, package$.MODULE$.AttributeSeq(input), false);
      keptOf = UnsafeProjection.create(kept, input);
      result = UnsafeProjection.create(output, output);
    }

    int gives() {
      return -1;
    }

    void all(InternalRow in, ArrayList out) {
      InternalRow left = keptOf.apply(in);
      Iterator made = bound.eval(in).iterator();
      boolean any = false;
      while (made.hasNext()) {
        any = true;
        out.add(result.apply(new JoinedRow(left, (InternalRow) made.next())).copy());
      }
      if (!any && outer) {
        out.add(result.apply(new JoinedRow(left, new GenericInternalRow(width))).copy());
      }
    }
  }
}
