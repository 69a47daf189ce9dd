package org.mpca.rdd;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.mpca.reduce.KeptArray;

/**
 * The sums that this executor pushed to the driver. They stay in its block manager, by reference, until a later order comes:
 * before it sends one, the driver has checked them and has fetched damaged ones again.
 *
 * <p>Concurrency: safe from any thread; each change is one operation of a concurrent table. Removals happen in the sweeper.
 */
final class KeptSums {
    private static final class Sum {
        final String name;
        final KeptArray sum;

        Sum(String name, KeptArray sum) {
            this.name = name;
            this.sum = sum;
        }
    }

    private final Sweeper sweeper;
    /** By run and term, then by order. */
    private final Map<String, Map<Integer, List<Sum>>> runs = new ConcurrentHashMap<>();

    KeptSums(Sweeper sweeper) {
        this.sweeper = sweeper;
    }

    /** Stores so many bytes of a sum, and is one of its users until it is forgotten. */
    void put(String run, int term, int order, int chunk, KeptArray sum, int length) {
        String name = new BlockNames(run, term).kept(order) + chunk;
        sum.retain();
        CheckedBlocks.put(name, sum.data, 0, length);
        runs.computeIfAbsent(run + "/" + term, key -> new ConcurrentHashMap<>())
                .computeIfAbsent(order, key -> Collections.synchronizedList(new ArrayList<>()))
                .add(new Sum(name, sum));
    }

    /** Drops those of earlier orders. */
    void forgetBefore(String run, int term, int order) {
        Map<Integer, List<Sum>> orders = runs.get(run + "/" + term);
        if (orders != null) {
            orders.entrySet().removeIf(entry -> {
                if (entry.getKey() >= order) {
                    return false;
                }
                drop(entry.getValue());
                return true;
            });
        }
    }

    private void drop(List<Sum> sums) {
        synchronized (sums) {
            List<Sum> all = new ArrayList<>(sums);
            sweeper.remove(
                    all.stream().map(one -> one.name).collect(Collectors.toList()),
                    () -> all.forEach(one -> one.sum.release()));
        }
    }

    /** Forgets a run; the caller removes its blocks by prefix. */
    void endRun(String run) {
        runs.keySet().removeIf(key -> key.startsWith(run + "/"));
    }
}
