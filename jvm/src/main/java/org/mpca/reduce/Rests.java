package org.mpca.reduce;

import java.util.HashMap;
import java.util.Map;

/**
 * What rounding has left of what one sender sent, by shard and by what left it: of parts their cycle, of sums their order, since
 * several may sum one cycle. The twin of {@code mpca/algorithm/rests.py}, which says why. Kept are the rests of the newest and of
 * the one before that the driver took.
 *
 * <p>Concurrency: safe from any thread. Nobody writes into an array that was handed in.
 */
public final class Rests {
    private static final class Left {
        final Object ranges;
        final float[][] rest;

        Left(Object ranges, float[][] rest) {
            this.ranges = ranges;
            this.rest = rest;
        }
    }

    private final Map<Integer, Map<Integer, Left>> shards = new HashMap<>();

    /**
     * What is left of a shard, in the pieces in which it was kept.
     *
     * @param ranges how the shard was cut; a rest of another cut is none
     * @return null if there is none
     */
    public synchronized float[][] left(int shard, int by, Object ranges) {
        Map<Integer, Left> all = shards.get(shard);
        Left left = all == null ? null : all.get(by);
        return left == null || !left.ranges.equals(ranges) ? null : left.rest;
    }

    /** Keeps what a cycle or an order left; what older ones left is forgotten, but for `after`. */
    public synchronized void keep(int shard, int by, int after, Object ranges, float[]... rest) {
        Map<Integer, Left> all = shards.computeIfAbsent(shard, key -> new HashMap<>());
        all.keySet().removeIf(one -> one != after);
        all.put(by, new Left(ranges, rest));
    }

    /** The model is cut anew. */
    public synchronized void clear() {
        shards.clear();
    }
}
