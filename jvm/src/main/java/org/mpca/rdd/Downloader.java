package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.Arrival;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;
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
    /** How often a fetch looks at the time: whether a peer is silent for too long, which is seconds. */
    private static final long LOOK_MS = 250;
    /** Shards are of two lengths where elements do not divide evenly: one of each. */
    private static final SpareArrays WITH_RESTS = new SpareArrays(2);

    /** What peers push: batches of a few broadcasts, from each other owner. */
    private static final SpareArrays PUSHED = new SpareArrays(2048);

    /** Pieces that were pushed. */
    private static final class Pushed {
        final PushName what;
        final KeptArray bytes;

        Pushed(PushName what, KeptArray bytes) {
            this.what = what;
            this.bytes = bytes;
        }
    }

    /** Takes pieces, which are of use when all of them are here. Concurrency: one network thread. */
    private final class PiecesSink implements Uploads.Sink {
        private final PushName what;
        private final KeptArray bytes;
        private int at;

        PiecesSink(PushName what) {
            this.what = what;
            this.bytes = KeptArray.take(PUSHED, what.length());
        }

        @Override
        public void come(ByteBuffer some) {
            if (what.isFromDriver()) {
                heardMs = nowMs();
            }
            int fit = Math.min(some.remaining(), bytes.data.length - at);
            some.get(bytes.data, at, fit);
            at += fit;
        }

        @Override
        public void end() {
            commands.add(() -> pushed(new Pushed(what, bytes)));
        }
    }

    private final String executor;
    private final Uplink uplink;
    private final Sweeper sweeper;
    private final DriverClock clock;
    /** What there is for the codec of a run and term. */
    private final BiFunction<String, Integer, Coding> codings;

    private final LinkedBlockingQueue<Runnable> commands = new LinkedBlockingQueue<>();
    private final Map<String, Download> downloads = new ConcurrentHashMap<>();
    private final DownloadQueue queue = new DownloadQueue();
    /** Pieces by attempt and broadcast; a peer may push them before this executor has heard of the order. */
    private final Map<String, TreeMap<Integer, List<Pushed>>> pushed = new HashMap<>();
    /** What is under way; both null between two. */
    private Download.Attempt attempt;

    private Fetch fetch;
    /** When bytes of a push of the driver's last came; network threads say so. */
    private volatile long heardMs = nowMs();
    /** What waits until peers have their pieces ({@link #afterSending}). */
    private final Deque<Runnable> after = new ArrayDeque<>();

    Downloader(
            String executor,
            Uplink uplink,
            Sweeper sweeper,
            DriverClock clock,
            BiFunction<String, Integer, Coding> codings) {
        this.codings = codings;
        this.executor = executor;
        this.uplink = uplink;
        this.sweeper = sweeper;
        this.clock = clock;
        Threads.daemon("mpca-download", this::work).start();
    }

    // ---- called by other threads
    // ------------------------------------------------------------------------------------------

    /** Begins a download for agents of this executor, or renews one that an order before had begun. */
    void begin(Order order, Order.Download what, BroadcastSource source, Peer driver, List<Order.AgentRef> agents) {
        commands.add(() -> {
            Download download = downloads.computeIfAbsent(
                    key(order.run, order.term, what.broadcast), key -> new Download(order, what));
            queue.named(download, new Download.Attempt(order.order, source, driver, agents));
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
                    // By name: Spark looks for a prefix among the files of its folders too, a millisecond each time.
                    sweeper.remove(download.stored(), download::letGo);
                }
            }
            TreeMap<Integer, List<Pushed>> early = pushed.get(BlockNames.ofAttempt(run, term));
            if (early != null) { // a slow peer may push some later: the next call finds them
                early.headMap((int) (long) Collections.max(broadcasts), true)
                        .keySet()
                        .removeIf(broadcast -> !downloads.containsKey(key(run, term, broadcast)));
            }
        });
    }

    /** Runs something once peers have what this executor owes them of the broadcast under way, or that is here; else at once. */
    void afterSending(Runnable what) {
        commands.add(() -> after.add(what));
    }

    /** Who takes pieces that a peer begins to push; called by network threads. */
    Uploads.Sink begin(PushName what) {
        return new PiecesSink(what);
    }

    private void pushed(Pushed one) {
        Download due = attempt == null ? null : queue.due(nowMs());
        boolean underWay = due != null
                && fetch != null
                && due.broadcast == one.what.broadcast()
                && one.what.attempt.equals(BlockNames.ofAttempt(due.run, due.term));
        if (underWay) {
            hand(one);
        } else {
            pushed.computeIfAbsent(one.what.attempt, name -> new TreeMap<>())
                    .computeIfAbsent(one.what.broadcast(), name -> new ArrayList<>())
                    .add(one);
        }
    }

    private void hand(Pushed one) {
        fetch.pushed(one.what, one.bytes.data);
        one.bytes.release();
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
                    pushed.keySet().removeIf(name -> name.startsWith(BlockNames.ofRun(run)));
                    beginOrEnd();
                },
                commands::add);
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
                    fetch.doWork(heardMs);
                }
                while (!after.isEmpty() && (fetch == null || fetch.hasSent())) {
                    runAfter(after.remove());
                }
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                failed(e);
            }
        }
    }

    private static void runAfter(Runnable what) {
        try {
            what.run();
        } catch (RuntimeException e) { // nothing of a download's, and nothing that others wait for
            LOG.error("what waited until peers had their pieces failed", e);
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
            TreeMap<Integer, List<Pushed>> early = pushed.get(BlockNames.ofAttempt(download.run, download.term));
            List<Pushed> all = early == null ? null : early.remove(download.broadcast);
            if (all != null) {
                all.forEach(this::hand);
            }
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

    /** All that travels is here: decodes it, and sees to it that a base is held; false: that base is still to be fetched. */
    private boolean ready(Download download, Download.Attempt own) {
        Coding coding = codings.apply(download.run, download.term);
        HeldBases.Name result = new HeldBases.Name(download.shard, download.version, download.result);
        if (download.coded == null) {
            if (download.makesBase) {
                coding.bases.hold(result, download.data());
            }
            return true;
        }
        if (download.vector() == null) {
            KeptArray full = download.makesBase ? coding.bases.get(result) : null; // it was fetched
            download.decoded(
                    full != null
                            ? full
                            : coding.decoded(download.coded, download.data().data, result, download.makesBase));
        }
        if (download.vector() != null) {
            return true;
        }
        HeldBases.Name missing = download.makesBase ? result : Coding.name(download.shard, download.coded);
        if (coding.bases.holds(missing)) {
            failed(new IOException("what came for agents that join does not decode to what the driver has: " + result));
            return false;
        }
        BlockNames names = new BlockNames(download.run, download.term);
        coding.fetch(
                names,
                missing,
                download.coded.length,
                own.driver,
                failure -> commands.add(() -> {
                    if (attempt != own) {
                        return;
                    }
                    if (failure != null) {
                        failed(new IOException(missing + " could not be fetched: " + failure, failure));
                    } else if (!coding.bases.holds(missing)) {
                        failed(new IOException(missing + " was fetched, and two newer ones are held by now"));
                    } else {
                        end(download, own);
                    }
                }));
        return false;
    }

    private void end(Download download, Download.Attempt own) {
        if (ready(download, own)) {
            deliver(download);
            queue.delivered();
            letGo();
        }
    }

    private void deliver(Download download) {
        double end = clock.now();
        Coding coding = codings.apply(download.run, download.term);
        Map<float[], KeptArray> withRests = new IdentityHashMap<>();
        for (Order.AgentRef agent : download.attempt.agents) {
            if (download.offerOnce(agent)) {
                if (download.mode.equals("replace")) {
                    coding.replaced(agent, download.shard);
                }
                float[] rest = coding.answer(agent, download.shard);
                KeptArray kept = rest == null
                        ? download.vector()
                        : withRests.computeIfAbsent(rest, one -> withRest(download.vector(), one));
                Arrival arrival = new Arrival(download.shard, download.version, download.mode, download.alpha, kept);
                kept.retain(); // the agent's conductor lets go
                if (!offer(download.run, agent, arrival)) {
                    kept.release();
                    download.takeBackOffer(agent);
                    continue;
                }
            }
            // Sent again when an order names the broadcast again: the driver may have missed the first one.
            long bytesIn = download.takeBytesIn();
            long fromDriver = download.takeBytesFromDriver();
            uplink.send(
                    download.run,
                    Event.acknowledged(download.broadcast, executor, agent, download.start, end, bytesIn, fromDriver));
        }
        withRests.values().forEach(KeptArray::release);
    }

    /** The joint state and what rounding left of an agent's snapshot (`with_rest` of {@code mpca/algorithm/rests.py}). */
    private static KeptArray withRest(KeptArray vector, float[] rest) {
        KeptArray sum = KeptArray.take(WITH_RESTS, vector.data.length);
        ByteBuffer from = ByteBuffer.wrap(vector.data).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer to = ByteBuffer.wrap(sum.data).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < rest.length; i++) {
            to.putFloat(i * Float.BYTES, from.getFloat(i * Float.BYTES) + rest[i]);
        }
        return sum;
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
                    end(download, own);
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
