package org.mpca.agent;

/**
 * What an agent sent by an Exchange: its message, and the shard as it was read from the segment.
 *
 * <p>Concurrency: immutable, as long as nobody writes to {@code data}.
 */
public final class Sent {
    /** Of the exchange, from 1 in each incarnation. */
    public final int number;

    public final int shard;
    public final int updates;
    /** Of the joint state that the agent installed last. */
    public final long version;
    /** CRC-32 of the bytes. */
    public final long crc;

    public final boolean finite;
    /** Seconds of this machine's monotonic clock: the interruption began. */
    public final double start;
    /** float32, little-endian. */
    public final byte[] data;

    public Sent(int number, int shard, int updates, long version, long crc, boolean finite, double start, byte[] data) {
        this.number = number;
        this.shard = shard;
        this.updates = updates;
        this.version = version;
        this.crc = crc;
        this.finite = finite;
        this.start = start;
        this.data = data;
    }
}
