package org.mpca.rdd;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.TaskContext;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.Freezing;
import org.mpca.agent.FrozenYield;
import org.mpca.agent.YieldContext;
import org.mpca.agent.YieldKey;
import org.mpca.reduce.WeightedSum;
import org.mpca.wire.Answer;
import org.mpca.wire.Order;

/**
 * What one executor does for one order: forget what no cycle needs any more, tell, begin and stop agents, have them save what
 * is their own, start downloads in the background, reduce one shard, then freeze the yields of the cycle after and answer.
 *
 * <p>Freezing comes last, so that when the next order reduces, every chunk exists and nobody polls for one. Each part is
 * idempotent, so a re-run task or the order submitted again gives the same bytes. Every wait ends when Spark kills the
 * task or at the order's deadline, so that the executor's second core is free again.
 */
final class OrderTask implements SparkInternals.TaskBody<YieldContext> {
    private static final long serialVersionUID = 1;
    private static final ExecutorService FREEZERS = Threads.pool("mpca-freeze");

    /** What a task does for the sum; fills times and bytes of the answer. Null for an order that sums nothing. */
    interface ReduceStep extends java.io.Serializable {
        void run(Order order, OrderPlan plan, Waits waits, Answer answer) throws Exception;
    }

    private final OrderPlan plan;
    private final ReduceStep step;

    OrderTask(OrderPlan plan, ReduceStep step) {
        this.plan = plan;
        this.step = step;
    }

    @Override
    public byte[] run(TaskContext context, Iterator<YieldContext> yields) throws Exception {
        Order order = plan.order();
        Waits waits = new Waits(context, ExecutorSide.get().clock.toNanosHere(order.deadline));
        Answer answer = new Answer();
        answer.executor = ExecutorSide.get().self().executor;
        answer.host = ExecutorSide.get().self().host;
        prelude(order, plan);
        if (order.reduce != null) {
            step.run(order, plan, waits, answer);
        }
        if (order.freeze != null) {
            freeze(order, yields, waits, answer);
        }
        return OrderJob.seal(order.order, answer.pack());
    }

    /** The parts of an order that wait for nothing. */
    static void prelude(Order order, OrderPlan plan) {
        ExecutorSide side = ExecutorSide.get();
        AgentRegistry registry = AgentRegistry.get();
        String here = side.self().executor;
        side.exchanges.enter(order.run, order.term);
        registry.forget(order.run, order.term, order.forgetCycle);
        side.sums.forgetBefore(order.run, order.term, order.order);
        side.parts.forget(order.run, order.term, order.forgetCycle);
        side.downloader.forget(order.run, order.term, order.forgetBroadcasts);
        if (order.readers != null) {
            for (Order.AgentRef agent : order.readers.agents) {
                if (agent.executor.equals(here)) {
                    registry.tellReaders(
                            order.run, agent.agent, agent.incarnation, order.readers.version, order.readers.readers);
                }
            }
        }
        if (order.cut != null) {
            for (Order.AgentRef agent : order.cut.agents) {
                if (agent.executor.equals(here)) {
                    registry.cut(order.run, agent.agent, agent.incarnation, order.cut.shards);
                }
            }
        }
        for (Order.AgentRef agent : order.begin) {
            if (agent.executor.equals(here)) {
                registry.begin(order.run, agent.agent, agent.incarnation);
            }
        }
        if (order.save != null) {
            for (int i = 0; i < order.save.agents.size(); i++) {
                Order.AgentRef agent = order.save.agents.get(i);
                if (agent.executor.equals(here)) {
                    registry.saveState(
                            order.run,
                            agent.agent,
                            agent.incarnation,
                            order.save.number,
                            order.save.urls.get(i),
                            side.events(order.run));
                }
            }
        }
        for (Order.Stop stop : order.stop) {
            if (stop.agent.executor.equals(here)) {
                registry.stop(order.run, stop.agent.agent, stop.agent.incarnation, stop.reason);
            }
        }
        for (int i = 0; i < order.downloads.size(); i++) {
            List<Order.AgentRef> agents = new ArrayList<>();
            for (Order.AgentRef agent : order.downloads.get(i).agents) {
                if (agent.executor.equals(here)) {
                    agents.add(agent);
                }
            }
            if (!agents.isEmpty()) {
                side.downloader.begin(order, order.downloads.get(i), plan.sources[i], agents);
            }
        }
    }

    /** The yields of the next cycle: all agents of this executor at once, then their weighted mean as one part. */
    private void freeze(Order order, Iterator<YieldContext> yields, Waits waits, Answer answer) throws Exception {
        List<YieldKey> keys = new ArrayList<>();
        while (yields.hasNext()) {
            keys.add(yields.next().key());
        }
        if (keys.isEmpty()) {
            return;
        }
        Freezing freezing = await(keys, waits);
        answer.late.putAll(freezing.late);
        DriverClock clock = ExecutorSide.get().clock;
        List<byte[]> shards = new ArrayList<>();
        List<Double> weights = new ArrayList<>();
        for (YieldKey key : keys) {
            FrozenYield one = freezing.frozen.get(key.agent);
            if (one == null) {
                continue;
            }
            answer.frozen.add(new Answer.Frozen(
                    key.agent,
                    key.incarnation,
                    one.tau,
                    one.crc,
                    one.finite,
                    one.distance,
                    clock.fromSecondsHere(one.start),
                    clock.fromSecondsHere(one.end)));
            if (one.finite) {
                shards.add(one.data);
                double weight = order.freeze.weight(one.tau);
                weights.add(weight);
                answer.weight += weight;
            }
        }
        if (!shards.isEmpty()) {
            // Without any update there is no mean to weigh; the driver gives such a part no weight, or (x_0) its own.
            byte[] part = answer.weight > 0 ? WeightedSum.mean(shards, weights) : shards.get(0);
            ExecutorSide.get()
                    .parts
                    .put(order.run, order.term, order.freeze.cycle, order.order, part, plan.freezeGrid(part.length));
        }
    }

    /**
     * Freezes in a thread of its own and looks after this task meanwhile. When the task is killed that thread is
     * interrupted; what the agents were asked for stays asked for, and the order submitted again gets it.
     */
    private static Freezing await(List<YieldKey> keys, Waits waits) throws Exception {
        Future<Freezing> freezing = FREEZERS.submit(() -> AgentRegistry.get().freeze(keys, waits.deadlineNanos));
        try {
            while (true) {
                try {
                    return freezing.get(Waits.SLICE_MS, TimeUnit.MILLISECONDS);
                } catch (TimeoutException e) {
                    // The registry keeps the deadline itself and answers who was late; this one only guards against its
                    // bugs.
                    if (System.nanoTime() - waits.deadlineNanos > TimeUnit.SECONDS.toNanos(1)) {
                        waits.check("freezing", () -> ExecutorSide.get().self().executor);
                    } else {
                        waits.checkKilled();
                    }
                }
            }
        } catch (ExecutionException e) {
            throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
        } finally {
            freezing.cancel(true);
        }
    }
}
