package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
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

/** A step of a pipe, which needs no state: it gives no row, one or several for each row. */
public abstract sealed class Step implements Serializable {
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
  void all(InternalRow in, List<InternalRow> out) {
    throw new UnsupportedOperationException();
  }

  /** Keeps the rows for which a condition is true. */
  public static final class Filter extends Step {
    private static final long serialVersionUID = 1L;
    private final Expression condition;
    private final Seq<Attribute> input;
    private transient BasePredicate test;

    public Filter(Expression condition, Seq<Attribute> input) {
      this.condition = condition;
      this.input = input;
    }

    @Override
    void open() {
      if (test == null) test = Predicate$.MODULE$.create(condition, input);
    }

    @Override
    InternalRow one(InternalRow in) {
      return test.eval(in) ? in : null;
    }
  }

  /** Gives a row of other columns. */
  public static final class Project extends Step {
    private static final long serialVersionUID = 1L;
    private final Seq<Expression> columns;
    private final Seq<Attribute> input;
    private transient UnsafeProjection projection;

    public Project(Seq<Expression> columns, Seq<Attribute> input) {
      this.columns = columns;
      this.input = input;
    }

    @Override
    void open() {
      if (projection == null) projection = UnsafeProjection.create(columns, input);
    }

    @Override
    InternalRow one(InternalRow in) {
      return projection.apply(in);
    }
  }

  /** Gives several rows of other columns, as GROUPING SETS need them. */
  public static final class Expand extends Step {
    private static final long serialVersionUID = 1L;
    private final ArrayList<Seq<Expression>> lists;
    private final Seq<Attribute> input;
    private transient UnsafeProjection[] projections;

    public Expand(List<Seq<Expression>> lists, Seq<Attribute> input) {
      this.lists = new ArrayList<>(lists);
      this.input = input;
    }

    @Override
    void open() {
      if (projections != null) return;
      projections =
          lists.stream()
              .map(each -> UnsafeProjection.create(each, input))
              .toArray(UnsafeProjection[]::new);
    }

    @Override
    int gives() {
      return projections.length;
    }

    @Override
    InternalRow one(InternalRow in) {
      return projections[0].apply(in);
    }

    @Override
    void all(InternalRow in, List<InternalRow> out) {
      for (UnsafeProjection each : projections) out.add(each.apply(in).copy());
    }
  }

  /** Gives a row for each that a generator makes of a row, such as EXPLODE. */
  public static final class Generate extends Step {
    private static final long serialVersionUID = 1L;
    private final Expression generator;
    private final Seq<Expression> passed;
    private final Seq<Attribute> input;
    private final Seq<Attribute> output;
    private final int width;
    private final boolean outer;
    private transient Generator bound;
    private transient UnsafeProjection passedOf;
    private transient UnsafeProjection result;

    /**
     * @param generator makes the rows.
     * @param passed the columns of the input that the result has first.
     * @param input the columns of the input.
     * @param output the columns of the result.
     * @param width how many columns the generator makes.
     * @param outer whether a row for which nothing is made is kept, with NULLs.
     */
    public Generate(
        Expression generator,
        Seq<Expression> passed,
        Seq<Attribute> input,
        Seq<Attribute> output,
        int width,
        boolean outer) {
      this.generator = generator;
      this.passed = passed;
      this.input = input;
      this.output = output;
      this.width = width;
      this.outer = outer;
    }

    @Override
    void open() {
      if (bound != null) return;
      bound =
          (Generator)
              BindReferences.bindReference(generator, package$.MODULE$.AttributeSeq(input), false);
      passedOf = UnsafeProjection.create(passed, input);
      result = UnsafeProjection.create(Seqs.widened(output), output);
    }

    @Override
    int gives() {
      return -1;
    }

    @Override
    void all(InternalRow in, List<InternalRow> out) {
      InternalRow left = passedOf.apply(in);
      Iterator<InternalRow> made = bound.eval(in).iterator();
      boolean any = false;
      while (made.hasNext()) {
        any = true;
        out.add(result.apply(new JoinedRow(left, made.next())).copy());
      }
      if (!any && outer) {
        out.add(result.apply(new JoinedRow(left, new GenericInternalRow(width))).copy());
      }
    }
  }
}
