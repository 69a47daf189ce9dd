package org.mpca.rdd;

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

        private Part(int order, KeptArray kept, List<String> names) {
            this.order = order;
            this.data = kept.data;
            this.kept = kept;
            this.names = names;
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
     */
    void put(String run, int term, int cycle, int order, KeptArray part, int[] edges) {
        Map<Integer, Part> cycles = runs.computeIfAbsent(key(run, term), name -> new ConcurrentSkipListMap<>());
        Part before = cycles.get(cycle);
        if (before != null && before.order == order) {
            // A re-run task of one order: the same bytes lie under the same names, in the other's array.
            part.release();
            return;
        }
        byte[] data = part.data;
        String stem = new BlockNames(run, term).parts(cycle, order);
        List<String> names = new ArrayList<>();
        for (int chunk = 0; chunk + 1 < edges.length; chunk++) {
            names.add(stem + chunk);
            CheckedBlocks.put(stem + chunk, data, edges[chunk], edges[chunk + 1] - edges[chunk]);
        }
        before = cycles.put(cycle, new Part(order, part, names));
        // If two tasks of one order came here together, blocks of either array are in use until both are forgotten: for
        // good.
        if (before != null && before.order != order) {
            drop(before);
        }
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
