package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.function.Consumer;
import java.util.zip.CRC32;
import org.mpca.reduce.Scattered;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Blocks that end with a checksum, which the receiver compares. TCP has a checksum of 16 bits, and does not see damage by
 * network cards, switches and memory before that is computed or after it is compared.
 *
 * <pre>
 *   0                         length - 4     length
 *  +---------------------------+-------------+
 *  | float32 parameters ...    | CRC-32      |   of the block's name, then of the parameters; big-endian
 *  +---------------------------+-------------+
 * </pre>
 * The checksum covers the name too: if a request is damaged, and another block of the same length comes, that is noticed.
 *
 * <p>A damaged block is fetched once more. If it is damaged again, the listener gets {@link Damaged} and decides.
 *
 * <p>Concurrency: stateless; safe from any thread.
 */
final class CheckedBlocks {
    static final int TRAILER_BYTES = 4;

    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static final ExecutorService AGAIN = Threads.pool("mpca-fetch");

    private CheckedBlocks() {}

    /** A block arrived with a wrong checksum, twice. */
    static final class Damaged extends IOException {
        private static final long serialVersionUID = 1;

        Damaged(String message) {
            super(message);
        }
    }

    /** Stores a slice of a heap array by reference, as {@link SparkInternals#put} does; returns the checksum behind it. */
    static ByteBuffer put(String name, byte[] data, int offset, int length) {
        ByteBuffer slice = ByteBuffer.wrap(data, offset, length).slice();
        ByteBuffer trailer = ByteBuffer.allocate(TRAILER_BYTES);
        trailer.putInt(0, checksum(name, slice));
        SparkInternals.put(name, slice, trailer);
        return trailer;
    }

    /** Streams an array whose last four bytes are free for the checksum, by {@link SparkInternals#streamApart}. */
    static void stream(Peer peer, String name, byte[] block, Consumer<Throwable> done) {
        SparkInternals.streamApart(peer, name, done, seal(name, block));
    }

    /** Fetches as {@link SparkInternals#fetch} does; `arrived` gets what is before the checksum, and only if that is right. */
    static void fetch(Peer peer, List<String> names, SparkInternals.FetchListener listener) {
        fetch(peer, names, listener, true);
    }

    /** The same for one block that came damaged already. */
    static void fetchOnce(Peer peer, String name, SparkInternals.FetchListener listener) {
        fetch(peer, Collections.singletonList(name), listener, false);
    }

    private static void fetch(Peer peer, List<String> names, SparkInternals.FetchListener listener, boolean first) {
        SparkInternals.fetch(peer, names, new SparkInternals.FetchListener() {
            @Override
            public void arrived(String name, Scattered block) {
                Scattered data = open(name, block);
                if (data != null) {
                    listener.arrived(name, data);
                } else if (first) {
                    LOG.warn("damaged on its way, and fetched once more: block={} from={}", name, peer);
                    listener.damaged(name);
                    // Asking may connect anew, and this thread must not be held up.
                    AGAIN.execute(() -> {
                        try {
                            fetchOnce(peer, name, listener);
                        } catch (RuntimeException e) {
                            listener.failed(name, e);
                        }
                    });
                } else {
                    listener.failed(
                            name,
                            new Damaged("block " + name + " of " + peer + " arrived with a wrong checksum, twice"));
                }
            }

            @Override
            public void failed(String name, Throwable cause) {
                listener.failed(name, cause);
            }
        });
    }

    /** Puts the checksum into the last four bytes; the whole, ready to be sent. */
    static ByteBuffer seal(String name, byte[] block) {
        int length = block.length - TRAILER_BYTES;
        ByteBuffer whole = ByteBuffer.wrap(block);
        whole.putInt(length, checksum(name, ByteBuffer.wrap(block, 0, length)));
        return whole;
    }

    /** The checksum alone, as bytes. */
    static byte[] checksumOf(String name, byte[] data) {
        return ByteBuffer.allocate(TRAILER_BYTES)
                .putInt(checksum(name, ByteBuffer.wrap(data)))
                .array();
    }

    /** What is before the checksum, or null if that is not right. The position of `block` stays. */
    static ByteBuffer open(String name, ByteBuffer block) {
        int length = block.remaining() - TRAILER_BYTES;
        if (length < 0) {
            return null;
        }
        ByteBuffer data = block.slice();
        int said = data.getInt(length);
        data.limit(length);
        return said == checksum(name, data) ? data : null;
    }

    /** The same of a block that lies in several buffers. */
    static Scattered open(String name, Scattered block) {
        int length = block.length() - TRAILER_BYTES;
        if (length < 0) {
            return null;
        }
        Scattered data = block.first(length);
        CRC32 crc = begin(name);
        data.update(crc);
        return block.intAt(length) == (int) crc.getValue() ? data : null;
    }

    private static int checksum(String name, ByteBuffer data) {
        CRC32 crc = begin(name);
        crc.update(data.duplicate());
        return (int) crc.getValue();
    }

    private static CRC32 begin(String name) {
        CRC32 crc = new CRC32();
        crc.update(name.getBytes(StandardCharsets.UTF_8));
        return crc;
    }
}
