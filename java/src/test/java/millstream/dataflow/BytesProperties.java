package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import net.jqwik.api.EdgeCasesMode;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;

/** What is written is what is read. */
class BytesProperties {
  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void roundTrip(@ForAll List<Long> numbers, @ForAll byte[] text) {
    Bytes out = new Bytes(1);
    for (long each : numbers) {
      out.putSmall(each);
      out.putLong(each);
      out.putInt((int) each);
      out.putByte((int) each);
    }
    out.putSmall(text.length);
    out.put(text, 0, text.length);
    Bytes in = new Bytes(out.copy(), 0);
    for (long each : numbers) {
      assertEquals(each, in.getSmall());
      assertEquals(each, in.getLong());
      assertEquals((int) each, in.getInt());
      assertEquals((byte) each, in.getByte());
    }
    assertArrayEquals(text, in.get((int) in.getSmall()));
    assertEquals(out.at, in.at);
  }

  /** Numbers near zero take one byte. */
  @Property(edgeCases = EdgeCasesMode.MIXIN)
  void smallNumbersAreShort(@ForAll byte value) {
    Bytes out = new Bytes(1);
    out.putSmall(value);
    assertEquals(value >= -64 && value < 64 ? 1 : 2, out.at);
  }
}
