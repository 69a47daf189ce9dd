package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.mpca.reduce.KeptArray;
import org.mpca.wire.Order;

/**
 * The parts that this executor has frozen: the weighted mean of its agents' shard, one a cycle, until forgotten. Their
 * chunks lie in the block manager by reference, where peers fetch them.
 *
 * <p>Concurrency: safe from any thread; each change is one operation of a concurrent table. Removals happen in the sweeper.
 */
final class PartStore {
    /** One frozen part. Immutable; nobody writes into `data` while anybody uses `kept`: the store is one of them. */
    static final class Part {
        final int order;
        final byte[] data;
        final KeptArray kept;
        private final List<String> names;
        private final int[] edges;
        private final List<ByteBuffer> trailers;

        private Part(int order, KeptArray kept, int[] edges, List<String> names, List<ByteBuffer> trailers) {
            this.order = order;
            this.data = kept.data;
            this.kept = kept;
            this.edges = edges;
            this.names = names;
            this.trailers = trailers;
        }

        /** Bytes of these {@link #chunks}. */
        int bytes(int first, int end) {
            return edges[end] - edges[first] + (end - first) * CheckedBlocks.TRAILER_BYTES;
        }

        /** The chunks from `first` to before `end`, each with its checksum behind it. */
        ByteBuffer[] chunks(int first, int end) {
            ByteBuffer[] all = new ByteBuffer[2 * (end - first)];
            for (int chunk = first; chunk < end; chunk++) {
                all[2 * (chunk - first)] = ByteBuffer.wrap(data, edges[chunk], edges[chunk + 1] - edges[chunk]);
                all[2 * (chunk - first) + 1] = trailers.get(chunk).duplicate();
            }
            return all;
        }
    }

    private final Sweeper sweeper;
    /** By run and term, then by cycle. */
    private final Map<String, NavigableMap<Integer, Part>> runs = new ConcurrentHashMap<>();

    PartStore(Sweeper sweeper) {
        this.sweeper = sweeper;
    }

    /**
     * Stores a part and its chunks. A later order's part of the same cycle takes the place of an earlier one's.
     *
     * @param part becomes the store's to release
     * @param edges byte offsets of its chunks, and its length at the end
     * @return what is stored, of which the caller is one more user; null: what was here stays
     */
    Part put(String run, int term, int cycle, int order, KeptArray part, int[] edges) {
        Map<Integer, Part> cycles = runs.computeIfAbsent(key(run, term), name -> new ConcurrentSkipListMap<>());
        Part before = cycles.get(cycle);
        if (before != null && before.order >= order) {
            // A re-run task of one order: the same bytes lie under the same names, in the other's array.
            // Or a task that was killed, which freezes on for a while.
            part.release();
            return null;
        }
        byte[] data = part.data;
        String stem = new BlockNames(run, term).parts(cycle, order, SparkInternals.executorId());
        List<String> names = new ArrayList<>();
        List<ByteBuffer> trailers = new ArrayList<>();
        for (int chunk = 0; chunk + 1 < edges.length; chunk++) {
            names.add(stem + chunk);
            trailers.add(CheckedBlocks.put(stem + chunk, data, edges[chunk], edges[chunk + 1] - edges[chunk]));
        }
        part.retain();
        Part stored = new Part(order, part, edges, names, trailers);
        before = cycles.put(cycle, stored);
        // If two tasks of one order came here together, blocks of either array are in use until both are forgotten: for
        // good.
        if (before != null && before.order != order) {
            drop(before);
        }
        return stored;
    }

    private void drop(Part part) {
        sweeper.remove(part.names, part.kept::release);
    }

    /** This executor's part of an order's reduce, so many bytes, as the order `frozenBy` froze it. The caller is one more user. */
    Part need(Order order, int frozenBy, int length) throws ExecutorFault {
        Map<Integer, Part> cycles = runs.get(key(order.run, order.term));
        Part part = cycles == null ? null : cycles.get(order.reduce.cycle);
        if (part == null || part.order != frozenBy || part.data.length != length || !part.kept.retain()) {
            String here = SparkInternals.executorId();
            throw new ExecutorFault(
                    here,
                    "executor " + here + " has no such part: cycle=" + order.reduce.cycle + ", frozen_by="
                            + frozenBy + ", bytes=" + length
                            + (part == null ? "" : "; it has frozen_by=" + part.order + ", bytes=" + part.data.length));
        }
        return part;
    }

    /** Drops the parts of this cycle and before. */
    void forget(String run, int term, int cycle) {
        NavigableMap<Integer, Part> cycles = runs.get(key(run, term));
        if (cycles != null) {
            NavigableMap<Integer, Part> old = cycles.headMap(cycle, true);
            for (Map.Entry<Integer, Part> one = old.pollFirstEntry(); one != null; one = old.pollFirstEntry()) {
                drop(one.getValue());
            }
        }
    }

    /** Forgets a run; the caller removes its blocks by prefix. */
    void endRun(String run) {
        runs.keySet().removeIf(key -> key.startsWith(run + "/"));
    }

    private static String key(String run, int term) {
        return run + "/" + term;
    }
}
