package org.mpca.rdd;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;

/**
 * How long a reduce and a freeze lately took on this executor, by run: what {@link FreezeAhead} expects of the next ones.
 *
 * <p>Concurrency: safe from any thread; guarded by its own lock.
 */
final class Pace {
    /** So many freezes are remembered: their longest is about a step of the slowest agent, its copy, and what is done with it. */
    private static final int FREEZES = 8;

    private static final class OfRun {
        /** By shard: shards differ in length. */
        final Map<Integer, Long> reduceNanos = new HashMap<>();

        final ArrayDeque<Long> freezeNanos = new ArrayDeque<>();
    }

    private final Map<String, OfRun> runs = new HashMap<>();

    synchronized void reduced(String run, int shard, long nanos) {
        of(run).reduceNanos.put(shard, nanos);
    }

    /** From the question to the last agent's answer, and until that is kept. */
    synchronized void froze(String run, long nanos) {
        ArrayDeque<Long> last = of(run).freezeNanos;
        last.add(nanos);
        if (last.size() > FREEZES) {
            last.remove();
        }
    }

    /** Nanoseconds that the reduce of this shard took when it was last made; Long.MAX_VALUE when it never was. */
    synchronized long reduce(String run, int shard) {
        return of(run).reduceNanos.getOrDefault(shard, Long.MAX_VALUE);
    }

    /** Nanoseconds of the longest of the last freezes; 0 when there was none. */
    synchronized long freeze(String run) {
        return of(run).freezeNanos.stream().max(Long::compare).orElse(0L);
    }

    synchronized void endRun(String run) {
        runs.remove(run);
    }

    private OfRun of(String run) {
        return runs.computeIfAbsent(run, name -> new OfRun());
    }
}
