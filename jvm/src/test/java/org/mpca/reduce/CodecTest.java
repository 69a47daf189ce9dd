package org.mpca.reduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.junit.jupiter.api.Test;
import org.mpca.Golden;

class CodecTest {
    @Test
    void shouldWriteAndReadTheGoldenBytes() {
        int chunks = 0;
        for (JsonNode one : Golden.read("wire/codecs.json")) {
            Codec codec = Codec.named(one.get("codec").asText());
            int parameters = one.get("parameters").asInt();
            float[] values = floats(one.get("values"));
            byte[] expected = Golden.hex(one.get("bytes").asText());
            assertEquals(expected.length, codec.size(values.length, parameters));
            ByteBuffer out = ByteBuffer.allocate(expected.length + 5);
            out.position(3);
            codec.encode(moved(values), 2, values.length, parameters, out);
            assertEquals(3 + expected.length, out.position());
            byte[] written = new byte[expected.length];
            System.arraycopy(out.array(), 3, written, 0, written.length);
            assertArrayEquals(expected, written, one.get("codec") + " " + one.get("name"));

            float[] read = new float[values.length + 2];
            out.position(3);
            codec.decode(out, read, 2, values.length, parameters);
            assertEquals(3 + expected.length, out.position());
            assertArrayEquals(bits(floats(one.get("decoded"))), bits(original(read)));
            chunks++;
        }
        assertTrue(chunks > 20, "golden chunks: " + chunks);
    }

    @Test
    void shouldRefuseWhatIsNotFinite() {
        for (Codec codec : Codec.values()) {
            for (float bad : new float[] {Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY}) {
                float[] values = {0f, bad};
                assertThrows(
                        IllegalArgumentException.class, () -> codec.encode(values, 0, 2, 2, ByteBuffer.allocate(64)));
                ByteBuffer out = ByteBuffer.allocate(64);
                codec.encode(values, 0, 2, 1, out); // a buffer is not looked at
                assertEquals(codec.size(2, 1), out.position());
            }
            assertThrows(IllegalArgumentException.class, () -> codec.size(2, 3));
        }
    }

    @Test
    void shouldNameEachCodecAndThatOfItsSums() {
        assertSame(Codec.BF16, Codec.named("bf16").ofSums());
        assertSame(Codec.INT8, Codec.named("int8").ofSums());
        assertSame(Codec.INT8, Codec.named("int4").ofSums());
        assertThrows(IllegalArgumentException.class, () -> Codec.named("int2"));
    }

    private static float[] floats(JsonNode hex) {
        ByteBuffer bytes = ByteBuffer.wrap(Golden.hex(hex.asText())).order(ByteOrder.LITTLE_ENDIAN);
        float[] values = new float[bytes.remaining() / Float.BYTES];
        bytes.asFloatBuffer().get(values);
        return values;
    }

    /** The same numbers, from the third element on. */
    private static float[] moved(float[] values) {
        float[] moved = new float[values.length + 2];
        System.arraycopy(values, 0, moved, 2, values.length);
        return moved;
    }

    private static float[] original(float[] moved) {
        float[] values = new float[moved.length - 2];
        System.arraycopy(moved, 2, values, 0, values.length);
        return values;
    }

    private static int[] bits(float[] values) {
        int[] bits = new int[values.length];
        for (int i = 0; i < values.length; i++) {
            bits[i] = Float.floatToRawIntBits(values[i]);
        }
        return bits;
    }
}
