package millstream.bridge;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.Block;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * A value that may be large: it is made only if the rest of what is given here says that it is not.
 */
public final class Sized extends Expression implements Serializable {
  private static final long serialVersionUID = 1L;
  private final Sizes sizes;
  private final Seq children;

  /**
   * @param children the value, and what says how large it will be.
   */
  Sized(Sizes sizes, Seq children) {
    this.sizes = sizes;
    this.children = children;
  }

  private Expression child(int index) {
    return (Expression) children.apply(index);
  }

  public Seq children() {
    return children;
  }

  public boolean nullable() {
    return child(0).nullable();
  }

  public boolean foldable() {
    for (int i = 0; i < children.size(); i++) {
      if (!child(i).foldable()) return false;
    }
    return true;
  }

  public DataType dataType() {
    return child(0).dataType();
  }

  public String toString() {
    return child(0).toString();
  }

  public String sql() {
    return child(0).sql();
  }

  public Object eval(InternalRow row) {
    Object[] given = new Object[children.size() - 1];
    for (int i = 0; i < given.length; i++) given[i] = child(i + 1).eval(row);
    sizes.check(given);
    return child(0).eval(row);
  }

  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    StringBuilder given = new StringBuilder();
    Block before = null;
    for (int i = 1; i < children.size(); i++) {
      ExprCode made = child(i).genCode(context);
      before = before == null ? made.code() : before.$plus(made.code());
      given
          .append(i > 1 ? ", " : "")
          .append(made.isNull())
          .append(" ? null : (Object) (")
          .append(made.value())
          .append(')');
    }
    String sizesThere = context.addReferenceObj("sizes", sizes, "millstream.bridge.Sizes");
    String check = "\n" + sizesThere + ".check(new Object[] {" + given + "});\n";
    ExprCode value = child(0).genCode(context);
    Block whole = before.$plus(plain(check)).$plus(value.code());
    return new ExprCode(whole, value.isNull(), value.value());
  }

  private static Block plain(String text) {
    Seq none = Nil$.MODULE$;
    return new CodeBlock((Seq) none.prepended(text), none);
  }

  public Expression withNewChildrenInternal(IndexedSeq<Expression> changed) {
    return new Sized(sizes, changed);
  }

  public Expression makeCopy(Object[] parts) {
    return new Sized((Sizes) parts[0], (Seq) parts[1]);
  }

  public int productArity() {
    return 2;
  }

  public Object productElement(int index) {
    return index == 0 ? (Object) sizes : children;
  }

  public boolean canEqual(Object other) {
    return other instanceof Sized;
  }

  public boolean equals(Object other) {
    return other instanceof Sized && children.equals(((Sized) other).children);
  }

  public int hashCode() {
    return children.hashCode();
  }
}
