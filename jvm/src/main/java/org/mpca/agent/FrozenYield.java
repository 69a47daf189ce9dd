package org.mpca.agent;

import org.mpca.reduce.KeptArray;

/**
 * The materialised state of one shard of one agent.
 *
 * <p>Concurrency: immutable, as long as nobody writes to {@code data}. After its cycle was forgotten others write to it: who reads
 * it later than in the call that gave it retains {@code kept} first.
 */
public final class FrozenYield {
    /** Optimiser updates since the agent's last snapshot of this shard. */
    public final int tau;
    /** CRC-32 of {@code data}. */
    public final long crc;
    /** No element is infinite or NaN. */
    public final boolean finite;
    /** Euclidean distance from the newest joint state that its executor had handed the agent, from x_0 before the first. */
    public final double distance;
    /** The interruption, in seconds of this machine's monotonic clock. */
    public final double start;

    public final double end;
    /** float32, little-endian: the whole shard. Blocks may refer to it, nobody may change it. */
    public final byte[] data;
    /** The same bytes; one user is the yield, until it is forgotten. */
    public final KeptArray kept;

    public FrozenYield(int tau, long crc, boolean finite, double distance, double start, double end, KeptArray kept) {
        this.tau = tau;
        this.crc = crc;
        this.finite = finite;
        this.distance = distance;
        this.start = start;
        this.end = end;
        this.data = kept.data;
        this.kept = kept;
    }
}
