package org.mpca.rdd;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;

import org.mpca.agent.AgentRegistry;
import org.mpca.agent.Arrival;
import org.mpca.wire.Order;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Fetches broadcasts for all agents of this executor, one after the other, while tasks come and go (section 5.2 of the
 * paper, figure 12: the future of a broadcast). A task only names one; it never waits for it.
 *
 * <p>One thread, "mpca-download", fetches and hands over: a download starts when the one before has ended, so that two
 * never share the wire. The table of downloads is guarded by this object's lock.
 */
final class Downloader {
  private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
  private static final long RETRY_MS = 500;

  private final String executor;
  private final Uplink uplink;
  private final Sweeper sweeper;
  private final DriverClock clock;
  private final Map<String, Download> downloads = new HashMap<>();
  private final LinkedBlockingQueue<Download> queue = new LinkedBlockingQueue<>();

  Downloader(String executor, Uplink uplink, Sweeper sweeper, DriverClock clock) {
    this.executor = executor;
    this.uplink = uplink;
    this.sweeper = sweeper;
    this.clock = clock;
    Threads.daemon("mpca-download", this::work).start();
  }

  /** Begins a download for agents of this executor, or renews one that an order before had begun. */
  synchronized void begin(Order order, Order.Download what, BroadcastSource source, List<Order.Place> agents) {
    Download download =
        downloads.computeIfAbsent(key(order.run, order.epoch, what.broadcast), key -> new Download(order, what));
    if (download.renew(new Download.Attempt(order.order, source, agents))) {
      queue.add(download);
    }
  }

  /** Drops broadcasts and whatever of them lies in the block manager. */
  synchronized void forget(String run, int epoch, Collection<Long> broadcasts) {
    BlockNames names = new BlockNames(run, epoch);
    for (long broadcast : broadcasts) {
      Download download = downloads.remove(key(run, epoch, broadcast));
      if (download != null) {
        download.forget();
        sweeper.removeLater(() -> SparkInternals.matching(names.pieces((int) broadcast)), false);
      }
    }
    if (!broadcasts.isEmpty()) {
      long newest = java.util.Collections.max(broadcasts);
      sweeper.removeLater(() -> staleMarks(names, run, epoch, newest), true);
    }
  }

  /** Forgets a run, of whatever epoch; its blocks are removed by their prefix. */
  synchronized void endRun(String run) {
    downloads.entrySet().removeIf(entry -> {
      if (!entry.getKey().startsWith(run + "/")) {
        return false;
      }
      entry.getValue().forget();
      return true;
    });
  }

  /** Marks of forgotten broadcasts; those that a slow peer set after the forgetting are found the next time. */
  private List<String> staleMarks(BlockNames names, String run, int epoch, long newestForgotten) {
    List<String> stale = new ArrayList<>();
    for (String name : SparkInternals.matching(names.marks())) {
      long broadcast = BlockNames.numberAfter(names.marks(), name);
      synchronized (this) {
        if (broadcast <= newestForgotten && !downloads.containsKey(key(run, epoch, broadcast))) {
          stale.add(name);
        }
      }
    }
    return stale;
  }

  private void work() {
    while (true) {
      try {
        Download download = queue.take();
        Download.Attempt done;
        do {
          done = fetch(download);
        } while (!download.leave(done));
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  /** Tries until the newest attempt has succeeded or nobody wants it; the attempt that it ended with. */
  private Download.Attempt fetch(Download download) throws InterruptedException {
    download.started(clock.now());
    while (true) {
      Download.Attempt attempt = download.attempt();
      try {
        attempt.source.fetch(download, attempt);
        deliver(download, attempt);
        return attempt;
      } catch (Download.Abandoned e) {
        if (download.isForgotten()) {
          return attempt;
        }
      } catch (IOException | RuntimeException e) {
        LOG.warn("download is tried again: broadcast={} run={} cause={}", download.broadcast, download.run, e.toString());
        download.pause(RETRY_MS);
        if (download.isForgotten()) {
          return attempt;
        }
      }
    }
  }

  private void deliver(Download download, Download.Attempt attempt) throws InterruptedException {
    double end = clock.now();
    Arrival arrival = new Arrival(download.shard, download.version, download.mode, download.alpha, download.data());
    for (Order.Place agent : attempt.agents) {
      if (download.offerOnce(agent)
          && !AgentRegistry.get().offer(download.run, agent.agent, agent.incarnation, arrival)) {
        download.takeBackOffer(agent);
        continue;
      }
      // Said again when an order names it again: the driver may not have heard it.
      Map<String, Object> event = new LinkedHashMap<>();
      event.put("broadcast", download.broadcast);
      event.put("executor", executor);
      event.put("agent", agent.agent);
      event.put("incarnation", agent.incarnation);
      event.put("start", download.start());
      event.put("end", end);
      event.put("bytes_in", download.takeBytesIn());
      event.put("from_driver", download.takeBytesFromDriver());
      uplink.send(download.run, "Acknowledged", event);
    }
  }

  private static String key(String run, int epoch, long broadcast) {
    return run + "/" + epoch + "/" + broadcast;
  }
}
