package org.mpca.reduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Test;
import org.mpca.Golden;

class EncodedPlanTest {
    /** As {@code tests/golden/make_wire.py}. */
    private static float[] numbers(int seed, int count) {
        float[] numbers = new float[count];
        for (int i = 0; i < count; i++) {
            long whole = (i * 7919L + seed * 104729L) % 20011 - 10005;
            numbers[i] = (float) Math.scalb((double) whole, -(8 + i / (70 + seed) % 24));
        }
        return numbers;
    }

    static byte[] bytes(float[] values) {
        ByteBuffer bytes = ByteBuffer.allocate(values.length * Float.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asFloatBuffer().put(values);
        return bytes.array();
    }

    private static long crc(byte[] bytes, int from, int end) {
        CRC32 crc = new CRC32();
        crc.update(bytes, from, end - from);
        return crc.getValue();
    }

    private static long crc(byte[] bytes) {
        return crc(bytes, 0, bytes.length);
    }

    @Test
    void shouldWriteAndReadTheGoldenShards() {
        int shards = 0;
        for (JsonNode one : Golden.read("wire/encoded.json")) {
            String what = one.get("codec") + " " + one.get("elements");
            int elements = one.get("elements").asInt();
            ChunkPlan chunks = ChunkPlan.of(
                    elements * Float.BYTES,
                    one.get("executors").asInt(),
                    one.get("chunk").asInt());
            EncodedPlan plan = new EncodedPlan(
                    Codec.named(one.get("codec").asText()),
                    chunks,
                    one.get("parameters").asInt());
            byte[] base = bytes(numbers(2, elements));
            float[] before = one.get("carried").asBoolean() ? numbers(3, elements) : null;
            float[] rest = new float[elements];
            Arrays.fill(rest, Float.NaN);
            byte[] data = new byte[plan.length()];
            plan.encode(bytes(numbers(1, elements)), base, before, rest, data);

            assertEquals(one.get("edges").size(), plan.chunks() + 1, what);
            assertArrayEquals(plan.edges(), edges(plan), what);
            for (int chunk = 0; chunk < plan.chunks(); chunk++) {
                assertEquals(one.get("edges").get(chunk).asInt(), plan.first(chunk), what);
                assertEquals(one.get("lengths").get(chunk).asInt(), plan.length(chunk), what);
                long crc = crc(data, plan.offset(chunk), plan.offset(chunk) + plan.length(chunk));
                assertEquals(one.get("crcs").get(chunk).asLong(), crc, what + " chunk " + chunk);
            }
            assertEquals(one.get("rest").asLong(), crc(bytes(rest)), what);
            byte[] result = new byte[elements * Float.BYTES];
            plan.decode(data, base, result);
            assertEquals(one.get("result").asLong(), crc(result), what);
            shards++;
        }
        assertTrue(shards >= 12, "golden shards: " + shards);
    }

    private static int[] edges(EncodedPlan plan) {
        int[] edges = new int[plan.chunks() + 1];
        for (int chunk = 0; chunk < plan.chunks(); chunk++) {
            edges[chunk + 1] = edges[chunk] + plan.length(chunk);
        }
        assertEquals(plan.length(), edges[plan.chunks()]);
        return edges;
    }

    @Test
    void shouldTreatAChunkByItselfAsInTheWholeShard() {
        int elements = 9001;
        for (Codec codec : Codec.values()) {
            EncodedPlan plan = new EncodedPlan(codec, ChunkPlan.of(elements * Float.BYTES, 2, 16 << 10), 8500);
            byte[] base = bytes(numbers(2, elements));
            float[] before = numbers(3, elements);
            float[] rest = new float[elements];
            byte[] data = new byte[plan.length()];
            plan.encode(bytes(numbers(1, elements)), base, before, rest, data);
            byte[] result = new byte[elements * Float.BYTES];
            plan.decode(data, base, result);
            for (int chunk = 0; chunk < plan.chunks(); chunk++) {
                int first = plan.first(chunk);
                int end = first + plan.elements(chunk);
                float[] differences = differences(elements, plan, chunk);
                float[] left = new float[plan.elements(chunk) + 2];
                ByteBuffer out = ByteBuffer.allocate(plan.length(chunk) + 5);
                out.position(3);
                plan.encode(chunk, differences, Arrays.copyOfRange(before, first, end), 0, left, 2, out);
                assertEquals(3 + plan.length(chunk), out.position());
                assertArrayEquals(
                        Arrays.copyOfRange(data, plan.offset(chunk), plan.offset(chunk) + plan.length(chunk)),
                        Arrays.copyOfRange(out.array(), 3, out.position()));
                assertArrayEquals(Arrays.copyOfRange(rest, first, end), Arrays.copyOfRange(left, 2, left.length));

                byte[] alone = new byte[plan.elements(chunk) * Float.BYTES + 8];
                out.position(3);
                plan.decode(chunk, out, base, alone, 8);
                assertArrayEquals(
                        Arrays.copyOfRange(result, first * Float.BYTES, end * Float.BYTES),
                        Arrays.copyOfRange(alone, 8, alone.length));
            }
        }
    }

    private static float[] differences(int elements, EncodedPlan plan, int chunk) {
        float[] values = numbers(1, elements);
        float[] base = numbers(2, elements);
        float[] some = new float[plan.elements(chunk)];
        for (int i = 0; i < some.length; i++) {
            int at = plan.first(chunk) + i;
            some[i] = i < plan.parameters(chunk) ? values[at] - base[at] : values[at];
        }
        return some;
    }

    @Test
    void shouldLeaveWhatItWasShownAsItIs() {
        int elements = 5000;
        EncodedPlan plan = EncodedPlan.whole(Codec.INT4, elements * Float.BYTES, elements);
        byte[] values = bytes(numbers(1, elements));
        byte[] base = bytes(numbers(2, elements));
        float[] before = numbers(3, elements);
        byte[] first = new byte[plan.length()];
        plan.encode(values, base, before, new float[elements], first);
        byte[] again = new byte[plan.length()];
        plan.encode(values, base, before, null, again); // whether anybody wants the rest changes nothing
        assertArrayEquals(first, again);
        plan.decode(first, base, new byte[elements * Float.BYTES]);
        assertArrayEquals(first, again);
        assertArrayEquals(bytes(numbers(1, elements)), values);
        assertArrayEquals(bytes(numbers(2, elements)), base);
        assertArrayEquals(numbers(3, elements), before);
    }

    @Test
    void shouldHaveNoDifferenceOfBuffers() {
        float[] values = {3f, Float.NaN, Float.NEGATIVE_INFINITY, -0f};
        byte[] base = bytes(new float[] {1f, 5f, 6f, 7f});
        float[] before = {0f, 9f, 9f, 9f};
        for (Codec codec : Codec.values()) {
            EncodedPlan plan = EncodedPlan.whole(codec, 16, 1);
            float[] rest = {7f, 7f, 7f, 7f};
            byte[] data = new byte[plan.length()];
            plan.encode(bytes(values), base, before, rest, data);
            byte[] result = new byte[16];
            plan.decode(data, base, result);
            assertArrayEquals(Arrays.copyOfRange(bytes(values), 4, 16), Arrays.copyOfRange(result, 4, 16));
            assertArrayEquals(new float[3], Arrays.copyOfRange(rest, 1, 4));
        }
    }

    @Test
    void shouldRefuseADifferenceThatIsNotFinite() {
        float most = Float.MAX_VALUE;
        float[][][] cases = { // values, base, carried
            {{0f, Float.NaN}, {0f, 0f}, null},
            {{0f, Float.POSITIVE_INFINITY}, {0f, 0f}, null},
            {{0f, most}, {0f, -most}, null},
            {{0f, most}, {0f, 0f}, {0f, most}},
        };
        for (Codec codec : Codec.values()) {
            EncodedPlan plan = EncodedPlan.whole(codec, 8, 2);
            for (float[][] one : cases) {
                assertThrows(
                        IllegalArgumentException.class,
                        () -> plan.encode(bytes(one[0]), bytes(one[1]), one[2], new float[2], new byte[plan.length()]));
            }
        }
    }
}
