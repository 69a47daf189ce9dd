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
  }

  @Override
  public synchronized void publish(int broadcast, byte[] data) {
    broadcasts.put(broadcast, SparkInternals.broadcast(context, data));
  }

  @Override
  public synchronized BroadcastSource source(int broadcast, int order, List<Peer> owners, Peer driver) {
    return new Source(broadcasts.get(broadcast));
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

  private static final class Source implements BroadcastSource {
    private static final long serialVersionUID = 1;

    private final Broadcast<byte[]> handle;

    Source(Broadcast<byte[]> handle) {
      this.handle = handle;
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
      download.adopt(whole);
    }
  }
}
