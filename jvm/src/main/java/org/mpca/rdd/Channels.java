package org.mpca.rdd;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** Vectors to and from files, in steps: for a heap buffer the JDK keeps a direct copy as large as one call's. */
final class Channels {
    private static final int STEP_BYTES = 1 << 20;

    private Channels() {}

    /** Writes what is left in `bytes` at a position; how much that was. */
    static long write(FileChannel channel, long position, ByteBuffer bytes) throws IOException {
        ByteBuffer rest = bytes.duplicate();
        long at = position;
        while (rest.hasRemaining()) {
            ByteBuffer step = rest.duplicate();
            step.limit(Math.min(rest.limit(), rest.position() + STEP_BYTES));
            int written = channel.write(step, at);
            rest.position(rest.position() + written);
            at += written;
        }
        return at - position;
    }

    /** Reads so many bytes, from the channel's start to the array's; the same array. */
    static byte[] read(FileChannel channel, byte[] data, int length) throws IOException {
        for (int at = 0; at < length; ) {
            int got = channel.read(ByteBuffer.wrap(data, at, Math.min(STEP_BYTES, length - at)), at);
            if (got < 0) {
                throw new EOFException("the file is shorter than the vector: bytes=" + at + ", expected=" + length);
            }
            at += got;
        }
        return data;
    }
}
