package org.mpca.reduce;

import java.util.HashMap;
import java.util.Map;

/**
 * What rounding has left of what one sender sent, by shard and by the cycle that left it. The twin of {@code
 * mpca/algorithm/rests.py}, which says why a rest belongs to a cycle. Kept are the rests of the newest cycle and of the one before
 * whose sum the driver took.
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
     * What a cycle left of a shard, in the pieces in which it was kept.
     *
     * @param ranges how the shard was cut; a rest of another cut is none
     * @return null if there is none
     */
    public synchronized float[][] left(int shard, int cycle, Object ranges) {
        Map<Integer, Left> cycles = shards.get(shard);
        Left left = cycles == null ? null : cycles.get(cycle);
        return left == null || !left.ranges.equals(ranges) ? null : left.rest;
    }

    /** Keeps what a cycle left; older cycles are forgotten, but for `after`. */
    public synchronized void keep(int shard, int cycle, int after, Object ranges, float[]... rest) {
        Map<Integer, Left> cycles = shards.computeIfAbsent(shard, key -> new HashMap<>());
        cycles.keySet().removeIf(one -> one != after);
        cycles.put(cycle, new Left(ranges, rest));
    }

    /** The model is cut anew. */
    public synchronized void clear() {
        shards.clear();
    }
}
