package org.mpca.rdd;

import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.BiConsumer;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.Scattered;

/**
 * A vector that is fetched as one and travels as {@link CheckedBlocks} of at most {@link ChunkPlan#MAX_BYTES}. Spark takes a
 * connection for dead over which no block was finished within {@code spark.shuffle.io.connectionTimeout}: a vector of 48 MiB that
 * was one block never came over links of 10 Mbit/s.
 *
 * <p>Concurrency: stateless; safe from any thread.
 */
final class Pieces {
    private Pieces() {}

    /** Names of the pieces of a vector under a stem of {@link BlockNames} that ends with an underscore. */
    static List<String> names(String stem, int length) {
        return BlockNames.numbered(stem, 0, count(length));
    }

    private static int count(int length) {
        return RelayBroadcast.pieces(length, ChunkPlan.MAX_BYTES);
    }

    /** Stores the first bytes of an array by reference. */
    static void put(String stem, byte[] data, int length) {
        for (String name : names(stem, length)) {
            int at = at(name);
            CheckedBlocks.put(name, data, at, bytes(at, length));
        }
    }

    /**
     * Fetches all of them. Connecting may block.
     *
     * @param came called for each piece, in any thread
     * @param done gets the vector or the cause of the first failure, once, in any thread
     */
    static void fetch(Peer from, String stem, int length, Runnable came, BiConsumer<byte[], Throwable> done) {
        if (length == 0) {
            done.accept(new byte[0], null);
            return;
        }
        Whole whole = new Whole(length, came, done);
        try {
            CheckedBlocks.fetch(from, names(stem, length), whole);
        } catch (Exception e) { // Scala's methods throw what they do not declare
            whole.failed(stem, e);
        }
    }

    private static int at(String name) {
        return BlockNames.number(name) * ChunkPlan.MAX_BYTES;
    }

    private static int bytes(int at, int length) {
        return Math.min(ChunkPlan.MAX_BYTES, length - at);
    }

    /** Collects pieces; in network threads. */
    static final class Whole implements SparkInternals.FetchListener {
        private final byte[] vector;
        private final Runnable came;
        private final BiConsumer<byte[], Throwable> done;
        private final Set<String> here = new HashSet<>();
        private boolean over;

        Whole(int length, Runnable came, BiConsumer<byte[], Throwable> done) {
            this.vector = new byte[length];
            this.came = came;
            this.done = done;
        }

        @Override
        public void arrived(String name, Scattered piece) {
            int at = at(name);
            if (piece.length() != bytes(at, vector.length)) {
                failed(name, new IOException("piece of another length: " + name + ", bytes=" + piece.length()));
                return;
            }
            boolean all;
            synchronized (this) {
                if (over || !here.add(name)) {
                    return;
                }
                piece.copyTo(vector, at);
                all = here.size() == count(vector.length);
                over = all;
            }
            came.run();
            if (all) {
                done.accept(vector, null);
            }
        }

        @Override
        public void failed(String name, Throwable cause) {
            synchronized (this) {
                if (over) {
                    return;
                }
                over = true;
            }
            done.accept(null, cause);
        }
    }
}
