package millstream.bridge;

import java.util.ArrayList;
import java.util.HashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Rows that were not sent yet. Of a group only the newest is kept, so that a reader who is behind
 * gets fewer rows, not older ones. Without a hash column every row counts, and all are kept.
 */
final class Pending {
  private final int hash;
  private final int[] keys;
  private final DataType[] types;
  private final HashMap places = new HashMap();
  private final ArrayList rows = new ArrayList();

  private Pending(int hash, int[] keys, DataType[] types) {
    this.hash = hash;
    this.keys = keys;
    this.types = types;
  }

  static Pending of(StructType schema, String keys, int hash) {
    String[] names = keys == null || keys.isEmpty() ? new String[0] : keys.split(",");
    int[] places = new int[names.length];
    DataType[] types = new DataType[names.length];
    for (int i = 0; i < names.length; i++) {
      places[i] = Integer.parseInt(names[i]);
      types[i] = schema.fields()[places[i]].dataType();
    }
    return new Pending(hash, places, types);
  }

  int size() {
    return rows.size();
  }

  InternalRow get(int place) {
    return (InternalRow) rows.get(place);
  }

  void clear() {
    rows.clear();
    places.clear();
  }

  void add(InternalRow row) {
    InternalRow copy = row.copy();
    if (hash >= 0) {
      Long key = Long.valueOf(row.getLong(hash));
      Integer place = (Integer) places.get(key);
      if (place != null && isSameGroup((InternalRow) rows.get(place.intValue()), copy)) {
        rows.set(place.intValue(), copy);
        return;
      }
      places.put(key, Integer.valueOf(rows.size()));
    }
    rows.add(copy);
  }

  private boolean isSameGroup(InternalRow one, InternalRow other) {
    for (int i = 0; i < keys.length; i++) {
      Object left = one.isNullAt(keys[i]) ? null : one.get(keys[i], types[i]);
      Object right = other.isNullAt(keys[i]) ? null : other.get(keys[i], types[i]);
      if (left == null ? right != null : !left.equals(right)) return false;
    }
    return true;
  }
}
