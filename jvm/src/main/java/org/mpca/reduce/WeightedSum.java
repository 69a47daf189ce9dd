package org.mpca.reduce;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;

/**
 * A weighted sum of float32 vectors, little-endian bytes in and out (MPCA SGD, eq. 9).
 *
 * <p>The accumulator starts as float32 zeros; each part adds {@code acc = float32(acc + w * float64(part))}. What is
 * added first matters for the last bit, so the caller adds in the order that the driver gave, not in that of arrival.
 * The same formula is {@code algorithm/averaging.py}; the simulator and every executor give the same bytes.
 *
 * <p>Concurrency: one thread at a time.
 */
public final class WeightedSum {
  private final float[] sum;

  /** @param length bytes, whole elements */
  public WeightedSum(int length) {
    if (length < 0 || length % Float.BYTES != 0) {
      throw new IllegalArgumentException("not whole float32 elements: length=" + length);
    }
    sum = new float[length / Float.BYTES];
  }

  /** Adds {@code weight} times all of {@code part}. */
  public void add(byte[] part, double weight) {
    add(ByteBuffer.wrap(part), weight);
  }

  /** Adds {@code weight} times what is left in {@code part}, whose position stays. */
  public void add(ByteBuffer part, double weight) {
    if (part.remaining() != sum.length * Float.BYTES) {
      throw new IllegalArgumentException(
          "part is of another length: bytes=" + part.remaining() + ", expected=" + sum.length * Float.BYTES);
    }
    ByteBuffer bytes = part.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    int position = bytes.position();
    for (int i = 0; i < sum.length; i++) {
      sum[i] = (float) (sum[i] + weight * bytes.getFloat(position + i * Float.BYTES));
    }
  }

  /** The sum, as bytes of the caller's own. */
  public byte[] result() {
    return result(0);
  }

  /** The same, with so many bytes more behind it. */
  public byte[] result(int room) {
    ByteBuffer bytes = ByteBuffer.allocate(sum.length * Float.BYTES + room).order(ByteOrder.LITTLE_ENDIAN);
    bytes.asFloatBuffer().put(sum);
    return bytes.array();
  }

  /**
   * The mean that one executor contributes: w_i = tau_i / sum tau, agents in the order given. A single agent's shard
   * is returned unchanged, the same array.
   */
  public static byte[] mean(List<byte[]> shards, List<Double> taus) {
    if (shards.isEmpty() || shards.size() != taus.size()) {
      throw new IllegalArgumentException("shards and taus do not pair: " + shards.size() + " and " + taus.size());
    }
    if (shards.size() == 1) {
      return shards.get(0);
    }
    double total = 0.0;
    for (double tau : taus) {
      total += tau;
    }
    if (!(total > 0.0)) {
      throw new IllegalArgumentException("sum of tau is not positive: " + taus);
    }
    WeightedSum sum = new WeightedSum(shards.get(0).length);
    for (int i = 0; i < shards.size(); i++) {
      sum.add(shards.get(i), taus.get(i) / total);
    }
    return sum.result();
  }
}
