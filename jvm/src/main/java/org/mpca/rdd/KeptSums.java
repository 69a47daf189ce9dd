package org.mpca.rdd;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The sums that this executor pushed to the driver. They stay in its block manager, by reference, until a later order comes:
 * before it sends one, the driver has checked them and has fetched damaged ones again.
 *
 * <p>Concurrency: safe from any thread; each change is one operation of a concurrent table. Removals happen in the sweeper.
 */
final class KeptSums {
    private final Sweeper sweeper;
    /** Names of blocks, by run and term, then by order. */
    private final Map<String, Map<Integer, List<String>>> runs = new ConcurrentHashMap<>();

    KeptSums(Sweeper sweeper) {
        this.sweeper = sweeper;
    }

    void put(String run, int term, int order, int chunk, byte[] sum, int length) {
        String name = new BlockNames(run, term).kept(order) + chunk;
        CheckedBlocks.put(name, sum, 0, length);
        runs.computeIfAbsent(run + "/" + term, key -> new ConcurrentHashMap<>())
                .computeIfAbsent(order, key -> Collections.synchronizedList(new ArrayList<>()))
                .add(name);
    }

    /** Drops those of earlier orders. */
    void forgetBefore(String run, int term, int order) {
        Map<Integer, List<String>> orders = runs.get(run + "/" + term);
        if (orders != null) {
            orders.entrySet().removeIf(entry -> {
                if (entry.getKey() >= order) {
                    return false;
                }
                sweeper.remove(entry.getValue(), false);
                return true;
            });
        }
    }

    /** Forgets a run; the caller removes its blocks by prefix. */
    void endRun(String run) {
        runs.keySet().removeIf(key -> key.startsWith(run + "/"));
    }
}
