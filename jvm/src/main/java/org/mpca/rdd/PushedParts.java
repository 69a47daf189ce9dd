package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;

/**
 * What other executors push here of their parts: the range that this one is going to sum, as soon as the part is frozen. The
 * order that says what is summed, with which weights, comes later; it finds them here, or on their way ({@link RangesStep}).
 *
 * <p>A range is for the executors of the order that froze it. Until forgotten, it is known which those were: another order's
 * executors have other ranges, and ask for them. Of two streams of one range the first counts; if it breaks off, nothing more
 * comes, and what is missing is asked for.
 *
 * <p>Concurrency: safe from any thread, a monitor; network threads bring ranges, each its own.
 */
final class PushedParts {
    /** Ranges of two cycles, from each other executor. */
    private static final SpareArrays SPARE = new SpareArrays(2048);

    /** What is known of one run and term. */
    private static final class Attempt {
        /** Up to this cycle; those in which x_0 is read have negative numbers. */
        int forgotten = Integer.MIN_VALUE;
        /** Executors of which nothing is expected. */
        final Set<String> silent = new HashSet<>();
        /** Executors of orders, by the cycle of which they froze parts. */
        final TreeMap<Integer, Map<Integer, List<String>>> frozenBy = new TreeMap<>();
        /** By cycle; then by order and executor. */
        final TreeMap<Integer, Map<String, Range>> ranges = new TreeMap<>();

        Range range(int cycle, int order, String executor) {
            return ranges.computeIfAbsent(cycle, key -> new HashMap<>())
                    .computeIfAbsent(order + "_" + executor, key -> new Range());
        }
    }

    /** By {@link BlockNames#ofAttempt}. */
    private final Map<String, Attempt> attempts = new HashMap<>();
    /** Runs that are over, as {@link BlockNames#ofRun}. */
    private final Set<String> ended = new HashSet<>();

    /** An order of the run is here: it may be of the same name as one that is over. */
    synchronized void enter(String run) {
        ended.remove(BlockNames.ofRun(run));
    }

    /** Whether the run is over on this executor: what peers still push is of no use. */
    synchronized boolean isOver(String run) {
        return ended.contains(run);
    }

    /** These executors freeze their parts of a cycle by this order, and push them to each other. */
    synchronized void freezing(String run, int term, int cycle, int order, List<String> executors) {
        Attempt attempt = attempts.computeIfAbsent(BlockNames.ofAttempt(run, term), name -> new Attempt());
        if (cycle > attempt.forgotten) {
            attempt.frozenBy.computeIfAbsent(cycle, key -> new HashMap<>()).put(order, executors);
        }
    }

    /** Whether an executor pushes here the range of what it froze by this order, if `executors` share the sum out. */
    synchronized boolean expects(String run, int term, int cycle, int order, String executor, List<String> executors) {
        Attempt attempt = attempts.get(BlockNames.ofAttempt(run, term));
        Map<Integer, List<String>> orders = attempt == null ? null : attempt.frozenBy.get(cycle);
        return orders != null && executors.equals(orders.get(order)) && !attempt.silent.contains(executor);
    }

    /** Nothing comes from this executor, though it may be asked: nothing is expected of it until something comes. */
    synchronized void giveUp(String run, int term, String executor) {
        attempts.computeIfAbsent(BlockNames.ofAttempt(run, term), name -> new Attempt())
                .silent
                .add(executor);
    }

    /** What an executor pushes of the part that this order froze. */
    synchronized Range range(String run, int term, int cycle, int order, String executor) {
        return attempts.computeIfAbsent(BlockNames.ofAttempt(run, term), name -> new Attempt())
                .range(cycle, order, executor);
    }

    /** Who takes a range that begins to come. */
    synchronized Uploads.Sink begin(PushName name) {
        Attempt attempt = attempts.computeIfAbsent(name.attempt, key -> new Attempt());
        attempt.silent.remove(name.executor);
        if (name.cycle() <= attempt.forgotten) {
            return Uploads.NOWHERE;
        }
        Range range = attempt.range(name.cycle(), name.order(), name.executor);
        return range.begin(name.length()) ? range : Uploads.NOWHERE;
    }

    /** Drops what belongs to this cycle and before. */
    synchronized void forget(String run, int term, int cycle) {
        Attempt attempt = attempts.get(BlockNames.ofAttempt(run, term));
        if (attempt == null) {
            return;
        }
        attempt.forgotten = Math.max(attempt.forgotten, cycle);
        attempt.frozenBy.headMap(cycle, true).clear();
        Map<Integer, Map<String, Range>> old = attempt.ranges.headMap(cycle, true);
        old.values().forEach(some -> some.values().forEach(Range::forget));
        old.clear();
    }

    synchronized void endRun(String run) {
        String prefix = BlockNames.ofRun(run);
        ended.add(prefix);
        attempts.keySet().removeIf(name -> name.startsWith(prefix));
    }

    /** Told of the chunks of a range, one after the other, by the thread that brings them: keep it short. */
    interface Watcher {
        void here(int chunk);
    }

    /**
     * Chunks of one range, each with its checksum behind it, one behind the other.
     *
     * <p>Concurrency: a monitor. One stream writes; the bytes of a chunk that was told of stay as they are.
     */
    static final class Range implements Uploads.Sink {
        private KeptArray data;
        private int at;
        private boolean whole;
        private long movedNanos;
        /** Where each chunk ends. */
        private int[] ends;

        private Watcher watcher;
        private int told;

        /** False: there is one already. */
        private synchronized boolean begin(int length) {
            boolean first = data == null && length >= 0;
            if (first) {
                data = KeptArray.take(SPARE, length);
            }
            return first;
        }

        @Override
        public synchronized void come(ByteBuffer bytes) {
            int fit = Math.min(bytes.remaining(), data.data.length - at);
            bytes.get(data.data, at, fit);
            at += fit;
            movedNanos = System.nanoTime();
            tell();
        }

        @Override
        public synchronized void end() {
            whole = true;
        }

        /**
         * Tells `next` of each chunk that is here or comes.
         *
         * @param next takes the place of who watched before
         * @param edges where each chunk ends
         */
        synchronized void watch(int[] edges, Watcher next) {
            ends = edges;
            watcher = next;
            told = 0;
            movedNanos = System.nanoTime();
            tell();
        }

        /** Tells of no more; returns the chunk that would have come next. */
        synchronized int unwatch() {
            watcher = null;
            return told;
        }

        private void tell() {
            // Of another length it is not what is expected: the order waits, and asks.
            if (watcher == null || data == null || data.data.length != ends[ends.length - 1]) {
                return;
            }
            while (told < ends.length && ends[told] <= at) {
                watcher.here(told++);
            }
        }

        synchronized boolean isTold() {
            return told == ends.length;
        }

        /** Where its bytes are, once a chunk was told of. The caller is one more user. */
        synchronized KeptArray use() {
            data.retain();
            return data;
        }

        /** How long nothing has come since it is watched, at this reading of {@link System#nanoTime}. */
        synchronized long silentMillis(long now) {
            return TimeUnit.NANOSECONDS.toMillis(now - movedNanos);
        }

        /** An array that is still being written to is never used again. */
        private synchronized void forget() {
            if (whole) {
                data.release();
            }
        }
    }
}
