package millstream.functions;

import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.AnyDataType$;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.immutable.Seq;

/** An aggregate over rows that come and go: its last argument is the weight, its state a multiset. */
abstract class MultisetAggregate extends StateAggregate {
  private transient Codec[] codecs;
  private transient Bytes key;

  protected MultisetAggregate(String name, Seq children, int mutableOffset, int inputOffset) {
    super(name, children, mutableOffset, inputOffset);
  }

  /** How the values of an argument are written. */
  protected final Codec codec(int argument) {
    if (codecs == null) {
      Codec[] made = new Codec[arguments() - 1];
      for (int i = 0; i < made.length; i++) made[i] = Codec.of(argument(i).dataType());
      codecs = made;
    }
    return codecs[argument];
  }

  /** An empty place to write a key to; the same one each time. */
  protected final Bytes key() {
    if (key == null) key = new Bytes(32);
    key.at = 0;
    return key;
  }

  protected AbstractDataType[] argumentTypes() {
    AbstractDataType[] types = new AbstractDataType[arguments()];
    for (int i = 0; i < types.length - 1; i++) types[i] = AnyDataType$.MODULE$;
    types[types.length - 1] = DataTypes.LongType;
    return types;
  }

  protected String objection() {
    for (int i = 0; i < arguments() - 1; i++) {
      if (codec(i) == null) return "values of type " + argument(i).dataType().sql() + " cannot be ordered";
    }
    return null;
  }

  public Object createAggregationBuffer() { return new Multiset(Run.EMPTY); }

  public Object merge(Object state, Object other) {
    ((Multiset) state).addAll((Multiset) other);
    return state;
  }

  public byte[] serialize(Object state) { return ((Multiset) state).run().bytes; }

  public Object deserialize(byte[] bytes) { return new Multiset(new Run(bytes)); }
}
