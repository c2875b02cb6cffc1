package millstream.dataflow;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.types.StructType;

/**
 * Runs operators without Spark's streaming: rows go in through pipes, and the sum of all changes
 * that come out is kept. As in a task of Spark's, the operators are those that serialization gives.
 */
final class Host implements AutoCloseable {
  /** The port of what leaves the last operator. */
  static final int OUT = 1_000_000;

  private final Plan plan;
  private final Columns output;
  private final Bag results = new Bag();
  final Store store = new Store();
  private Dataflow dataflow;
  private Inlet inlet;
  private Plan running;
  private long lsn = 1;

  /** The pipes of the inputs, the operators in order, and the columns of what leaves the last. */
  record Plan(List<Pipe> inputs, List<Operator> operators, Columns output) implements Serializable {
    /** A plan of one operator, whose lists can be serialized. */
    static Plan of(List<Pipe> inputs, Operator operator, Columns output) {
      return new Plan(new ArrayList<>(inputs), new ArrayList<>(List.of(operator)), output);
    }
  }

  /**
   * @param memory how many bytes of state may be at hand.
   */
  Host(Plan plan, long memory) {
    this.plan = plan;
    output = plan.output();
    System.setProperty("millstream.dataflow.memory", Long.toString(memory));
    open();
  }

  /** A pipe to the end, of rows with some columns. */
  static Pipe out(Columns columns) {
    return Host.pipe(OUT, columns, Pipe.NULLS_MATCH);
  }

  /** A pipe to a port, by keys. */
  static Pipe pipe(int port, Columns columns, int nulls, int... keys) {
    return new Pipe(
        port, List.of(), columns.pick(keys), Seqs.widened(columns.seq()), columns.seq(), nulls);
  }

  static {
    SparkConf conf = new SparkConf(false);
    SparkEnv env =
        new SparkEnv("test", null, null, null, null, null, null, null, null, null, null, conf);
    env.initializeMemoryManager(1, false);
    SparkEnv.set(env); // window functions keep their rows in its memory
  }

  private void open() {
    TaskContext$.MODULE$.setTaskContext(TaskContext$.MODULE$.empty());
    running = copy(plan);
    inlet = new Inlet();
    List<Operator> operators = new ArrayList<>(running.operators());
    operators.add(new Outlet());
    dataflow = new Dataflow("test", inlet, operators);
    Object handle =
        Proxy.newProxyInstance(
            Host.class.getClassLoader(),
            new Class<?>[] {StatefulProcessorHandle.class},
            (self, method, arguments) -> store);
    dataflow.setHandle((StatefulProcessorHandle) handle);
    dataflow.init(null, null);
    dataflow.state().begin();
    for (Pipe each : running.inputs()) each.open(dataflow);
  }

  private static Plan copy(Plan plan) {
    try {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      new ObjectOutputStream(bytes).writeObject(plan);
      return (Plan)
          new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray())).readObject();
    } catch (IOException | ClassNotFoundException e) {
      throw new AssertionError(e);
    }
  }

  /** Send a row into an input. */
  void send(int input, List<Object> row, long weight) {
    running.inputs().get(input).send(Columns.row(row), lsn, weight);
    dataflow.state().makeRoom();
  }

  /** End a commit: the operators work. */
  void commit() {
    dataflow.work();
    dataflow.state().atPause();
    lsn++;
  }

  /** Have an aggregate without keys give its row. */
  void begin() {
    ((Group) operator()).begin(lsn);
    commit();
  }

  /** End a commit after which the watermark is at a moment. */
  void commit(long watermark) {
    inlet.advance(watermark);
    commit();
  }

  /** End a commit, with which the feed passes a moment. */
  void commitAt(long moment) {
    dataflow.work();
    dataflow.passed(moment, lsn);
    commit();
  }

  /** End the task, and begin another one over what was stored. */
  void restart() {
    dataflow.atEnd();
    long watermark = inlet.watermark();
    close();
    open();
    inlet.watermark = watermark;
  }

  /** The sum of all changes so far. */
  Bag results() {
    return results;
  }

  /** How many rows the state says that it has; all of it must have been written. */
  long rows() {
    dataflow.atEnd();
    return State.sizeOf("test")[0];
  }

  Operator operator() {
    return running.operators().get(0);
  }

  Dataflow dataflow() {
    return dataflow;
  }

  @Override
  public void close() {
    dataflow.close();
    TaskContext$.MODULE$.unset();
  }

  /** In place of the feed. */
  private static final class Inlet extends Entry {
    private static final long serialVersionUID = 1L;
    private long watermark = Long.MIN_VALUE;
    private boolean advanced;

    Inlet() {
      super(0);
      setColumns(StructType.fromDDL("_log int, _lsn bigint, _weight bigint"), new StructType());
    }

    void advance(long to) {
      advanced = to > watermark;
      watermark = Math.max(watermark, to);
    }

    @Override
    boolean advance() {
      boolean found = advanced;
      advanced = false;
      return found;
    }

    @Override
    long watermark() {
      return watermark;
    }
  }

  /** In place of the sink. */
  private final class Outlet extends Operator {
    private static final long serialVersionUID = 1L;

    Outlet() {
      super(OUT);
    }

    @Override
    void open(Dataflow dataflow) {
      setRoots(dataflow, dataflow.newSlot(), Page.KIND);
    }

    @Override
    boolean apply(StateNode root, UnsafeRow row, long lsn, long weight) {
      results.add(output.values(row), weight);
      return true;
    }

    @Override
    void work(StateNode root, Change changes) {}
  }
}
