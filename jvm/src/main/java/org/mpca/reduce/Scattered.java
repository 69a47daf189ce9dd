package org.mpca.reduce;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.zip.CRC32;

/**
 * Bytes that lie in several buffers, one behind the other: a block as the network left it. An element may lie in two of them.
 *
 * <p>The network reads some kilobytes at a time, so that a shard has thousands of buffers: views of them are made only where one
 * must be shorter.
 *
 * <p>Concurrency: one thread at a time, and nobody else uses the buffers meanwhile. It is valid as long as they are.
 */
public final class Scattered {
    private final ByteBuffer[] buffers;
    private final int length;

    /** What is left in the buffers, whose positions stay. */
    public Scattered(ByteBuffer... buffers) {
        int sum = 0;
        this.buffers = new ByteBuffer[buffers.length];
        for (int i = 0; i < buffers.length; i++) {
            this.buffers[i] = buffers[i].position() == 0 ? buffers[i] : buffers[i].slice();
            sum += buffers[i].remaining();
        }
        this.length = sum;
    }

    /** Bytes. */
    public int length() {
        return length;
    }

    /** The first so many bytes. */
    public Scattered first(int count) {
        int rest = count;
        int whole = 0;
        while (whole < buffers.length && buffers[whole].limit() <= rest) {
            rest -= buffers[whole++].limit();
        }
        ByteBuffer[] some = Arrays.copyOf(buffers, rest == 0 ? whole : whole + 1);
        if (rest > 0) {
            some[whole] = buffers[whole].duplicate();
            some[whole].limit(rest);
        }
        return new Scattered(some);
    }

    /** The four bytes from `position` on, big-endian. */
    public int intAt(int position) {
        int value = 0;
        for (int i = 0; i < Integer.BYTES; i++) {
            value = value << 8 | byteAt(position + i) & 0xFF;
        }
        return value;
    }

    private byte byteAt(int position) {
        int at = position;
        for (ByteBuffer one : buffers) {
            if (at < one.limit()) {
                return one.get(at);
            }
            at -= one.limit();
        }
        throw new IndexOutOfBoundsException("position=" + position + ", length=" + length);
    }

    public void update(CRC32 crc) {
        for (ByteBuffer one : buffers) {
            crc.update(one);
            one.position(0);
        }
    }

    public void copyTo(byte[] array, int offset) {
        int at = offset;
        for (ByteBuffer one : buffers) {
            one.get(array, at, one.limit());
            one.position(0);
            at += one.limit();
        }
    }

    /** A copy. */
    public byte[] bytes() {
        byte[] copy = new byte[length];
        copyTo(copy, 0);
        return copy;
    }

    /** The buffers, from position 0 to their limits. Nobody changes them. */
    ByteBuffer[] buffers() {
        return buffers;
    }
}
