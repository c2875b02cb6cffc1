package millstream.dataflow;

import java.math.BigInteger;

/**
 * A sum of doubles that is rounded once, when it is read: the order of additions does not matter,
 * and what was added can be taken away. The finite part is units * 2^exponent; the rest is counted.
 */
final class ExactSum {
  /** Places in {@link #counts}. */
  private static final int VALUES = 0, NAN = 1, POSITIVE = 2, NEGATIVE = 3;

  private static final int FRACTION_BITS = 52;
  private static final int LOWEST = -1074;

  private final long[] counts = new long[4];
  private BigInteger units = BigInteger.ZERO;
  private int exponent = 0;

  void add(double value, long weight) {
    counts[VALUES] += weight;
    if (value != value) {
      counts[NAN] += weight;
    } else if (Double.isInfinite(value)) {
      counts[value > 0.0 ? POSITIVE : NEGATIVE] += weight;
    } else if (value != 0.0) {
      addFinite(value, weight);
    }
  }

  /** The sum, or null when nothing is left that was added. */
  Double value() {
    if (counts[VALUES] <= 0L) return null;
    boolean up = counts[POSITIVE] > 0L, down = counts[NEGATIVE] > 0L;
    if (counts[NAN] > 0L || up && down) return Double.valueOf(Double.NaN);
    if (up || down) return Double.valueOf(up ? Double.POSITIVE_INFINITY : Double.NEGATIVE_INFINITY);
    return Double.valueOf(rounded());
  }

  private void addFinite(double value, long weight) {
    long bits = Double.doubleToRawLongBits(value);
    int power = (int) (bits >>> FRACTION_BITS) & 0x7ff;
    long fraction = bits & ((1L << FRACTION_BITS) - 1L);
    if (power > 0) fraction |= 1L << FRACTION_BITS;
    int zeros = Long.numberOfTrailingZeros(fraction);
    fraction >>>= zeros;
    BigInteger amount = BigInteger.valueOf(bits < 0L ? -fraction : fraction);
    if (weight != 1L) amount = amount.multiply(BigInteger.valueOf(weight));
    addUnits(amount, Math.max(power, 1) - 1 + LOWEST + zeros);
  }

  private void addUnits(BigInteger amount, int power) {
    if (amount.signum() == 0) return;
    if (units.signum() == 0) exponent = power;
    if (power < exponent) {
      units = units.shiftLeft(exponent - power);
      exponent = power;
    }
    units = units.add(power > exponent ? amount.shiftLeft(power - exponent) : amount);
  }

  private double rounded() {
    BigInteger size = units.abs();
    int dropped = Math.max(0, size.bitLength() - 62);
    long top = size.shiftRight(dropped).longValue();
    // The lowest bit stands for all that was dropped, so that the one rounding goes the right way.
    if (dropped > 0 && size.getLowestSetBit() < dropped) top |= 1L;
    double result = Math.scalb((double) top, exponent + dropped);
    return units.signum() < 0 ? -result : result;
  }

  void write(Bytes out) {
    boolean special = counts[NAN] != 0L || counts[POSITIVE] != 0L || counts[NEGATIVE] != 0L;
    out.putByte(special ? 1 : 0);
    for (int i = 0; i < (special ? counts.length : 1); i++) out.putLong(counts[i]);
    int zeros = Math.max(0, units.getLowestSetBit());
    byte[] bytes = units.shiftRight(zeros).toByteArray();
    out.putInt(exponent + zeros);
    out.putInt(bytes.length);
    out.put(bytes, 0, bytes.length);
  }

  static ExactSum read(Bytes in) {
    ExactSum sum = new ExactSum();
    boolean special = in.getByte() != 0;
    for (int i = 0; i < (special ? sum.counts.length : 1); i++) sum.counts[i] = in.getLong();
    sum.exponent = in.getInt();
    int length = in.getInt();
    sum.units = new BigInteger(in.array, in.at, length);
    in.at += length;
    return sum;
  }
}
