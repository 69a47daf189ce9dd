package org.mpca.rdd;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.mpca.reduce.ChunkPlan;

/**
 * Broadcast by relay: of K executors, number i takes pieces i mod K from the driver and the others from their owners. So
 * each piece leaves the driver once, where Spark's torrent sends it three or four times.
 *
 * <p>Guarded by its own lock; removals happen in the sweeper.
 */
final class RelayBroadcast implements Broadcaster {
  private final BlockNames names;
  private final Sweeper sweeper;
  private final Map<Integer, Integer> lengths = new HashMap<>();

  RelayBroadcast(BlockNames names, Sweeper sweeper) {
    this.names = names;
    this.sweeper = sweeper;
  }

  /** Bytes of a piece, from the length alone: who takes part is known only later. Eight owners get eight pieces each. */
  static int pieceBytes(int length) {
    return Math.max(ChunkPlan.MIN_BYTES, Math.min(ChunkPlan.DEFAULT_BYTES, length / 64));
  }

  static int pieces(int length) {
    int piece = pieceBytes(length);
    return (length + piece - 1) / piece;
  }

  @Override
  public synchronized void publish(int broadcast, byte[] data) {
    int piece = pieceBytes(data.length);
    for (int p = 0; p < pieces(data.length); p++) {
      SparkInternals.put(names.pieces(broadcast) + p, data, p * piece, Math.min(piece, data.length - p * piece));
    }
    lengths.put(broadcast, data.length);
  }

  @Override
  public BroadcastSource source(int broadcast, int order, List<Peer> owners, Peer driver) {
    return new Source(names, order, new ArrayList<>(owners), driver);
  }

  @Override
  public synchronized void withdraw(int broadcast) {
    Integer length = lengths.remove(broadcast);
    if (length != null) {
      sweeper.remove(BlockNames.numbered(names.pieces(broadcast), 0, pieces(length)), false);
    }
  }

  @Override
  public synchronized void close() {
    new ArrayList<>(lengths.keySet()).forEach(this::withdraw);
  }

  /** Who owns which pieces in one order. */
  static final class Source implements BroadcastSource {
    private static final long serialVersionUID = 1;

    final BlockNames names;
    final int order;
    final ArrayList<Peer> owners;
    final Peer driver;

    Source(BlockNames names, int order, ArrayList<Peer> owners, Peer driver) {
      this.names = names;
      this.order = order;
      this.owners = owners;
      this.driver = driver;
    }

    @Override
    public void fetch(Download download, Download.Attempt attempt)
        throws IOException, Download.Abandoned, InterruptedException {
      new RelayFetch(this, download, attempt).run();
    }
  }
}
