package org.mpca.rdd;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.Arrival;
import org.mpca.wire.Event;
import org.mpca.wire.Order;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Fetches broadcasts for all agents of this executor, one after the other, while tasks come and go (section 5.2 of the
 * paper, figure 12: the future of a broadcast). A task only names one; it never waits for it. Which is fetched when is decided
 * by a {@link DownloadQueue}, from whom by the {@link Relay} behind a {@link Fetch}.
 *
 * <p>Concurrency: everything belongs to one thread, mpca-download; tasks and network threads add commands to its queue. The
 * table is concurrent, since the sweeper looks into it.
 */
final class Downloader {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    /** How often a fetch looks for what no event tells. */
    private static final long LOOK_MS = 2;

    private final String executor;
    private final Uplink uplink;
    private final Sweeper sweeper;
    private final DriverClock clock;
    private final LinkedBlockingQueue<Runnable> commands = new LinkedBlockingQueue<>();
    private final Map<String, Download> downloads = new ConcurrentHashMap<>();
    private final DownloadQueue queue = new DownloadQueue();
    /** What is under way; both null between two. */
    private Download.Attempt attempt;

    private Fetch fetch;

    Downloader(String executor, Uplink uplink, Sweeper sweeper, DriverClock clock) {
        this.executor = executor;
        this.uplink = uplink;
        this.sweeper = sweeper;
        this.clock = clock;
        Threads.daemon("mpca-download", this::work).start();
    }

    // ---- called by other threads
    // ------------------------------------------------------------------------------------------

    /** Begins a download for agents of this executor, or renews one that an order before had begun. */
    void begin(Order order, Order.Download what, BroadcastSource source, List<Order.AgentRef> agents) {
        commands.add(() -> {
            Download download = downloads.computeIfAbsent(
                    key(order.run, order.term, what.broadcast), key -> new Download(order, what));
            queue.named(download, new Download.Attempt(order.order, source, agents));
        });
    }

    /** Drops broadcasts and their blocks. */
    void forget(String run, int term, Collection<Long> broadcasts) {
        if (broadcasts.isEmpty()) {
            return;
        }
        commands.add(() -> {
            BlockNames names = new BlockNames(run, term);
            for (long broadcast : broadcasts) {
                Download download = downloads.remove(key(run, term, broadcast));
                if (download != null) {
                    queue.forgotten(download);
                    sweeper.removeLater(() -> SparkInternals.matching(names.pieces((int) broadcast)), false);
                }
            }
            long newest = java.util.Collections.max(broadcasts);
            sweeper.removeLater(() -> staleMarks(names, run, term, newest), true);
        });
    }

    /** Forgets a run. When the answer is complete, no more blocks of the run are stored; the caller removes them by prefix. */
    CompletableFuture<Void> endRun(String run) {
        return CompletableFuture.runAsync(
                () -> {
                    downloads.entrySet().removeIf(entry -> {
                        if (!entry.getKey().startsWith(run + "/")) {
                            return false;
                        }
                        queue.forgotten(entry.getValue());
                        return true;
                    });
                    beginOrEnd();
                },
                commands::add);
    }

    /** Marks of forgotten broadcasts. A slow peer may set one later: the next call finds it. */
    private List<String> staleMarks(BlockNames names, String run, int term, long newestForgotten) {
        List<String> stale = new ArrayList<>();
        for (String name : SparkInternals.matching(names.marks())) {
            long broadcast = BlockNames.numberAfter(names.marks(), name);
            if (broadcast <= newestForgotten && !downloads.containsKey(key(run, term, broadcast))) {
                stale.add(name);
            }
        }
        return stale;
    }

    // ---- the download thread
    // ----------------------------------------------------------------------------------------------

    private void work() {
        while (true) {
            try {
                for (Runnable command = awaitCommand(); command != null; command = commands.poll()) {
                    command.run();
                    beginOrEnd();
                }
                beginOrEnd(); // a pause may be over
                if (fetch != null) {
                    fetch.doWork();
                }
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                failed(e);
            }
        }
    }

    private Runnable awaitCommand() throws InterruptedException {
        Long pauseMs = fetch == null ? queue.pauseMs(nowMs()) : Long.valueOf(LOOK_MS);
        return pauseMs == null ? commands.take() : commands.poll(pauseMs, TimeUnit.MILLISECONDS);
    }

    /** Ends the attempt under way if the queue names another one, and begins that one. */
    private void beginOrEnd() {
        Download due = queue.due(nowMs());
        while (attempt != (due == null ? null : due.attempt)) {
            letGo();
            if (due != null) {
                begin(due);
            }
            due = queue.due(nowMs());
        }
    }

    private void begin(Download download) {
        if (download.start == null) {
            download.start = clock.now();
        }
        attempt = download.attempt;
        try {
            fetch = attempt.source.open(download, new AttemptPort(download, attempt));
            fetch.begin();
        } catch (RuntimeException e) {
            failed(e);
        }
    }

    private void letGo() {
        if (fetch != null) {
            fetch.abandon();
        }
        fetch = null;
        attempt = null;
    }

    private void failed(Exception cause) {
        Download download = queue.due(nowMs());
        if (attempt == null || download == null) {
            LOG.error("the download thread goes on after our own error", cause);
            return;
        }
        LOG.warn(
                "download is tried again: broadcast={} run={} cause={}",
                download.broadcast,
                download.run,
                cause.toString());
        letGo();
        queue.failed(nowMs());
    }

    private void deliver(Download download) {
        double end = clock.now();
        Arrival arrival = new Arrival(download.shard, download.version, download.mode, download.alpha, download.data());
        for (Order.AgentRef agent : download.attempt.agents) {
            if (download.offerOnce(agent) && !offer(download.run, agent, arrival)) {
                download.takeBackOffer(agent);
                continue;
            }
            // Sent again when an order names the broadcast again: the driver may have missed the first one.
            long bytesIn = download.takeBytesIn();
            long fromDriver = download.takeBytesFromDriver();
            uplink.send(
                    download.run,
                    Event.acknowledged(download.broadcast, executor, agent, download.start, end, bytesIn, fromDriver));
        }
    }

    private static boolean offer(String run, Order.AgentRef agent, Arrival arrival) {
        try {
            return AgentRegistry.get().offer(run, agent.agent, agent.incarnation, arrival);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while an agent is offered broadcast bytes", e);
        }
    }

    private static long nowMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    private static String key(String run, int term, long broadcast) {
        return run + "/" + term + "/" + broadcast;
    }

    /** Where one attempt reports. Its pieces count even if a newer attempt has replaced it; its end does not. */
    private final class AttemptPort implements Fetch.Port {
        private final Download download;
        private final Download.Attempt own;

        AttemptPort(Download download, Download.Attempt own) {
            this.download = download;
            this.own = own;
        }

        @Override
        public void arrived(int piece, int bytes, boolean fromDriver) {
            commands.add(() -> {
                if (download.arrived(piece, bytes, fromDriver) && attempt == download.attempt && fetch != null) {
                    fetch.arrived(piece);
                }
            });
        }

        @Override
        public void arrived(byte[] whole, long fromDriver) {
            commands.add(() -> download.adopt(whole, fromDriver));
        }

        @Override
        public void happened(Runnable event) {
            commands.add(event);
        }

        @Override
        public void done() {
            commands.add(() -> {
                if (attempt == own) {
                    deliver(download);
                    queue.delivered();
                    letGo();
                }
            });
        }

        @Override
        public void failed(IOException cause) {
            commands.add(() -> {
                if (attempt == own) {
                    Downloader.this.failed(cause);
                }
            });
        }
    }
}
