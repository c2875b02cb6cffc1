package millstream.dataflow;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.ArrayList;
import java.util.List;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;

/** Rows expire once, when the watermark has passed their moment. */
class ExpiryProperties {
  private static final long SHIFT = 3;

  @Provide
  Arbitrary<List<List<Object>>> rows() {
    return Rows.of(Rows.ints(3), Rows.longs(20).injectNull(0.1)).list().ofMaxSize(30);
  }

  @Property
  void expire(@ForAll("rows") List<List<Object>> rows) {
    Columns columns = Columns.of("k int, t bigint");
    Expiry expiry = new Expiry(columns.pick(1), columns.seq(), SHIFT);
    Host.Plan plan = new Host.Plan(new ArrayList<>(), new ArrayList<>(), columns);
    try (Host host = new Host(plan, 400)) {
      expiry.open(host.dataflow());
      List<List<Object>> waiting = new ArrayList<>();
      long watermark = 0;
      host.commit(watermark);
      for (int i = 0; i < rows.size(); i++) {
        List<Object> row = rows.get(i);
        Key key = new Key(new byte[] {((Integer) row.get(0)).byteValue()});
        expiry.add(key, new byte[] {(byte) i}, Columns.row(row), 1 + i % 2);
        waiting.add(Columns.list(key, (byte) i, 1L + i % 2, row.get(1)));
        if (i % 4 == 3) {
          watermark = i;
          host.commit(watermark);
        }
        drain(expiry, watermark, waiting);
      }
      host.commit(100);
      drain(expiry, 100, waiting);
      assertEquals(List.of(), waiting);
      assertEquals(0, host.rows());
    }
  }

  private static void drain(Expiry expiry, long watermark, List<List<Object>> waiting) {
    Bag expected = new Bag(), found = new Bag();
    waiting.removeIf(
        each -> {
          boolean passed = each.get(3) == null || (long) each.get(3) + SHIFT < watermark;
          if (passed) expected.add(each.subList(0, 3), 1);
          return passed;
        });
    for (var each = expiry.next(watermark); each != null; each = expiry.next(watermark)) {
      found.add(Columns.list(each.key, each.row[0], each.weight), 1);
    }
    assertEquals(expected, found);
    assertNull(expiry.next(watermark));
  }
}
