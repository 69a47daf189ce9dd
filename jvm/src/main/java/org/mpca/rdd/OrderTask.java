package org.mpca.rdd;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.function.DoubleConsumer;
import org.apache.spark.TaskContext;
import org.mpca.agent.AgentEvents;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.Freezing;
import org.mpca.agent.FrozenYield;
import org.mpca.agent.YieldContext;
import org.mpca.agent.YieldKey;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.EncodedPlan;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.WeightedSum;
import org.mpca.wire.Answer;
import org.mpca.wire.Late;
import org.mpca.wire.Order;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What one executor does for one order: forget what no cycle needs any more, tell, begin and stop agents, have them save what
 * is their own, start downloads in the background, reduce one shard, freeze the yields of the cycle after and answer.
 *
 * <p>The order ends when everything is frozen, so that when the next one reduces, every chunk exists and nobody polls for one.
 * Freezing begins while the shard is still being reduced ({@link FreezeAhead}), so that a cycle seldom waits for the present step
 * of an agent; what is frozen goes at once to those who will sum it ({@link PartPush}). Each part is
 * idempotent, so a re-run task or the order submitted again gives the same bytes. Every wait ends when Spark kills the
 * task or at the order's deadline, so that the executor's second core is free again.
 */
final class OrderTask implements SparkInternals.TaskBody<YieldContext> {
    private static final long serialVersionUID = 1;
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");

    /** What a task does for the sum; fills times and bytes of the answer. Null for an order that sums nothing. */
    interface ReduceStep extends java.io.Serializable {
        /** @param progress told the share of the reduce that is done, from 0 to 1, as it grows */
        void run(Order order, OrderPlan plan, Waits waits, Answer answer, DoubleConsumer progress) throws Exception;

        /** This executor has frozen a part by the order; it is valid during the call, and for who becomes a user of it. */
        default void froze(Order order, OrderPlan plan, ChunkPlan grid, PartStore.Part part) {}
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
        List<YieldKey> keys = new ArrayList<>();
        if (order.freeze != null) {
            yields.forEachRemaining(one -> keys.add(one.key()));
            if (order.freeze.coded != null && !keys.isEmpty()) {
                askWithBase(order, keys, answer);
            }
        }
        if (keys.isEmpty()) {
            reduce(order, waits, answer, share -> {});
        } else {
            FreezeAhead freezing = new FreezeAhead(
                    ExecutorSide.get().pace, order, keys, waits.deadlineNanos, all -> keep(order, keys, all, answer));
            try {
                reduce(order, waits, answer, freezing::progress);
                freezing.await(waits);
            } finally {
                freezing.end();
            }
        }
        return OrderJob.seal(order.order, answer.pack());
    }

    /** The parts of an order that wait for nothing. */
    static void prelude(Order order, OrderPlan plan) {
        ExecutorSide side = ExecutorSide.get();
        AgentRegistry registry = AgentRegistry.get();
        String here = side.self().executor;
        side.exchanges.enter(order.run, order.term);
        side.pushed.enter(order.run);
        registry.forget(order.run, order.term, order.forgetCycle);
        side.sums.forgetBefore(order.run, order.term, order.order);
        side.parts.forget(order.run, order.term, order.forgetCycle);
        side.pushed.forget(order.run, order.term, order.forgetCycle);
        if (order.freeze != null) {
            side.pushed.freezing(order.run, order.term, order.freeze.cycle, order.order, order.executors);
        }
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
            side.coding(order.run, order.term).clear();
            for (Order.AgentRef agent : order.cut.agents) {
                if (agent.executor.equals(here)) {
                    registry.cut(order.run, agent.agent, agent.incarnation, order.cut.shards);
                }
            }
        }
        for (Order.BaseInFull one : order.bases) {
            side.coding(order.run, order.term).fetchIfNone(order, one, plan.driver);
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
                side.downloader.begin(order, order.downloads.get(i), plan.sources[i], plan.driver, agents);
            }
        }
    }

    /** Asks no agent for a difference from a base that is not here: the base is fetched, and then they can be asked again. */
    private void askWithBase(Order order, List<YieldKey> keys, Answer answer) {
        ExecutorSide side = ExecutorSide.get();
        Order.Coded coded = order.freeze.coded;
        Coding coding = side.coding(order.run, order.term);
        HeldBases.Name base = Coding.name(order.freeze.shard, coded);
        if (coding.bases.holds(base)) {
            return;
        }
        AgentEvents events = side.events(order.run);
        List<YieldKey> waiting = new ArrayList<>(keys);
        keys.clear();
        waiting.forEach(key -> answer.late.put(key.agent, Late.NO_BASE));
        coding.fetch(new BlockNames(order.run, order.term), base, coded.length, plan.driver, failure -> {
            if (failure != null) {
                LOG.warn("not to be had from the driver: {} run={} cause={}", base, order.run, failure.toString());
            }
            waiting.forEach(
                    key -> events.back(key.agent, key.incarnation)); // the driver names the base that it has by then
        });
    }

    private void reduce(Order order, Waits waits, Answer answer, DoubleConsumer progress) throws Exception {
        if (order.reduce != null) {
            long start = System.nanoTime();
            step.run(order, plan, waits, answer, progress);
            ExecutorSide.get().pace.reduced(order.run, order.reduce.shard, System.nanoTime() - start);
        }
    }

    /** Keeps the weighted mean of this executor's frozen yields as one part of the next sum. */
    private void keep(Order order, List<YieldKey> keys, Freezing freezing, Answer answer) throws ExecutorFault {
        answer.late.putAll(freezing.late);
        List<KeptArray> shards = new ArrayList<>();
        List<Double> weights = new ArrayList<>();
        List<YieldKey> entering = new ArrayList<>();
        for (YieldKey key : keys) {
            FrozenYield one = freezing.frozen.get(key.agent);
            if (one == null || !one.finite) {
                continue;
            }
            if (!one.kept.retain()) {
                throw new ExecutorFault(answer.executor, "cycle " + order.freeze.cycle + " was forgotten meanwhile");
            }
            shards.add(one.kept);
            entering.add(key);
            double weight = order.freeze.weight(one.tau);
            weights.add(weight);
            answer.weight += weight;
        }
        boolean kept = true;
        if (!shards.isEmpty()) {
            // Without any update there is no mean to weigh; the driver gives such a part no weight, or (x_0) its own.
            kept = keep(order, answer.weight > 0 ? mean(shards, weights) : shards.get(0), entering, answer.executor);
        }
        answer.weight = kept ? answer.weight : 0;
        DriverClock clock = ExecutorSide.get().clock;
        for (YieldKey key : keys) {
            FrozenYield one = freezing.frozen.get(key.agent);
            if (one != null) {
                answer.frozen.add(new Answer.Frozen(
                        key.agent,
                        key.incarnation,
                        one.tau,
                        one.crc,
                        one.finite && kept,
                        one.distance,
                        clock.fromSecondsHere(one.start),
                        clock.fromSecondsHere(one.end)));
            }
        }
    }

    /** Stores a part, which becomes the store's; false: its difference from the base is not finite. */
    private boolean keep(Order order, KeptArray mean, List<YieldKey> entering, String here) {
        ExecutorSide side = ExecutorSide.get();
        ChunkPlan grid = plan.freezeGrid(mean.data.length);
        KeptArray part = mean;
        int[] edges = grid.edges();
        if (order.freeze.coded != null) {
            EncodedPlan coded = Coding.plan(order.freeze.coded, grid);
            edges = coded.edges();
            try {
                part = side.coding(order.run, order.term).part(order, mean, coded, entering, here);
            } catch (IllegalArgumentException e) {
                LOG.warn(
                        "cycle={} run={}: the part of executor {}: {}",
                        order.freeze.cycle,
                        order.run,
                        here,
                        e.getMessage());
                return false;
            }
        } else if (order.freeze.answers()) {
            side.coding(order.run, order.term).plain(order.freeze.shard, entering);
        }
        PartStore.Part stored = side.parts.put(order.run, order.term, order.freeze.cycle, order.order, part, edges);
        if (stored != null) {
            if (step != null) {
                step.froze(order, plan, grid, stored);
            }
            stored.kept.release();
        }
        return true;
    }

    private static KeptArray mean(List<KeptArray> shards, List<Double> weights) {
        if (shards.size() == 1) {
            return shards.get(0);
        }
        List<byte[]> data = new ArrayList<>();
        shards.forEach(one -> data.add(one.data));
        KeptArray mean = KeptArray.of(WeightedSum.mean(data, weights));
        shards.forEach(KeptArray::release);
        return mean;
    }
}
