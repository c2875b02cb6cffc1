package millstream.bridge;

import java.io.IOException;
import java.util.List;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.CommonTokenStream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.deploy.SparkSubmit;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.SqlBaseParser;
import org.codehaus.commons.compiler.CompileException;
import org.codehaus.janino.ClassBodyEvaluator;
import org.rocksdb.RocksDB;

/**
 * The main class of a Java that the database starts: Spark's own, and beside it a thread that gets
 * ready what the first view needs and Spark would begin only then, one after the other. That are
 * libraries which Spark does not touch before: of a class whose static part two threads begin at
 * once, in different places, each might wait for the other.
 */
public final class Launch {
  private static final String CODE =
      "public Object generate(Object[] references) { return new Made(references); }"
          + "class Made extends UnsafeProjection {"
          + "  private Object[] references;"
          + "  private UnsafeRowWriter[] writers = new UnsafeRowWriter[1];"
          + "  public Made(Object[] references) {"
          + "    this.references = references;"
          + "    writers[0] = new UnsafeRowWriter(1, 0);"
          + "  }"
          + "  public void initialize(int partition) {}"
          + "  public UnsafeRow apply(Object row) { return apply((InternalRow) row); }"
          + "  public UnsafeRow apply(InternalRow i) {"
          + "    writers[0].reset();"
          + "    writers[0].zeroOutNullBytes();"
          + "    boolean isNull = i.isNullAt(0);"
          + "    long value = isNull ? -1L : (i.getLong(0));"
          + "    if (isNull) { writers[0].setNullAt(0); } else { writers[0].write(0, value); }"
          + "    return (writers[0].getRow());"
          + "  }"
          + "}";

  private static final Thread READYING = new Thread(Launch::ready, "millstream-launch");

  private Launch() {}

  /** Start Spark with the arguments of spark-submit. */
  public static void main(String[] arguments) {
    READYING.setDaemon(true);
    READYING.start();
    SparkSubmit.main(arguments);
  }

  /** Wait until all is ready; at once in a Java that others have started. */
  static void await() {
    try {
      READYING.join();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static void ready() {
    try {
      parse();
      Class.forName("org.apache.spark.SparkThrowableHelper$"); // reads the texts of all errors
      compile();
      RocksDB.loadLibrary();
      allocate();
    } catch (Exception | LinkageError e) {
      // Whoever needs it finds out, and says so where it can be understood.
      System.err.println("millstream: Java is not ready for a view: " + e);
    }
  }

  private static void parse() {
    SqlBaseLexer lexer = new SqlBaseLexer(CharStreams.fromString("SELECT K, SUM(N) FROM A.S"));
    new SqlBaseParser(new CommonTokenStream(lexer)).singleStatement();
  }

  /** Compile a class as Spark does it: its compiler loads four hundred classes for that. */
  static Class<?> compile() throws CompileException, IOException {
    ClassBodyEvaluator evaluator = new ClassBodyEvaluator();
    evaluator.setParentClassLoader(Launch.class.getClassLoader());
    evaluator.setClassName("millstream.bridge.Compiled");
    evaluator.setDefaultImports(
        "org.apache.spark.sql.catalyst.InternalRow",
        "org.apache.spark.sql.catalyst.expressions.UnsafeProjection",
        "org.apache.spark.sql.catalyst.expressions.UnsafeRow",
        "org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter");
    evaluator.cook("millstream.java", CODE);
    return evaluator.getClazz();
  }

  private static void allocate() {
    new Schema(List.of());
    try (RootAllocator all = new RootAllocator();
        ArrowBuf some = all.buffer(64)) {
      some.setZero(0, 64);
    }
  }
}
