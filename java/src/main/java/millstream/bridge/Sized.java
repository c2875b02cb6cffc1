package millstream.bridge;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.Block;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A value that may be large: it is made only if the rest of what is given here says that it is not.
 */
public final class Sized extends Expression implements Serializable {
  private static final long serialVersionUID = 1L;
  private final Sizes sizes;
  private final Seq<Expression> children;

  /**
   * @param children the value, and what says how large it will be.
   */
  Sized(Sizes sizes, Seq<Expression> children) {
    this.sizes = sizes;
    this.children = children;
  }

  private Expression child(int index) {
    return children.apply(index);
  }

  @Override
  public Seq<Expression> children() {
    return children;
  }

  @Override
  public boolean nullable() {
    return child(0).nullable();
  }

  @Override
  public boolean foldable() {
    return children.forall(Expression::foldable);
  }

  @Override
  public DataType dataType() {
    return child(0).dataType();
  }

  @Override
  public String toString() {
    return child(0).toString();
  }

  @Override
  public String sql() {
    return child(0).sql();
  }

  @Override
  public Object eval(InternalRow row) {
    Object[] given = new Object[children.size() - 1];
    for (int i = 0; i < given.length; i++) given[i] = child(i + 1).eval(row);
    sizes.check(given);
    return child(0).eval(row);
  }

  @Override
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
    return new CodeBlock(
        CollectionConverters.asScala(List.of(text)).toSeq(),
        CollectionConverters.asScala(List.<JavaCode>of()).toSeq());
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> changed) {
    return new Sized(sizes, changed);
  }

  @SuppressWarnings("unchecked") // they are those of productElement
  @Override
  public Expression makeCopy(Object[] parts) {
    return new Sized((Sizes) parts[0], (Seq<Expression>) parts[1]);
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int index) {
    return index == 0 ? sizes : children;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof Sized;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Sized sized && children.equals(sized.children);
  }

  @Override
  public int hashCode() {
    return children.hashCode();
  }
}
