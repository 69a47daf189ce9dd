package org.mpca.reduce;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
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
    private final SpareArrays spare;

    /** @param length bytes, whole elements */
    public WeightedSum(int length) {
        this(length, null);
    }

    /** With a spare array, which goes back at the {@link #end}. */
    WeightedSum(int length, SpareArrays spare) {
        if (length < 0 || length % Float.BYTES != 0) {
            throw new IllegalArgumentException("not whole float32 elements: length=" + length);
        }
        this.spare = spare;
        this.sum = spare == null ? new float[length / Float.BYTES] : spare.takeFloats(length / Float.BYTES);
        if (spare != null) {
            Arrays.fill(sum, 0);
        }
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
        add(new Scattered(part.slice()), weight); // a view: its byte order is set
    }

    /** Adds {@code weight} times the elements that lie in `array` from an offset on. */
    void add(byte[] array, int offset, double weight) {
        add(ByteBuffer.wrap(array, offset, sum.length * Float.BYTES), weight);
    }

    /** Adds {@code weight} times all of {@code part}. */
    void add(float[] part, double weight) {
        for (int i = 0; i < sum.length; i++) {
            sum[i] = (float) (sum[i] + weight * part[i]);
        }
    }

    /** The sum itself, and no copy. */
    float[] values() {
        return sum;
    }

    /** Adds {@code weight} times all of {@code part}, from where it lies. */
    public void add(Scattered part, double weight) {
        if (part.length() != sum.length * Float.BYTES) {
            throw new IllegalArgumentException(
                    "part is of another length: bytes=" + part.length() + ", expected=" + sum.length * Float.BYTES);
        }
        int element = 0;
        int bits = 0;
        int have = 0; // bytes of the element that begins in one buffer and ends in another
        for (ByteBuffer bytes : part.buffers()) {
            bytes.order(ByteOrder.LITTLE_ENDIAN);
            int at = 0;
            while (at < bytes.limit() && have > 0) {
                bits |= (bytes.get(at++) & 0xFF) << 8 * have++;
                if (have == Float.BYTES) {
                    sum[element] = (float) (sum[element] + weight * Float.intBitsToFloat(bits));
                    element++;
                    have = 0;
                    bits = 0;
                }
            }
            int whole = (bytes.limit() - at) / Float.BYTES;
            // Two loops of the same: one that meets both kinds of buffer is compiled for neither.
            if (bytes.isDirect()) {
                addDirect(bytes, at, element, whole, weight);
            } else {
                addHeap(bytes, at, element, whole, weight);
            }
            element += whole;
            for (at += whole * Float.BYTES; at < bytes.limit(); at++) {
                bits |= (bytes.get(at) & 0xFF) << 8 * have++;
            }
        }
    }

    private void addDirect(ByteBuffer bytes, int position, int first, int count, double weight) {
        for (int i = 0; i < count; i++) {
            sum[first + i] = (float) (sum[first + i] + weight * bytes.getFloat(position + i * Float.BYTES));
        }
    }

    private void addHeap(ByteBuffer bytes, int position, int first, int count, double weight) {
        for (int i = 0; i < count; i++) {
            sum[first + i] = (float) (sum[first + i] + weight * bytes.getFloat(position + i * Float.BYTES));
        }
    }

    /** Gives back what was spare; this sum is used no more. */
    void end() {
        spare.give(sum);
    }

    /** The sum, as bytes of the caller's own. */
    public byte[] result() {
        return result(0);
    }

    /** The same, with so many bytes more behind it. */
    public byte[] result(int room) {
        return result(new byte[sum.length * Float.BYTES + room]);
    }

    /** The same, at the start of an array. */
    byte[] result(byte[] into) {
        ByteBuffer.wrap(into).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().put(sum);
        return into;
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
