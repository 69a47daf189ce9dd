package org.mpca.rdd;

import java.util.List;

/** Carries a joint shard from the driver to the executors. Two implementations: relay (default) and torrent. */
interface Broadcaster {
  /** Makes a broadcast ready for download. The array must not change afterwards. */
  void publish(int broadcast, byte[] data);

  /** Where the executors of one order get a broadcast from; {@code owners}: those that download it, in the order's sequence. */
  BroadcastSource source(int broadcast, int order, List<Peer> owners, Peer driver);

  /** Frees a broadcast on the driver. */
  void withdraw(int broadcast);

  /** Frees all broadcasts. */
  void close();
}
