package org.mpca.agent;

/**
 * A joint shard that was downloaded for an agent.
 *
 * <p>Concurrency: immutable, as long as nobody writes to {@code data}.
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
    /** It answers an Exchange: the agent waits for it, whatever its version is. */
    public final boolean answer;

    public Arrival(int shard, long version, String mode, double alpha, byte[] data) {
        this(shard, version, mode, alpha, data, false);
    }

    public Arrival(int shard, long version, String mode, double alpha, byte[] data, boolean answer) {
        this.shard = shard;
        this.version = version;
        this.mode = mode;
        this.alpha = alpha;
        this.data = data;
        this.answer = answer;
    }
}
