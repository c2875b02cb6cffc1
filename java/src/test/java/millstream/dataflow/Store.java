package millstream.dataflow;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker$;
import org.apache.spark.sql.streaming.ValueState;

/** Spark's state store, in memory: a value for the key that is set where Spark keeps it. */
final class Store implements ValueState<byte[]> {
  private static final long serialVersionUID = 1L;
  private final transient Map<ByteBuffer, byte[]> values = new HashMap<>();

  private static ByteBuffer key() {
    Object key = ImplicitGroupingKeyTracker$.MODULE$.getImplicitKeyOption().get();
    return ByteBuffer.wrap(((byte[]) key).clone());
  }

  @Override
  public boolean exists() {
    return values.containsKey(key());
  }

  @Override
  public byte[] get() {
    return values.get(key());
  }

  @Override
  public void update(byte[] value) {
    values.put(key(), value.clone());
  }

  @Override
  public void clear() {
    values.remove(key());
  }

  int size() {
    return values.size();
  }
}
