package org.mpca.rdd;

import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.util.AbstractFileRegion;

/**
 * Bytes that leave in one stream, from where they lie, one buffer behind the other; whoever sends them is told whenever some left.
 *
 * <p>Spark takes a connection for dead over which nothing was finished for as long as {@code spark.shuffle.io.connectionTimeout}
 * says, while an answer is awaited. A stream is finished at its end: of eight executors that pushed each other 8 MiB over links
 * of 30 Mbit/s, connections were closed in the middle, and everything travelled twice.
 *
 * <p>Concurrency: the thread of the connection reads. Immutable; the bytes must not change before they have arrived.
 */
final class StreamedBytes extends NettyManagedBuffer {
    /** What a socket gets at once: bytes of the heap are copied into a buffer of as many, of which each thread keeps one. */
    private static final int AT_ONCE = 256 << 10;

    private final Runnable left;
    private final ByteBuffer[] data;

    /** @param left is called in the thread of the connection: keep it short */
    StreamedBytes(Runnable left, ByteBuffer... data) {
        super(Unpooled.wrappedBuffer(data.length, data)); // with room for fewer they would be copied into one
        this.left = left;
        this.data = data;
    }

    @Override
    public Object convertToNetty() {
        return new Region();
    }

    private final class Region extends AbstractFileRegion {
        private int buffer;
        /** Where the buffer began in the whole. */
        private long before;

        private long transferred;

        @Override
        public long position() {
            return 0;
        }

        @Override
        public long transferred() {
            return transferred;
        }

        @Override
        public long count() {
            return size();
        }

        @Override
        public long transferTo(WritableByteChannel target, long position) throws IOException {
            if (position != transferred) {
                throw new IllegalArgumentException("bytes leave in turn: " + position + " after " + transferred);
            }
            long sent = 0;
            while (buffer < data.length) {
                ByteBuffer some = data[buffer].duplicate();
                int at = (int) (transferred - before);
                int length = Math.min(AT_ONCE, some.remaining() - at);
                if (length == 0) {
                    before += some.remaining();
                    buffer++;
                    continue;
                }
                some.position(some.position() + at);
                some.limit(some.position() + length);
                int written = target.write(some);
                transferred += written;
                sent += written;
                if (written < length || sent >= AT_ONCE) {
                    break;
                }
            }
            if (sent > 0) {
                left.run();
            }
            return sent;
        }

        @Override
        protected void deallocate() {}
    }
}
