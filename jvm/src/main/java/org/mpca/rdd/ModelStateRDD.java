package org.mpca.rdd;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.YieldContext;
import org.mpca.agent.YieldKey;
import org.mpca.wire.Order;
import org.mpca.wire.ProtocolException;

/**
 * What a cycle maps over (section 5.1 of the paper): the state of one shard of every agent after its optimiser is next
 * interrupted, one partition an executor.
 *
 * <p>Its elements are looked up in the executor's registry: no cached block that could be evicted, no lineage beyond
 * this cycle. Making them costs nothing; the first access to one interrupts its agent. Only what the order says of the
 * executor's agents travels, in its partition.
 */
final class ModelStateRDD extends PinnedRDD<YieldContext> {
    private static final long serialVersionUID = 1;

    /** The same object as the task's: a task's copy of both is one. */
    private final OrderPlan plan;

    /** The yields that an order freezes; partitions without one when it freezes nothing. */
    ModelStateRDD(SparkContext context, OrderPlan plan) {
        super(context, peersOf(plan), YieldContext.class);
        this.plan = plan;
    }

    OrderPlan plan() {
        return plan;
    }

    @Override
    byte[] own(String executor) {
        return plan.own(executor);
    }

    @Override
    List<YieldContext> here(byte[] own, TaskContext context) {
        try {
            plan.enter(own);
        } catch (ProtocolException e) {
            throw SparkInternals.unchecked(e);
        }
        Order order = plan.order();
        List<YieldContext> yields = new ArrayList<>();
        if (order.freeze != null) {
            List<Order.AgentRef> agents = new ArrayList<>(order.freeze.agents);
            // Sums go by agent number, whatever order the driver named them in.
            agents.sort((a, b) -> Integer.compare(a.agent, b.agent));
            for (Order.AgentRef agent : agents) {
                yields.add(AgentRegistry.get()
                        .yield(new YieldKey(
                                order.run,
                                order.term,
                                order.freeze.cycle,
                                order.freeze.shard,
                                agent.agent,
                                agent.incarnation)));
            }
        }
        return yields;
    }

    private static List<Peer> peersOf(OrderPlan plan) {
        List<Peer> own = new ArrayList<>();
        plan.order().executors.forEach(executor -> own.add(plan.peers.get(executor)));
        return own;
    }
}
