package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.function.Consumer;
import org.mpca.reduce.KeptArray;

/**
 * Streams to peers out of arrays that stay for as long as the network reads them.
 *
 * <p>Concurrency: safe from any thread; stateless. Connecting may block for as long as the network's time-out: in threads of its
 * own.
 */
final class Pushes {
    private static final Calls CALLS = new Calls("mpca-push");

    private Pushes() {}

    /**
     * Pushes bytes to a peer that takes them ({@link Uploads#stream}), behind what was pushed to it before. The push is one more
     * user of the array until they have arrived. If it fails, it is one for good: nobody knows whether the network still reads
     * there.
     *
     * @param kept what the bytes lie in, but for checksums
     * @param done gets null or the cause of the failure, in a thread that must not be held up
     */
    static void begin(Peer peer, String name, KeptArray kept, Consumer<Throwable> done, ByteBuffer... bytes) {
        kept.retain();
        CALLS.add(
                peer,
                () -> SparkInternals.stream(
                        peer,
                        name,
                        failure -> {
                            if (failure == null) {
                                kept.release();
                            }
                            done.accept(failure);
                        },
                        bytes));
    }
}
