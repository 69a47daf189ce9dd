package org.mpca.reduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Test;

/** Whatever is read of it, and however often, it is the same bytes. */
class ScatteredTest {
    private static final Random RANDOM = new Random(8);

    @Test
    void shouldBeTheBytesOfItsBuffersHoweverTheyLie() {
        for (int round = 0; round < 300; round++) {
            byte[] whole = new byte[RANDOM.nextInt(60)];
            RANDOM.nextBytes(whole);
            Scattered all = scattered(whole);
            int count = RANDOM.nextInt(whole.length + 1);
            Scattered first = all.first(count);
            for (int twice = 0; twice < 2; twice++) {
                same(all, whole);
                same(first, Arrays.copyOf(whole, count));
            }
        }
    }

    private static Scattered scattered(byte[] whole) {
        ByteBuffer[] buffers = new ByteBuffer[1 + RANDOM.nextInt(5)];
        int at = 0;
        for (int i = 0; i < buffers.length; i++) {
            int length = i + 1 == buffers.length ? whole.length - at : RANDOM.nextInt(whole.length - at + 1);
            int before = RANDOM.nextInt(3);
            ByteBuffer one = RANDOM.nextBoolean() ? ByteBuffer.allocate(70) : ByteBuffer.allocateDirect(70);
            one.position(before);
            one.put(whole, at, length);
            one.limit(before + length);
            one.position(before);
            buffers[i] = one;
            at += length;
        }
        return new Scattered(buffers);
    }

    private static void same(Scattered scattered, byte[] expected) {
        assertEquals(expected.length, scattered.length());
        assertArrayEquals(expected, scattered.bytes());
        byte[] behind = new byte[expected.length + 3];
        scattered.copyTo(behind, 3);
        assertArrayEquals(expected, Arrays.copyOfRange(behind, 3, behind.length));
        CRC32 crc = new CRC32();
        scattered.update(crc);
        CRC32 other = new CRC32();
        other.update(expected, 0, expected.length);
        assertEquals(other.getValue(), crc.getValue());
        for (int at = 0; at + Integer.BYTES <= expected.length; at++) {
            assertEquals(ByteBuffer.wrap(expected).getInt(at), scattered.intAt(at));
        }
    }
}
