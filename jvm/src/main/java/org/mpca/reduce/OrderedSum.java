package org.mpca.reduce;

import java.nio.ByteBuffer;
import java.util.function.Consumer;

/**
 * The weighted sum of one chunk, of parts that arrive in any order and are added in theirs. A part whose turn it is is added from
 * where it lies; one that comes too early is copied, and waits. Encoded parts are decoded one after the other.
 *
 * <p>Concurrency: safe from any thread; one adds at a time.
 */
public final class OrderedSum {
    private final double[] weights;
    private final byte[][] waiting;
    private final int[] offsets;
    private final boolean[] here;
    private final SpareArrays spare;
    private final int length;
    /** How parts are encoded; null: they are float32. */
    private final EncodedPlan coded;
    /** Of the plan. */
    private final int chunk;

    private WeightedSum sum;
    private int next;

    /**
     * @param length bytes of the chunk
     * @param weights of the parts, in their order; they sum to one
     * @param spare for copies of parts that wait
     */
    public OrderedSum(int length, double[] weights, SpareArrays spare) {
        this(length, null, 0, weights, spare);
    }

    /** The sum of encoded parts: of one chunk of this plan. */
    public OrderedSum(EncodedPlan coded, int chunk, double[] weights, SpareArrays spare) {
        this(coded.length(chunk), coded, chunk, weights, spare);
    }

    private OrderedSum(int length, EncodedPlan coded, int chunk, double[] weights, SpareArrays spare) {
        this.length = length;
        this.coded = coded;
        this.chunk = chunk;
        this.weights = weights;
        this.waiting = new byte[weights.length][];
        this.offsets = new int[weights.length];
        this.here = new boolean[weights.length];
        this.spare = spare;
    }

    /** Bytes of a part of the chunk, as it travels. */
    public int length() {
        return length;
    }

    /** Takes a part that is valid during the call only; false if it was here already. */
    public synchronized boolean take(int part, Scattered bytes) {
        if (bytes.length() != length) {
            throw new IllegalArgumentException(
                    "part is of another length: bytes=" + bytes.length() + ", expected=" + length);
        }
        if (here[part]) {
            return false;
        }
        here[part] = true;
        if (part == next && coded == null) {
            sum().add(bytes, weights[next++]);
            addWaiting();
        } else {
            waiting[part] = spare.take(length);
            offsets[part] = 0;
            bytes.copyTo(waiting[part], 0);
            addWaiting();
        }
        return true;
    }

    /** Takes a part that stays as it is, from an offset of the array on; false if it was here already. */
    public synchronized boolean takeKept(int part, byte[] array, int offset) {
        if (here[part]) {
            return false;
        }
        here[part] = true;
        waiting[part] = array;
        offsets[part] = -1 - offset; // it is no copy of ours
        addWaiting();
        return true;
    }

    private void addWaiting() {
        while (next < weights.length && waiting[next] != null) {
            boolean kept = offsets[next] < 0;
            byte[] array = waiting[next];
            waiting[next] = null;
            add(array, kept ? -1 - offsets[next] : 0, weights[next]);
            if (!kept) {
                spare.give(array);
            }
            next++;
        }
    }

    private void add(byte[] array, int offset, double weight) {
        if (coded == null) {
            sum().add(array, offset, weight);
            return;
        }
        float[] values = spare.takeFloats(coded.elements(chunk));
        ByteBuffer data = ByteBuffer.wrap(array, offset, length);
        coded.codec().decode(data, values, 0, values.length, coded.parameters(chunk));
        sum().add(values, weight);
        spare.give(values);
    }

    private WeightedSum sum() {
        if (sum == null) {
            sum = new WeightedSum(coded == null ? length : coded.elements(chunk) * Float.BYTES, spare);
        }
        return sum;
    }

    /** Whether this part has come. */
    public synchronized boolean has(int part) {
        return here[part];
    }

    /** Lends out the sum of encoded parts, once it is complete: it may be overwritten, and is used again afterwards. Once. */
    public synchronized void values(Consumer<float[]> taken) {
        taken.accept(sum().values());
        sum.end();
    }

    /** Writes the sum to the start of an array, once it is complete. Once: what it needed is used again. */
    public synchronized void result(byte[] into) {
        sum().result(into);
        sum.end();
    }
}
