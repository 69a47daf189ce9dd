package org.mpca.rdd;

import java.util.List;

/** The port to whatever carries a joint shard to the executors. Two of them: relay (default) and torrent. */
interface Broadcaster {
  /** Makes a broadcast ready for download on the driver. The array must not change any more. */
  void publish(int broadcast, byte[] data);

  /** Where the executors of one order get it from; `owners` are those that take part in the download, in order. */
  BroadcastSource source(int broadcast, int order, List<Peer> owners, Peer driver);

  /** Frees it on the driver. */
  void withdraw(int broadcast);

  /** Frees all. */
  void close();
}
