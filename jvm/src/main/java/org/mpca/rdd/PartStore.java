package org.mpca.rdd;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.mpca.reduce.ChunkPlan;
import org.mpca.wire.Order;

/**
 * The parts that this executor has frozen: the weighted mean of its agents' shard, one a cycle, until forgotten. Their
 * chunks lie in the block manager by reference, where peers fetch them.
 *
 * <p>Concurrency: safe from any thread; each change is one operation of a concurrent table. Removals happen in the sweeper.
 */
final class PartStore {
    /** One frozen part. Immutable; nobody writes into `data`. */
    static final class Part {
        final int order;
        final byte[] data;
        private final List<String> names;

        private Part(int order, byte[] data, List<String> names) {
            this.order = order;
            this.data = data;
            this.names = names;
        }
    }

    private final Sweeper sweeper;
    /** By run and term, then by cycle. */
    private final Map<String, NavigableMap<Integer, Part>> runs = new ConcurrentHashMap<>();

    PartStore(Sweeper sweeper) {
        this.sweeper = sweeper;
    }

    /** Stores a part and its chunks. A later order's part of the same cycle takes the place of an earlier one's. */
    void put(String run, int term, int cycle, int order, byte[] data, ChunkPlan grid) {
        String stem = new BlockNames(run, term).parts(cycle, order);
        List<String> names = new ArrayList<>();
        for (int chunk = 0; chunk < grid.chunks(); chunk++) {
            names.add(stem + chunk);
            CheckedBlocks.put(stem + chunk, data, grid.offset(chunk), grid.length(chunk));
        }
        Part before = runs.computeIfAbsent(key(run, term), name -> new ConcurrentSkipListMap<>())
                .put(cycle, new Part(order, data, names));
        // A re-run task of one order stores the same bytes under the same names again.
        if (before != null && before.order != order) {
            sweeper.remove(before.names, false);
        }
    }

    /** This executor's part of an order's reduce, as the order `frozenBy` froze it. */
    Part need(Order order, int frozenBy) throws ExecutorFault {
        Map<Integer, Part> cycles = runs.get(key(order.run, order.term));
        Part part = cycles == null ? null : cycles.get(order.reduce.cycle);
        if (part == null || part.order != frozenBy || part.data.length != order.reduce.length) {
            String here = SparkInternals.executorId();
            throw new ExecutorFault(
                    here,
                    "executor " + here + " has no such part: cycle=" + order.reduce.cycle + ", frozen_by="
                            + frozenBy + ", bytes=" + order.reduce.length
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
                sweeper.remove(one.getValue().names, false);
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
