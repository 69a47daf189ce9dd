package org.mpca.rdd;

import io.netty.buffer.ByteBuf;
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
 * <p>Concurrency: the thread of the connection reads; the bytes must not change before they have arrived.
 */
final class StreamedBytes extends NettyManagedBuffer {
    /** What a socket gets at once, as from Spark: what it does not take of more would be copied out of the heap in vain. */
    private static final int AT_ONCE = 256 << 10;

    private final ByteBuf whole;
    private final Runnable left;

    /** @param left is called in the thread of the connection: keep it short */
    StreamedBytes(Runnable left, ByteBuffer... data) {
        this(left, Unpooled.wrappedBuffer(data.length, data)); // with room for fewer they would be copied into one
    }

    private StreamedBytes(Runnable left, ByteBuf whole) {
        super(whole);
        this.whole = whole;
        this.left = left;
    }

    @Override
    public Object convertToNetty() {
        return new Region();
    }

    private final class Region extends AbstractFileRegion {
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
            long before = transferred;
            int length = (int) Math.min(AT_ONCE, count() - position);
            for (ByteBuffer some : whole.nioBuffers((int) position, length)) {
                transferred += target.write(some);
                if (some.hasRemaining()) {
                    break;
                }
            }
            if (transferred > before) {
                left.run();
            }
            return transferred - before;
        }

        @Override
        protected void deallocate() {}
    }
}
