package org.mpca.agent;

import org.mpca.reduce.KeptArray;

/**
 * A joint shard that was downloaded for an agent.
 *
 * <p>Concurrency: immutable, as long as nobody writes to {@code data}: each agent that it is offered to is a user of {@code kept},
 * and lets go when the bytes lie in its slot.
 */
public final class Arrival {
    public final int shard;
    /** Exchange number of the shard. */
    public final long version;
    /** "install" or "replace". */
    public final String mode;
    /** Strength of the pull towards it. */
    public final double alpha;
    /** float32, little-endian. Shared between the agents of an executor. */
    public final byte[] data;

    final KeptArray kept;
    /** It answers an Exchange: the agent waits for it, whatever its version is. */
    public final boolean answer;

    public Arrival(int shard, long version, String mode, double alpha, KeptArray kept) {
        this(shard, version, mode, alpha, kept, false);
    }

    public Arrival(int shard, long version, String mode, double alpha, KeptArray kept, boolean answer) {
        this.shard = shard;
        this.version = version;
        this.mode = mode;
        this.alpha = alpha;
        this.data = kept.data;
        this.kept = kept;
        this.answer = answer;
    }

    /** The same, but it replaces the agent's own. */
    Arrival replacing() {
        return new Arrival(shard, version, "replace", alpha, kept, answer);
    }
}
