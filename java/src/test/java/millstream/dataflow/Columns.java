package millstream.dataflow;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The columns of rows in a test, whose values are those of Catalyst. */
record Columns(List<Attribute> attributes) implements Serializable {
  /** Columns by names and types: {@code "k int, v bigint"}. */
  static Columns of(String ddl) {
    List<Attribute> made = new ArrayList<>();
    for (StructField field : StructType.fromDDL(ddl).fields()) {
      made.add(
          new AttributeReference(
              field.name(),
              field.dataType(),
              true,
              field.metadata(),
              NamedExpression.newExprId(),
              seq(List.of())));
    }
    return new Columns(made);
  }

  static <T> Seq<T> seq(List<? extends T> items) {
    return CollectionConverters.<T>asScala(new ArrayList<T>(items)).toSeq();
  }

  Columns and(Columns more) {
    List<Attribute> both = new ArrayList<>(attributes);
    both.addAll(more.attributes);
    return new Columns(both);
  }

  int size() {
    return attributes.size();
  }

  Attribute get(int place) {
    return attributes.get(place);
  }

  Seq<Attribute> seq() {
    return seq(attributes);
  }

  /** Some of the columns, as expressions. */
  Seq<Expression> pick(int... places) {
    return seq(Arrays.stream(places).mapToObj(attributes::get).toList());
  }

  /** A row of these columns as a list, which equals another one of the same values. */
  List<Object> values(InternalRow row) {
    List<Object> found = new ArrayList<>();
    for (int i = 0; i < size(); i++) {
      boolean isNull = row.isNullAt(i);
      found.add(isNull ? null : InternalRow.copyValue(row.get(i, attributes.get(i).dataType())));
    }
    return found;
  }

  static InternalRow row(List<Object> values) {
    return new GenericInternalRow(values.toArray());
  }

  static Expression literal(Object value) {
    return Literal$.MODULE$.apply(value);
  }

  /** NULL, of a type. */
  static Expression nothing(DataType type) {
    return Literal$.MODULE$.create(null, type);
  }

  static <T> List<T> list(Seq<? extends T> items) {
    return new ArrayList<>(CollectionConverters.asJava(items));
  }

  /** A column of the same name, of another type. */
  static Attribute typed(Attribute column, DataType type) {
    return new AttributeReference(
        column.name(), type, true, column.metadata(), column.exprId(), seq(List.of()));
  }

  static List<Object> list(Object... values) {
    return Arrays.asList(values);
  }
}
