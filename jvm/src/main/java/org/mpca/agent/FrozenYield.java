package org.mpca.agent;

/**
 * The materialised state of one shard of one agent.
 *
 * <p>Concurrency: immutable, as long as nobody writes to {@code data}.
 */
public final class FrozenYield {
  /** Optimiser updates since the agent's last snapshot of this shard. */
  public final int tau;
  /** CRC-32 of {@code data}. */
  public final long crc;
  /** No element is infinite or NaN. */
  public final boolean finite;
  /** Wall clock seconds of the interruption. */
  public final double start;
  public final double end;
  /** float32, little-endian: the whole shard. Blocks may refer to it, nobody may change it. */
  public final byte[] data;

  public FrozenYield(int tau, long crc, boolean finite, double start, double end, byte[] data) {
    this.tau = tau;
    this.crc = crc;
    this.finite = finite;
    this.start = start;
    this.end = end;
    this.data = data;
  }
}
