package org.mpca.rdd;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.YieldContext;
import org.mpca.agent.YieldKey;
import org.mpca.wire.Order;

/**
 * What a cycle maps over (section 5.1 of the paper): the state of one shard of every agent after its optimiser is next
 * interrupted, one partition an executor.
 *
 * <p>Its elements are looked up in the executor's registry: no cached block that could be evicted, no lineage beyond
 * this cycle. Making them costs nothing; the first access to one interrupts its agent. Only keys travel, by Spark's
 * closure serialiser, which is Java's whatever {@code spark.serializer} says.
 */
final class ModelStateRDD extends PinnedRDD<YieldContext> {
    private static final long serialVersionUID = 1;

    /** Yields by executor; a YieldKey is a small value. */
    private final HashMap<Integer, ArrayList<YieldKey>> keys = new HashMap<>();

    /** The yields that an order freezes; partitions without one when it freezes nothing. */
    ModelStateRDD(SparkContext context, Order order, Map<String, Peer> peers) {
        super(context, peersOf(order, peers), YieldContext.class);
        for (int i = 0; i < order.executors.size(); i++) {
            keys.put(i, new ArrayList<>());
        }
        if (order.freeze != null) {
            for (Order.AgentRef agent : order.freeze.agents) {
                int index = order.executors.indexOf(agent.executor);
                if (index < 0) {
                    throw new IllegalArgumentException(
                            "order " + order.order + " freezes agent " + agent.agent + " of executor " + agent.executor
                                    + ", which is not among its executors " + order.executors);
                }
                keys.get(index)
                        .add(new YieldKey(
                                order.run,
                                order.term,
                                order.freeze.cycle,
                                order.freeze.shard,
                                agent.agent,
                                agent.incarnation));
            }
        }
        // Sums go by agent number, whatever order the driver named them in.
        keys.values().forEach(some -> some.sort((a, b) -> Integer.compare(a.agent, b.agent)));
    }

    @Override
    List<YieldContext> here(int index, TaskContext context) {
        List<YieldContext> yields = new ArrayList<>();
        for (YieldKey key : keys.get(index)) {
            yields.add(AgentRegistry.get().yield(key));
        }
        return yields;
    }

    private static List<Peer> peersOf(Order order, Map<String, Peer> peers) {
        List<Peer> own = new ArrayList<>();
        order.executors.forEach(executor -> own.add(peers.get(executor)));
        return own;
    }
}
