package millstream.bridge;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.LocalTempView$;
import org.apache.spark.sql.catalyst.analysis.SchemaUnsupported$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.command.CreateViewCommand;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Seq$;
import scala.reflect.ClassTag$;

/** What Python sets up in Java by one call each. */
public final class Setup {
  private static final String END = "\u001e";
  private static final String IS = "\u001f";
  private static final int STATUS = 52;

  private Setup() {}

  /** The session of a view: a copy of one, with more settings: names and values, as one text. */
  public static SparkSession session(SparkSession session, String settings) {
    SparkSession made = session.cloneSession();
    for (String each : settings.split(END)) {
      int is = each.indexOf(IS);
      made.conf().set(each.substring(0, is), each.substring(is + 1));
    }
    return made;
  }

  /**
   * Add a relation, of which the optimizer knows nothing but its columns. A Dataset would be
   * analysed, optimized and planned for that, with an encoder for rows that there never are.
   *
   * @param columns as JSON.
   * @return the id of the RDD that stands for its rows in plans.
   */
  public static int addRelation(SparkSession session, String name, String columns) {
    StructType schema = (StructType) DataType.fromJson(columns);
    RDD<InternalRow> rows =
        session.sparkContext().emptyRDD(ClassTag$.MODULE$.apply(InternalRow.class));
    return session.withActive(
        () -> {
          create(session, name, relation(session, DataTypeUtils.toAttributes(schema), rows));
          return rows.id();
        });
  }

  @SuppressWarnings("unchecked") // a sequence is immutable
  private static LogicalRDD relation(
      SparkSession session, Seq<? extends Attribute> columns, RDD<InternalRow> rows) {
    return new LogicalRDD(
        (Seq<Attribute>) columns,
        rows,
        new UnknownPartitioning(0),
        Seq$.MODULE$.<SortOrder>empty(),
        false,
        Option.empty(),
        session,
        Option.empty(),
        Option.empty(),
        false);
  }

  /** What {@code Dataset.createOrReplaceTempView} runs. */
  @SuppressWarnings("unchecked") // Java sees empty sequences without their types
  private static void create(SparkSession session, String name, LogicalRDD relation) {
    new CreateViewCommand(
            new TableIdentifier(name),
            Seq$.MODULE$.empty(),
            Option.empty(),
            Option.empty(),
            Map$.MODULE$.empty(),
            Option.empty(),
            relation,
            false,
            true,
            LocalTempView$.MODULE$,
            SchemaUnsupported$.MODULE$,
            true,
            Seq$.MODULE$.empty())
        .run(session);
  }

  /**
   * From now on Java ends, to be started again, when another thread than a task has no room in
   * memory. A task without room fails alone: see ``spark.executor.killOnFatalError.depth``. A
   * thread that all need must not end unseen.
   */
  public static void guard() {
    Thread.setDefaultUncaughtExceptionHandler(
        (thread, thrown) -> {
          System.err.println("The thread " + thread.getName() + " has ended: " + thrown);
          if (thrown instanceof VirtualMachineError) Runtime.getRuntime().halt(STATUS);
          thrown.printStackTrace();
        });
  }
}
