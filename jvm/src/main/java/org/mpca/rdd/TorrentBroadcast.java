package org.mpca.rdd;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.SparkContext;
import org.apache.spark.broadcast.Broadcast;

/**
 * Spark's own broadcast, the paper's and the yardstick: every executor takes pieces in an order of its own from whoever
 * has them. Destroyed once and never unpersisted before: that would leave the pieces of a running download behind.
 * Guarded by its own lock.
 */
final class TorrentBroadcast implements Broadcaster {
  private final SparkContext context;
  private final Map<Integer, Broadcast<byte[]>> broadcasts = new HashMap<>();

  TorrentBroadcast(SparkContext context) {
    this.context = context;
    // Its pieces carry Spark's own checksums; what is damaged is fetched again by the download's next try.
    if (!context.getConf().getBoolean("spark.broadcast.checksum", true)) {
      throw new IllegalArgumentException(
          "spark.broadcast.checksum = false: nobody would notice damaged pieces; leave it true, or take broadcast = relay");
    }
  }

  @Override
  public synchronized void publish(int broadcast, byte[] data) {
    broadcasts.put(broadcast, SparkInternals.broadcast(context, data));
  }

  @Override
  public synchronized BroadcastSource source(int broadcast, int order, List<Peer> owners, Peer driver) {
    Broadcast<byte[]> handle = broadcasts.get(broadcast);
    if (handle == null) {
      throw new IllegalArgumentException("no such broadcast, or withdrawn: broadcast=" + broadcast);
    }
    return new Source(handle, owners.size());
  }

  @Override
  public synchronized void withdraw(int broadcast) {
    Broadcast<byte[]> handle = broadcasts.remove(broadcast);
    if (handle != null) {
      handle.destroy();
    }
  }

  @Override
  public synchronized void close() {
    new ArrayList<>(broadcasts.keySet()).forEach(this::withdraw);
  }

  /**
   * Spark does not say where pieces came from. Expected: the c-th to ask for a piece finds c holders and picks one at
   * random, so that of K copies 1 + 1/2 + ... + 1/K come from the driver.
   */
  private static long expectedFromDriver(int length, int owners) {
    double copies = 0;
    for (int c = 1; c <= owners; c++) {
      copies += 1.0 / c;
    }
    return (long) (length * copies / owners);
  }

  private static final class Source implements BroadcastSource {
    private static final long serialVersionUID = 1;

    private final Broadcast<byte[]> handle;

    private final int owners;

    Source(Broadcast<byte[]> handle, int owners) {
      this.handle = handle;
      this.owners = owners;
    }

    @Override
    public void fetch(Download download, Download.Attempt attempt) throws IOException, Download.Abandoned {
      download.check(attempt);
      if (download.isWhole()) {
        return;
      }
      byte[] whole;
      try {
        whole = handle.value();
      } catch (Exception e) { // Scala's method throws IOException without declaring it.
        throw e instanceof IOException ? (IOException) e : new IOException(e);
      }
      download.adopt(whole, expectedFromDriver(whole.length, owners));
    }
  }
}
