package org.mpca.rdd;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.function.Consumer;
import org.mpca.agent.YieldKey;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.Codec;
import org.mpca.reduce.EncodedPlan;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.Rests;
import org.mpca.reduce.SpareArrays;
import org.mpca.wire.Order;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What one executor holds for the codec of one attempt of a run: bases, and what rounding has left of parts and of sums.
 *
 * <p>Concurrency: safe from any thread.
 */
final class Coding {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static final ExecutorService FETCHERS = Threads.pool("mpca-fetch");
    /** Decoded joint states, which are bases until two newer ones have come; of shards of two lengths. */
    private static final SpareArrays VECTORS = new SpareArrays(3);
    /** Encoded parts. */
    private static final SpareArrays PARTS = new SpareArrays(3);
    /** The one "cut" of a part, which is rounded as a whole. */
    private static final Object WHOLE = "whole";

    final int term;
    /** Of this executor's parts. */
    private final Rests parts = new Rests();
    /** Of the sums that this executor makes, by the executors among which they are shared out. */
    final Rests sums = new Rests();

    final HeldBases bases = new HeldBases((name, vector) -> vector.release());
    /** What rounding left of the part that has an agent's newest snapshot of a shard, by agent and shard. Guarded by itself. */
    private final Map<String, Answer> answers = new HashMap<>();
    /** Who waits for a base that is being fetched. Guarded by itself. */
    private final Map<HeldBases.Name, List<Consumer<Throwable>>> fetching = new HashMap<>();

    /** Of one process; the next one of the agent takes its place. */
    private static final class Answer {
        final int incarnation;
        final float[] rest;

        Answer(int incarnation, float[] rest) {
            this.incarnation = incarnation;
            this.rest = rest;
        }
    }

    Coding(int term) {
        this.term = term;
    }

    /** The base that an order names for a shard. */
    static HeldBases.Name name(int shard, Order.Coded coded) {
        return new HeldBases.Name(shard, coded.version, coded.crc);
    }

    static EncodedPlan plan(Order.Coded coded, ChunkPlan chunks) {
        return new EncodedPlan(Codec.named(coded.codec), chunks, coded.parameters);
    }

    // ---- parts
    // ---------------------------------------------------------------------------------------------------------------

    /**
     * Encodes this executor's part. Made again, from the same snapshots, it has the same bytes.
     *
     * @param mean of its agents' snapshots; one user of it is let go
     * @param plan how it is cut
     * @param entering whose snapshots are in it
     * @throws IllegalArgumentException a difference is not finite
     * @throws IllegalStateException the base is gone
     */
    KeptArray part(Order order, KeptArray mean, EncodedPlan plan, List<YieldKey> entering, String here) {
        Order.Freeze freeze = order.freeze;
        KeptArray base = bases.get(name(freeze.shard, freeze.coded));
        if (base == null) {
            throw new IllegalStateException("no longer held: " + name(freeze.shard, freeze.coded));
        }
        try {
            float[] rest = freeze.answers() || freeze.carries() ? new float[mean.data.length / Float.BYTES] : null;
            int after = 0;
            float[][] before = null;
            for (Order.Carried one : order.carried) {
                if (one.executor.equals(here)) {
                    after = one.cycle;
                    before = parts.left(freeze.shard, after, WHOLE);
                }
            }
            KeptArray encoded = KeptArray.take(PARTS, plan.length());
            plan.encode(mean.data, base.data, before == null ? null : before[0], rest, encoded.data);
            if (freeze.carries()) {
                parts.keep(freeze.shard, freeze.cycle, after, WHOLE, rest);
            } else if (rest != null) {
                synchronized (answers) {
                    entering.forEach(
                            one -> answers.put(key(one.agent, freeze.shard), new Answer(one.incarnation, rest)));
                }
            }
            return encoded;
        } finally {
            base.release();
            mean.release();
        }
    }

    /** These agents' newest snapshots of a shard are in a part that travels as float32: nothing is left of them. */
    void plain(int shard, List<YieldKey> entering) {
        synchronized (answers) {
            entering.forEach(one -> answers.remove(key(one.agent, shard)));
        }
    }

    /**
     * What rounding left of the part that has this agent's newest snapshot of a shard: it gets it with the next joint state.
     *
     * @return null: nothing
     */
    float[] answer(Order.AgentRef agent, int shard) {
        synchronized (answers) {
            Answer held = answers.get(key(agent.agent, shard));
            return held == null || held.incarnation != agent.incarnation ? null : held.rest;
        }
    }

    /** The agent's parameters of a shard are replaced: what its snapshots left does not matter any more. */
    void replaced(Order.AgentRef agent, int shard) {
        synchronized (answers) {
            answers.computeIfPresent(
                    key(agent.agent, shard), (key, held) -> held.incarnation > agent.incarnation ? held : null);
        }
    }

    private static String key(int agent, int shard) {
        return agent + "/" + shard;
    }

    // ---- broadcasts
    // ----------------------------------------------------------------------------------------------------------

    /**
     * Decodes a broadcast, and holds what comes out as the newest base if it is one.
     *
     * @param data what travelled
     * @param result the name of what must come out
     * @return one user of it is the caller; null: the base is not held, or what is held under its name is not what the driver has
     */
    KeptArray decoded(Order.Coded coded, byte[] data, HeldBases.Name result, boolean makesBase) {
        KeptArray base = bases.get(name(result.shard, coded));
        if (base == null) {
            return null;
        }
        KeptArray vector = KeptArray.take(VECTORS, coded.length);
        try {
            EncodedPlan.whole(Codec.named(coded.codec), coded.length, coded.parameters)
                    .decode(data, base.data, vector.data);
        } finally {
            base.release();
        }
        if (!HeldBases.Name.of(result.shard, result.version, vector.data).equals(result)) {
            LOG.warn("decoded to other bytes than the driver's: {}", result);
            vector.release();
            return null;
        }
        if (makesBase) {
            bases.hold(result, vector);
        }
        return vector;
    }

    // ---- bases in full
    // -------------------------------------------------------------------------------------------------------

    /**
     * Fetches a base from the driver, unless that is under way already, and holds it.
     *
     * @param length bytes of the base
     * @param then gets null, or why it could not be had; in any thread
     */
    void fetch(BlockNames names, HeldBases.Name base, int length, Peer driver, Consumer<Throwable> then) {
        synchronized (fetching) {
            List<Consumer<Throwable>> waiting = fetching.get(base);
            if (waiting != null) {
                waiting.add(then);
                return;
            }
            fetching.put(base, new ArrayList<>(Collections.singletonList(then)));
        }
        String stem = names.base(base.shard, base.version, base.crc);
        FETCHERS.execute(
                () -> Pieces.fetch(driver, stem, length, () -> {}, (vector, failure) -> came(base, vector, failure)));
    }

    private void came(HeldBases.Name base, byte[] vector, Throwable failure) {
        if (failure != null) {
            fetched(base, failure);
        } else if (!HeldBases.Name.of(base.shard, base.version, vector).equals(base)) {
            fetched(base, new IOException("fetched with other bytes: " + base));
        } else {
            KeptArray kept = KeptArray.of(vector);
            bases.hold(base, kept);
            kept.release();
            fetched(base, null);
        }
    }

    /** Fetches a base unless there is one of its shard, or a download is about to bring one. */
    void fetchIfNone(Order order, Order.BaseInFull wanted, Peer driver) {
        if (bases.holdsAny(wanted.shard) || order.downloads.stream().anyMatch(one -> brings(one, wanted.shard))) {
            return;
        }
        HeldBases.Name base = new HeldBases.Name(wanted.shard, wanted.version, wanted.crc);
        fetch(new BlockNames(order.run, order.term), base, wanted.length, driver, failure -> {
            if (failure != null) { // a freeze that needs it asks again
                LOG.warn("not to be had from the driver: {} run={} cause={}", base, order.run, failure.toString());
            }
        });
    }

    /** Orders name the agents of this executor alone. */
    private static boolean brings(Order.Download one, int shard) {
        return one.shard == shard && one.result != 0 && !one.agents.isEmpty();
    }

    private void fetched(HeldBases.Name base, Throwable failure) {
        List<Consumer<Throwable>> waiting;
        synchronized (fetching) {
            waiting = fetching.remove(base);
        }
        if (waiting != null) {
            waiting.forEach(one -> one.accept(failure));
        }
    }

    /** The model is cut anew, or the attempt is over. */
    void clear() {
        bases.clear();
        parts.clear();
        sums.clear();
        synchronized (answers) {
            answers.clear();
        }
    }
}
