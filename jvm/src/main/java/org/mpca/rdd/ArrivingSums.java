package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.mpca.reduce.SpareArrays;

/**
 * The sums of one attempt of a run that executors stream to the driver. Each chunk goes from the network's buffers into an array
 * that is used again, and its checksum is compared when it is whole. What nobody expects, since its order has failed or its run is
 * over, is passed over.
 *
 * <p>Concurrency: safe from any thread; network threads bring chunks.
 */
final class ArrivingSums {
    /** By the stem of their names. */
    private static final Map<String, ArrivingSums> ATTEMPTS = new ConcurrentHashMap<>();

    private static final int KEPT = 1024;
    /** More than chunks of two shards differ by, of which the last is a little smaller: one array serves both. */
    private static final int ROOM = 1024;

    private final String stem;
    private volatile SpareArrays spare = new SpareArrays(KEPT);
    private boolean encoded;
    private final Map<Integer, Sum> orders = new ConcurrentHashMap<>();

    private ArrivingSums(String stem) {
        this.stem = stem;
    }

    /** Those of all attempts of this driver, which it takes in place of Spark. */
    static Uploads uploads() {
        return name -> {
            if (!BlockNames.isSum(name)) {
                return null;
            }
            ArrivingSums attempt = ATTEMPTS.get(BlockNames.sumsOf(name));
            return attempt == null ? Uploads.NOWHERE : attempt.begin(name);
        };
    }

    /** Those of an attempt, from now on. */
    static ArrivingSums open(BlockNames names) {
        ArrivingSums sums = new ArrivingSums(names.sums());
        ATTEMPTS.put(sums.stem, sums);
        return sums;
    }

    void close() {
        ATTEMPTS.remove(stem, this);
        orders.clear();
    }

    /** From now on sums are encoded: arrays of those before, which were longer, would lie idle for the rest of the run. */
    synchronized void areEncoded() {
        if (!encoded) {
            encoded = true;
            spare = new SpareArrays(KEPT);
        }
    }

    /** The chunks of an order's sum will come, of so many bytes each. */
    void expect(int order, int[] lengths) {
        orders.put(order, new Sum(lengths, spare));
    }

    /** Of an order; null if none is expected. */
    Sum of(int order) {
        return orders.get(order);
    }

    /** The same, for the caller to {@link Sum#free} or to leave: nothing is expected any more. */
    Sum take(int order) {
        return orders.remove(order);
    }

    private Uploads.Sink begin(String name) {
        Sum sum = orders.get((int) BlockNames.numberAfter(stem, name));
        int chunk = BlockNames.number(name);
        return sum == null || chunk < 0 || chunk >= sum.chunks() ? Uploads.NOWHERE : new Arrival(name, sum, chunk);
    }

    /**
     * The chunks of one sum. Of two streams of one chunk, which a task that runs twice sends, the first that is right counts.
     *
     * <p>Concurrency: a monitor.
     */
    static final class Sum {
        private final int[] lengths;
        private final SpareArrays spare;
        /** Chunks that are right, and their checksums behind them; null: not yet. */
        private final byte[][] arrays;

        private final boolean[] damaged;

        private Sum(int[] lengths, SpareArrays spare) {
            this.lengths = lengths;
            this.spare = spare;
            this.arrays = new byte[lengths.length][];
            this.damaged = new boolean[lengths.length];
        }

        int chunks() {
            return lengths.length;
        }

        /** A chunk that is right; null: there is none. Valid until the sum is freed. */
        synchronized ByteBuffer get(int chunk) {
            return arrays[chunk] == null ? null : ByteBuffer.wrap(arrays[chunk], 0, lengths[chunk]);
        }

        /** Whether all that has come of a chunk was damaged. */
        synchronized boolean isDamaged(int chunk) {
            return arrays[chunk] == null && damaged[chunk];
        }

        /** Takes an array that is right; false: there is one already. */
        synchronized boolean put(int chunk, byte[] array) {
            boolean first = arrays[chunk] == null;
            if (first) {
                arrays[chunk] = array;
            }
            return first;
        }

        private synchronized void damaged(int chunk) {
            damaged[chunk] = true;
        }

        /** Gives its arrays back. Only who {@link ArrivingSums#take took} it may: then no other thread reads it. */
        synchronized void free() {
            for (int chunk = 0; chunk < arrays.length; chunk++) {
                if (arrays[chunk] != null) {
                    spare.give(arrays[chunk]);
                }
            }
        }
    }

    /** One stream, into an array of its own. Of one that breaks off the array is garbage: Spark may tell of that twice. */
    private static final class Arrival implements Uploads.Sink {
        private final String name;
        private final Sum sum;
        private final int chunk;
        private final byte[] array;
        /** So many of the array's bytes are the chunk's and its checksum's. */
        private final int length;

        private int at;
        private boolean tooLong;

        Arrival(String name, Sum sum, int chunk) {
            this.name = name;
            this.sum = sum;
            this.chunk = chunk;
            this.length = sum.lengths[chunk] + CheckedBlocks.TRAILER_BYTES;
            this.array = sum.spare.take(length, ROOM);
        }

        @Override
        public void come(ByteBuffer bytes) {
            int fit = Math.min(bytes.remaining(), length - at);
            tooLong |= fit < bytes.remaining();
            bytes.get(array, at, fit);
            at += fit;
        }

        @Override
        public void end() {
            boolean right =
                    !tooLong && at == length && CheckedBlocks.open(name, ByteBuffer.wrap(array, 0, length)) != null;
            if (!right) {
                sum.damaged(chunk);
            }
            if (!right || !sum.put(chunk, array)) {
                sum.spare.give(array);
            }
        }
    }
}
