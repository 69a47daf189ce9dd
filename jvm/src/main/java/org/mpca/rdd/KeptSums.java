package org.mpca.rdd;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The sums that this executor pushed to the driver, by reference in its block manager, until a later order comes: by then the
 * driver has compared their checksums, and fetched anew what had been damaged.
 *
 * <p>Safe from any thread by its own lock; removals happen in the sweeper.
 */
final class KeptSums {
  private final Sweeper sweeper;
  /** Names of blocks, by run and epoch, then by order. */
  private final Map<String, Map<Integer, List<String>>> runs = new HashMap<>();

  KeptSums(Sweeper sweeper) {
    this.sweeper = sweeper;
  }

  synchronized void put(String run, int epoch, int order, int chunk, byte[] sum, int length) {
    String name = new BlockNames(run, epoch).kept(order) + chunk;
    CheckedBlocks.put(name, sum, 0, length);
    runs.computeIfAbsent(run + "/" + epoch, key -> new HashMap<>()).computeIfAbsent(order, key -> new ArrayList<>()).add(name);
  }

  /** Drops those of earlier orders. */
  synchronized void forgetBefore(String run, int epoch, int order) {
    Map<Integer, List<String>> orders = runs.get(run + "/" + epoch);
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

  /** Forgets a run, of whatever epoch; its blocks are removed by their prefix. */
  synchronized void endRun(String run) {
    runs.keySet().removeIf(key -> key.startsWith(run + "/"));
  }
}
