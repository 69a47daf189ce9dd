package org.mpca.reduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Test;

class OrderedSumTest {
    private static final Random RANDOM = new Random(7);

    private static byte[] part(int elements) {
        ByteBuffer bytes = ByteBuffer.allocate(elements * Float.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < elements; i++) {
            bytes.putFloat((float) (RANDOM.nextGaussian() * Math.pow(10, RANDOM.nextInt(8))));
        }
        return bytes.array();
    }

    /** The same bytes in buffers of both kinds, cut anywhere, some of them empty. */
    private static Scattered scatter(byte[] bytes) {
        List<ByteBuffer> buffers = new ArrayList<>();
        for (int at = 0; at < bytes.length || buffers.isEmpty(); ) {
            int size = Math.min(RANDOM.nextInt(23), bytes.length - at);
            int before = RANDOM.nextInt(3);
            ByteBuffer one = RANDOM.nextBoolean()
                    ? ByteBuffer.allocateDirect(before + size)
                    : ByteBuffer.allocate(before + size);
            one.position(before);
            one.put(bytes, at, size).position(before);
            buffers.add(one);
            at += size;
        }
        return new Scattered(buffers.toArray(new ByteBuffer[0]));
    }

    @Test
    void shouldGiveTheSameBitsInWhateverOrderPartsArriveAndHoweverTheyAreCut() {
        SpareArrays spare = new SpareArrays(3);
        for (int round = 0; round < 300; round++) {
            int elements = RANDOM.nextInt(40);
            int parts = 1 + RANDOM.nextInt(6);
            List<byte[]> data = new ArrayList<>();
            double[] weights = new double[parts];
            WeightedSum plain = new WeightedSum(elements * Float.BYTES);
            List<Integer> arrival = new ArrayList<>();
            for (int p = 0; p < parts; p++) {
                data.add(part(elements));
                weights[p] = RANDOM.nextDouble();
                plain.add(data.get(p), weights[p]);
                arrival.add(p);
            }
            Collections.shuffle(arrival, RANDOM);
            OrderedSum sum = new OrderedSum(elements * Float.BYTES, weights, spare);
            for (int p : arrival) {
                assertFalse(sum.has(p));
                if (RANDOM.nextInt(4) == 0) {
                    byte[] whole = new byte[data.get(p).length + 8];
                    System.arraycopy(data.get(p), 0, whole, 8, whole.length - 8);
                    assertTrue(sum.takeKept(p, whole, 8));
                } else {
                    assertTrue(sum.take(p, scatter(data.get(p))));
                }
                assertTrue(sum.has(p));
                assertFalse(sum.take(p, scatter(new byte[elements * Float.BYTES])), "came once more");
            }
            assertArrayEquals(plain.result(4), result(sum, elements * Float.BYTES + 4));
        }
    }

    /** Each part is decoded by itself, and all are added in float32 with float64 weights, in their order. */
    @Test
    void shouldAddEncodedPartsAsIfTheyHadBeenDecodedAllAtOnce() {
        SpareArrays spare = new SpareArrays(5);
        for (int round = 0; round < 300; round++) {
            Codec codec = Codec.values()[round % 3];
            int elements = 1 + RANDOM.nextInt(round % 4 == 0 ? 9000 : 700);
            int parameters = RANDOM.nextInt(elements + 1);
            ChunkPlan grid = ChunkPlan.of(elements * Float.BYTES, 1 + RANDOM.nextInt(3), ChunkPlan.MIN_BYTES);
            EncodedPlan plan = new EncodedPlan(codec, grid, parameters);
            int parts = 1 + RANDOM.nextInt(5);
            byte[] base = part(elements);
            List<byte[]> data = new ArrayList<>();
            List<float[]> decoded = new ArrayList<>();
            double[] weights = new double[parts];
            for (int p = 0; p < parts; p++) {
                data.add(new byte[plan.length()]);
                plan.encode(part(elements), base, null, null, data.get(p));
                weights[p] = RANDOM.nextDouble();
                decoded.add(decoded(plan, data.get(p), elements));
            }
            List<byte[]> before = new ArrayList<>();
            data.forEach(one -> before.add(one.clone()));
            for (int chunk = 0; chunk < plan.chunks(); chunk++) {
                float[] values = values(sum(plan, chunk, weights, spare, data));
                for (int i = 0; i < plan.elements(chunk); i++) {
                    float expected = 0f;
                    for (int p = 0; p < parts; p++) {
                        expected = (float) (expected + weights[p] * decoded.get(p)[plan.first(chunk) + i]);
                    }
                    assertEquals(Float.floatToRawIntBits(expected), Float.floatToRawIntBits(values[i]));
                }
                assertEquals(plan.elements(chunk), values.length);
                Arrays.fill(values, Float.NaN); // it is the caller's: no later sum is made in it
            }
            for (int p = 0; p < parts; p++) {
                assertArrayEquals(before.get(p), data.get(p));
            }
        }
    }

    private static float[] decoded(EncodedPlan plan, byte[] data, int elements) {
        float[] values = new float[elements];
        ByteBuffer in = ByteBuffer.wrap(data);
        for (int chunk = 0; chunk < plan.chunks(); chunk++) {
            plan.codec().decode(in, values, plan.first(chunk), plan.elements(chunk), plan.parameters(chunk));
        }
        assertEquals(0, in.remaining());
        return values;
    }

    /** The sum of one chunk, with parts in whatever order, from the network or from this executor. */
    private static OrderedSum sum(EncodedPlan plan, int chunk, double[] weights, SpareArrays spare, List<byte[]> data) {
        OrderedSum sum = new OrderedSum(plan, chunk, weights, spare);
        assertEquals(plan.length(chunk), sum.length());
        List<Integer> arrival = new ArrayList<>();
        for (int p = 0; p < weights.length; p++) {
            arrival.add(p);
        }
        Collections.shuffle(arrival, RANDOM);
        for (int p : arrival) {
            int end = plan.offset(chunk) + plan.length(chunk);
            byte[] some = Arrays.copyOfRange(data.get(p), plan.offset(chunk), end);
            assertTrue(
                    RANDOM.nextInt(3) == 0
                            ? sum.takeKept(p, data.get(p), plan.offset(chunk))
                            : sum.take(p, scatter(some)));
            assertTrue(sum.has(p));
            assertFalse(sum.take(p, scatter(some)), "came once more");
            assertFalse(sum.takeKept(p, some, 0), "came once more");
        }
        return sum;
    }

    @Test
    void shouldRefuseAnEncodedPartOfAnotherLength() {
        EncodedPlan plan = EncodedPlan.whole(Codec.INT8, 40, 10);
        OrderedSum sum = new OrderedSum(plan, 0, new double[] {1}, new SpareArrays(0));
        assertThrows(IllegalArgumentException.class, () -> sum.take(0, new Scattered(ByteBuffer.allocate(40))));
        assertFalse(sum.has(0));
    }

    @Test
    void shouldNotChangeWhatItWasShown() {
        byte[] kept = part(5);
        byte[] before = kept.clone();
        OrderedSum sum = new OrderedSum(20, new double[] {0.5, 0.5}, new SpareArrays(3));
        sum.takeKept(1, kept, 0);
        sum.take(0, scatter(part(5)));
        assertArrayEquals(before, kept);
        assertFalse(Arrays.equals(kept, result(sum, 20)));
    }

    private static byte[] result(OrderedSum sum, int length) {
        byte[] result = new byte[length];
        sum.result(result);
        return result;
    }

    private static float[] values(OrderedSum sum) {
        float[][] values = new float[1][];
        sum.values(shown -> values[0] = shown.clone());
        return values[0];
    }

    @Test
    void shouldRefuseAPartOfAnotherLength() {
        OrderedSum sum = new OrderedSum(8, new double[] {1}, new SpareArrays(0));
        assertThrows(IllegalArgumentException.class, () -> sum.take(0, new Scattered(ByteBuffer.allocate(12))));
    }

    @Test
    void shouldReadScatteredBytesAsIfTheyWereOneArray() {
        for (int round = 0; round < 100; round++) {
            byte[] bytes = part(1 + RANDOM.nextInt(20));
            Scattered scattered = scatter(bytes);
            assertEquals(bytes.length, scattered.length());
            assertArrayEquals(bytes, scattered.bytes());
            int at = RANDOM.nextInt(bytes.length - 3);
            assertEquals(ByteBuffer.wrap(bytes).getInt(at), scattered.intAt(at));
            assertArrayEquals(Arrays.copyOf(bytes, at), scattered.first(at).bytes());
            CRC32 one = new CRC32();
            CRC32 other = new CRC32();
            one.update(bytes);
            scattered.update(other);
            assertEquals(one.getValue(), other.getValue());
        }
    }

    @Test
    void shouldUseAnArrayAgainThatWasGivenBack() {
        SpareArrays spare = new SpareArrays(1);
        byte[] array = spare.take(60);
        spare.give(array);
        assertFalse(spare.take(59) == array);
        assertTrue(spare.take(60) == array);
        assertFalse(spare.take(60) == array, "it is out");
        spare.give(array);
        spare.give(new byte[60]); // beyond what may lie idle: the older one is dropped
        assertFalse(spare.take(60) == array);
    }
}
