package org.mpca.agent;

import com.esotericsoftware.kryo.DefaultSerializer;
import java.io.Externalizable;
import java.io.IOException;
import java.io.ObjectInput;
import java.io.ObjectOutput;
import java.util.Collections;
import java.util.concurrent.TimeUnit;
import org.mpca.reduce.KeptArray;
import org.mpca.wire.Late;

/**
 * The state of one shard of one agent <i>after the optimiser is next interrupted</i> (MPCA SGD, section 5.1).
 *
 * <p>Making one costs nothing. The first access of any kind, serialisation included, interrupts the agent between two batches,
 * materialises the shard and freezes it; every later access returns the same bytes until the driver forgets the cycle.
 * One that is never read interrupts no agent, and is counted when it is forgotten.
 *
 * <p>What travels is always the frozen state, and what arrives elsewhere needs no agent. Java serialisation is told by
 * Externalizable. Kryo, which clusters set, ignores that; it finds {@link YieldContextKryo} by the annotation, which a
 * JVM without Kryo skips. Any other serialiser that copies fields finds none, and its copy fails at the first access.
 *
 * <p>Concurrency: any thread; the registry's keeper freezes it once, everything else waits for that.
 */
@DefaultSerializer(YieldContextKryo.class)
public final class YieldContext implements Externalizable {
    private static final long serialVersionUID = 1L;

    private transient AgentRegistry registry;
    private transient YieldKey key;
    private transient volatile FrozenYield frozen;
    private transient volatile boolean touched;
    private transient volatile boolean forgotten;

    /** For deserialisation only. */
    public YieldContext() {}

    YieldContext(AgentRegistry registry, YieldKey key) {
        this.registry = registry;
        this.key = key;
    }

    public YieldKey key() {
        if (key == null) {
            throw new IllegalStateException(
                    "this yield was copied by a serialiser that knows neither Externalizable nor"
                            + " Kryo's annotation: its state did not come along");
        }
        return key;
    }

    /**
     * The frozen state; interrupts the agent at the first call.
     *
     * @param deadlineNanos of System.nanoTime; the wait ends there
     * @throws LateAgentException the agent did not answer in time; what it answers later is dropped
     * @throws AgentGoneException the agent is not here in this incarnation, or died first, or the cycle was forgotten
     */
    public FrozenYield freeze(long deadlineNanos) throws LateAgentException, AgentGoneException, InterruptedException {
        YieldKey mine = key();
        touched = true;
        if (frozen != null && !forgotten) {
            return frozen;
        }
        if (forgotten || registry == null) {
            throw new AgentGoneException(Late.FORGOTTEN + ": " + mine);
        }
        Freezing freezing = registry.freeze(Collections.singletonList(mine), deadlineNanos);
        FrozenYield result = freezing.frozen.get(mine.agent);
        if (result != null) {
            return result;
        }
        Late reason = freezing.late.get(mine.agent);
        if (reason == Late.DEADLINE) {
            throw new LateAgentException(reason + ": " + mine);
        }
        throw new AgentGoneException(reason + ": " + mine);
    }

    /** Whether anybody has accessed it. */
    public boolean touched() {
        return touched;
    }

    public boolean frozen() {
        return frozen != null;
    }

    /** Interrupts no agent. */
    @Override
    public String toString() {
        return "YieldContext " + key + (frozen != null ? " frozen" : touched ? " asked" : " unread");
    }

    void touch() {
        touched = true;
    }

    FrozenYield state() {
        return frozen;
    }

    /** Called by the keeper, once. */
    void freezeAs(FrozenYield state) {
        frozen = state;
    }

    /** Called by the keeper, once. */
    void forget() {
        forgotten = true;
        if (frozen != null) {
            frozen.kept.release();
        }
    }

    /** For an access without a deadline. The caller is one more user of the bytes, and lets go. */
    FrozenYield freezeForCopy() throws IOException {
        try {
            FrozenYield state = freeze(System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TimeOuts.ACCESS_MS));
            if (!state.kept.retain()) {
                throw new AgentGoneException(Late.FORGOTTEN + ": " + key);
            }
            return state;
        } catch (LateAgentException | AgentGoneException e) {
            throw new IOException("cannot serialise a yield that was not handed over: " + e.getMessage(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted while the agent hands its shard over: " + key, e);
        }
    }

    /** The copy's side. */
    void restore(YieldKey key, FrozenYield frozen) {
        this.key = key;
        this.frozen = frozen;
        this.touched = true;
    }

    @Override
    public void writeExternal(ObjectOutput out) throws IOException {
        FrozenYield state = freezeForCopy();
        try {
            write(out, state);
        } finally {
            state.kept.release();
        }
    }

    private void write(ObjectOutput out, FrozenYield state) throws IOException {
        out.writeObject(key);
        out.writeInt(state.tau);
        out.writeLong(state.crc);
        out.writeBoolean(state.finite);
        out.writeDouble(state.distance);
        out.writeDouble(state.start);
        out.writeDouble(state.end);
        out.writeInt(state.data.length);
        out.write(state.data);
    }

    @Override
    public void readExternal(ObjectInput in) throws IOException, ClassNotFoundException {
        YieldKey key = (YieldKey) in.readObject();
        int tau = in.readInt();
        long crc = in.readLong();
        boolean finite = in.readBoolean();
        double distance = in.readDouble();
        double start = in.readDouble();
        double end = in.readDouble();
        byte[] data = new byte[in.readInt()];
        in.readFully(data);
        restore(key, new FrozenYield(tau, crc, finite, distance, start, end, KeptArray.of(data)));
    }
}
