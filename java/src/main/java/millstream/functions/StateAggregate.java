package millstream.functions;

import java.io.Serializable;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ImplicitCastInputTypes;
import org.apache.spark.sql.catalyst.expressions.aggregate.ImperativeAggregate;
import org.apache.spark.sql.catalyst.expressions.aggregate.TypedImperativeAggregate;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.AbstractDataType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An aggregate whose state is an object of ours: here is what Spark asks of any, and what a Scala
 * case class would write by itself.
 */
public abstract class StateAggregate extends TypedImperativeAggregate
    implements ImplicitCastInputTypes, Serializable {
  private final String name;
  private final Seq children;
  private final int mutableOffset;
  private final int inputOffset;

  protected StateAggregate(String name, Seq children, int mutableOffset, int inputOffset) {
    this.name = name;
    this.children = children;
    this.mutableOffset = mutableOffset;
    this.inputOffset = inputOffset;
  }

  /** The same function over other arguments, or at other places in the buffer. */
  protected abstract StateAggregate copy(Seq children, int mutableOffset, int inputOffset);

  /** The type that each argument is cast to; AnyDataType leaves it as it is. */
  protected abstract AbstractDataType[] argumentTypes();

  /** Why these arguments, cast to their types, cannot be taken, or null. */
  protected abstract String objection();

  protected Expression argument(int index) { return (Expression) children.apply(index); }

  protected int arguments() { return children.size(); }

  /** A weight, or another number that counts as 0 when it is NULL. */
  protected long number(int index, InternalRow row) {
    Object value = argument(index).eval(row);
    return value == null ? 0L : ((Long) value).longValue();
  }

  public String prettyName() { return name; }

  public Seq children() { return children; }

  public Seq inputTypes() {
    return CollectionConverters.asScala(Arrays.asList((Object[]) argumentTypes())).toSeq();
  }

  public TypeCheckResult checkInputDataTypes() {
    String objection = uncast();
    if (objection == null) objection = objection();
    if (objection == null) return super.checkInputDataTypes();
    return new TypeCheckResult.TypeCheckFailure(name + ": " + objection);
  }

  /** Spark asks for objections before it casts arguments, and again after. */
  private String uncast() {
    AbstractDataType[] types = argumentTypes();
    for (int i = 0; i < types.length; i++) {
      if (!types[i].acceptsType(argument(i).dataType())) {
        return "argument " + (i + 1) + " must be " + types[i].simpleString();
      }
    }
    return null;
  }

  public int mutableAggBufferOffset() { return mutableOffset; }

  public int inputAggBufferOffset() { return inputOffset; }

  public ImperativeAggregate withNewMutableAggBufferOffset(int offset) {
    return copy(children, offset, inputOffset);
  }

  public ImperativeAggregate withNewInputAggBufferOffset(int offset) {
    return copy(children, mutableOffset, offset);
  }

  public TreeNode withNewChildrenInternal(IndexedSeq changed) {
    return copy(changed, mutableOffset, inputOffset);
  }

  public TreeNode makeCopy(Object[] parts) {
    return copy((Seq) parts[0], ((Integer) parts[1]).intValue(), ((Integer) parts[2]).intValue());
  }

  public int productArity() { return 3; }

  public Object productElement(int index) {
    if (index == 0) return children;
    return Integer.valueOf(index == 1 ? mutableOffset : inputOffset);
  }

  public boolean canEqual(Object other) { return other instanceof StateAggregate; }

  public boolean equals(Object other) {
    if (!canEqual(other)) return false;
    StateAggregate that = (StateAggregate) other;
    return name.equals(that.name) && children.equals(that.children)
        && mutableOffset == that.mutableOffset && inputOffset == that.inputOffset;
  }
}
