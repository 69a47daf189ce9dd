package org.mpca.rdd;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkContext;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.AgentStatus;
import org.mpca.agent.LaunchSpec;
import org.mpca.agent.TimeOuts;
import org.mpca.reduce.Codec;
import org.mpca.reduce.KeptArray;
import org.mpca.wire.Event;
import org.mpca.wire.Msgpack;
import org.mpca.wire.Order;
import org.mpca.wire.ProtocolException;

/**
 * One run as the driver's JVM sees it: holding jobs, orders, sums and broadcasts. What the Python driver decided is
 * carried out here; what comes of it goes up as events. It decides nothing itself but how shards are cut.
 *
 * <p>Concurrency: calls come from the Python driver's threads, outcomes from Spark's; how shards are cut is guarded by this
 * object's lock.
 */
public final class RunDriver {
    private static final int REDISCOVERIES = 20;
    private static final int TABLES = 4;
    private static final ExecutorService VERIFIERS = Threads.pool("mpca-verify");

    /** Which executors there are now, by id. */
    public interface Executors {
        Map<String, Peer> now();
    }

    private final SparkContext context;
    private final String run;
    private final int term;
    private final int chunkBytes;
    private final Executors executors;
    private final Uplink events;
    private final Jobs jobs;
    private final Sweeper sweeper = new Sweeper();
    private final Reducer reducer;
    private final Broadcaster broadcaster;
    private final DriverCoding coding;
    private final ExchangeServer server;
    /** Ranges that the shard of a cycle is cut into: by its first freeze, since all parts must be cut alike. */
    private final TreeMap<Integer, Integer> ranges = new TreeMap<>();
    /** Executors of the newest order that froze; 0 before the first. */
    private int freezing;
    /** Tables of executors that orders refer to, the newest first; those of orders that may still run are kept. */
    private final ArrayDeque<PeerTable> tables = new ArrayDeque<>();
    /** Which order froze the part of a cycle on an executor. */
    private final TreeMap<Integer, Map<String, Integer>> frozenBy = new TreeMap<>();
    /** Executors that are asked which agents live, and have not answered. Concurrent. */
    private final Set<String> asked = ConcurrentHashMap.newKeySet();

    private final AtomicInteger broadcasts = new AtomicInteger();
    private final AtomicBoolean closed = new AtomicBoolean();

    /**
     * @param reducer "ranges" or "tree"
     * @param broadcaster "relay" or "torrent"
     */
    public RunDriver(
            SparkContext context,
            String run,
            int term,
            String reducer,
            String broadcaster,
            int chunkBytes,
            Executors executors,
            Uplink events) {
        this.context = context;
        this.run = run;
        this.term = term;
        this.chunkBytes = chunkBytes;
        this.executors = executors;
        this.events = events;
        JobWatch.get(context);
        this.jobs = new Jobs(context, run);
        BlockNames names = new BlockNames(run, term);
        this.server = new ExchangeServer(run, names, sweeper, executors, events);
        this.coding = new DriverCoding(names, sweeper);
        this.reducer =
                choose("reducer", reducer, "ranges", () -> new RangesReducer(names, coding), "tree", TreeReducer::new);
        this.broadcaster = choose(
                "broadcast",
                broadcaster,
                "relay",
                () -> new RelayBroadcast(names, sweeper, chunkBytes),
                "torrent",
                () -> new TorrentBroadcast(context));
    }

    /** What this driver takes over from Spark, for all runs: streams from executors, and closures. Called once by the plug-in. */
    public static void takeOver() {
        SparkInternals.take(ArrivingSums.uploads());
        SparkInternals.carryClosures();
    }

    private static <T> T choose(
            String what,
            String name,
            String first,
            java.util.function.Supplier<T> one,
            String second,
            java.util.function.Supplier<T> other) {
        if (!name.equals(first) && !name.equals(second)) {
            throw new IllegalArgumentException(what + " = " + name + ": one of " + first + ", " + second);
        }
        return name.equals(first) ? one.get() : other.get();
    }

    // ---- agents
    // -------------------------------------------------------------------------------------------------------

    /** Submits the holding job of one agent. */
    public void startAgent(String executor, LaunchSpec spec) {
        Peer peer = executors.now().get(executor);
        if (peer == null) {
            holdEnded(spec.agent, spec.incarnation, "executor " + executor + " is gone");
            return;
        }
        String description = "mpca agent " + spec.agent + " (incarnation " + spec.incarnation + ")";
        jobs.inSubmitter(() -> jobs.submit(
                "hold/" + spec.agent + "/" + spec.incarnation,
                description,
                false,
                false,
                new AgentRDD(context, peer, spec),
                1,
                AgentRDD::result,
                (said, failure) -> holdEnded(
                        spec.agent, spec.incarnation, failure == null ? AgentRDD.text(said[0]) : failure.toString())));
    }

    private void holdEnded(int agent, int incarnation, String reason) {
        events.send(run, Event.holdEnded(agent, incarnation, reason));
    }

    /**
     * Asks the registries of these executors which agents live. Each answers for itself and when it can: one that cannot
     * be reached is silent until Spark gives it up, which takes minutes. One that is being asked is not asked again.
     */
    public void rediscover(List<String> wanted) {
        Map<String, Peer> now = executors.now();
        for (String executor : wanted) {
            if (now.containsKey(executor) && asked.add(executor)) {
                ask(now.get(executor), 1);
            }
        }
    }

    private void ask(Peer peer, int attempt) {
        String runName = run;
        String token = "rediscover/" + peer.executor + "/" + attempt;
        String description = "mpca: which agents live on executor " + peer.executor;
        onAll(token, description, true, Collections.singletonList(peer), (side) -> {
                    List<Object> living = new ArrayList<>();
                    for (AgentStatus one : AgentRegistry.get().living(runName)) {
                        living.add(Event.living(one.agent, one.incarnation, one.pid));
                    }
                    return living;
                })
                .whenComplete((living, failure) -> {
                    if (failure != null
                            && attempt < REDISCOVERIES
                            && executors.now().containsKey(peer.executor)) {
                        // Not in Spark's scheduler thread: submitting waits for that one.
                        Threads.daemon("mpca-rediscover", () -> ask(peer, attempt + 1))
                                .start();
                        return;
                    }
                    asked.remove(peer.executor);
                    if (failure == null) {
                        events.send(run, Event.agentsFound(peer.executor, living));
                    }
                });
    }

    // ---- orders
    // -------------------------------------------------------------------------------------------------------

    /** Submits an order; one that cannot be carried out as it stands fails as an event, like one that fails later. */
    public void submit(byte[] packed) throws ProtocolException {
        Order order = Order.unpack(packed);
        if (order.cut != null) {
            coding.clear();
        }
        double start = now();
        OrderPlan plan;
        try {
            plan = plan(order, packed);
        } catch (ExecutorFault e) {
            orderFailed(order.order, e, Collections.emptyList());
            return;
        }
        OrderJob job = new OrderJob(order, plan, jobs, new OrderJob.Outcome() {
            @Override
            public void done(OrderJob done, List<byte[]> answers) {
                orderDone(done, answers, start);
            }

            @Override
            public void failed(Throwable cause, List<String> unfinished) {
                orderFailed(order.order, cause, unfinished);
            }
        });
        if (!order.downloads.isEmpty()) {
            // Not at once: bytes would fill the link before the tasks are sent, which then wait behind them.
            jobs.tellLaunches(OrderJob.token(order.order), executor -> launched(plan, executor));
        }
        jobs.inSubmitter(() -> reducer.run(job));
    }

    private void launched(OrderPlan plan, String executor) {
        List<Order.Download> downloads = plan.order().downloads;
        for (int d = 0; d < downloads.size(); d++) {
            broadcaster.launched((int) downloads.get(d).broadcast, plan.sources[d], executor);
        }
    }

    public void cancel(int order, String reason) {
        reducer.cancel(order, jobs, reason);
    }

    private synchronized OrderPlan plan(Order order, byte[] packed) throws ExecutorFault, ProtocolException {
        Map<String, Peer> now = executors.now();
        HashMap<String, Peer> peers = new HashMap<>();
        for (String executor : order.executors) {
            peers.put(executor, present(now, executor));
        }
        // What lies at or before the forgotten cycle cannot be asked for again.
        ranges.headMap(order.forgetCycle, true).clear();
        frozenBy.headMap(order.forgetCycle, true).clear();
        coding.forget(order.forgetCycle);
        int[] partOrders = new int[order.reduce == null ? 0 : order.reduce.parts.size()];
        int reduceRanges = 0;
        if (order.reduce != null) {
            if (order.reduce.parts.isEmpty()) {
                throw new IllegalArgumentException("a sum of nothing was ordered: order=" + order.order);
            }
            Map<String, Integer> by = frozenBy.getOrDefault(order.reduce.cycle, Collections.emptyMap());
            for (int p = 0; p < partOrders.length; p++) {
                String executor = order.reduce.parts.get(p).executor;
                peers.put(executor, present(now, executor));
                if (!by.containsKey(executor)) {
                    throw new ExecutorFault(
                            executor, "executor " + executor + " froze nothing for cycle " + order.reduce.cycle);
                }
                partOrders[p] = by.get(executor);
            }
            reduceRanges = ranges.get(order.reduce.cycle);
        }
        int freezeRanges = 0;
        if (order.freeze != null) {
            freezing = order.executors.size();
            ranges.putIfAbsent(order.freeze.cycle, freezing);
            freezeRanges = ranges.get(order.freeze.cycle);
            if (order.freeze.coded != null) {
                coding.frozen(order.freeze.cycle, Coding.name(order.freeze.shard, order.freeze.coded));
            }
        }
        PeerTable table = table(peers, order, now);
        Peer driver = SparkInternals.self();
        BroadcastSource[] sources = new BroadcastSource[order.downloads.size()];
        for (int d = 0; d < sources.length; d++) {
            Order.Download download = order.downloads.get(d);
            Set<String> downloading = new HashSet<>();
            download.agents.forEach(agent -> downloading.add(agent.executor));
            List<String> owners = new ArrayList<>();
            for (String executor : order.executors) {
                if (downloading.contains(executor)) {
                    owners.add(executor);
                }
            }
            sources[d] = broadcaster.source((int) download.broadcast, owners, table, driver);
        }
        return new OrderPlan(
                order, packed, peers, table, driver, partOrders, reduceRanges, freezeRanges, chunkBytes, sources);
    }

    /** The newest table, or a new one if an executor is missing in it. */
    private PeerTable table(Map<String, Peer> peers, Order order, Map<String, Peer> now) {
        List<Peer> needed = new ArrayList<>();
        order.executors.forEach(executor -> needed.add(peers.get(executor))); // in the order's sequence
        needed.addAll(peers.values());
        PeerTable table = PeerTable.with(context, tables.peekFirst(), needed, now);
        if (table != tables.peekFirst()) {
            tables.addFirst(table);
            while (tables.size() > TABLES) {
                tables.removeLast().destroy();
            }
        }
        return table;
    }

    /** The clock of the driver's machine, in seconds: Python's time.monotonic is the same. */
    static double now() {
        return System.nanoTime() / 1e9;
    }

    private static Peer present(Map<String, Peer> now, String executor) throws ExecutorFault {
        Peer peer = now.get(executor);
        if (peer == null) {
            throw new ExecutorFault(executor, "executor " + executor + " is gone");
        }
        return peer;
    }

    private void orderDone(OrderJob job, List<byte[]> answers, double start) {
        Order order = job.order;
        double end = now();
        long pushed = 0;
        try {
            for (byte[] packed : answers) {
                Map<?, ?> answer = (Map<?, ?>) Msgpack.unpack(packed);
                pushed += ((Number) answer.get("bytes_out")).longValue();
                if (!((List<?>) answer.get("frozen")).isEmpty()) {
                    synchronized (this) {
                        frozenBy.computeIfAbsent(order.freeze.cycle, cycle -> new HashMap<>())
                                .put((String) answer.get("executor"), order.order);
                    }
                }
            }
        } catch (ProtocolException e) {
            orderFailed(order.order, e, Collections.emptyList());
            return;
        }
        long driverIn = order.reduce == null ? 0 : reducer.bytesIn(order.order, pushed);
        Event event = Event.orderDone(order.order, answers, start, end, driverIn);
        if (order.reduce == null) {
            events.send(run, event);
            return;
        }
        VERIFIERS.execute(() -> {
            try {
                reducer.verify(job);
                events.send(run, event);
            } catch (ExecutorFault | IOException | RuntimeException e) {
                orderFailed(order.order, e, order.executors);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
    }

    private void orderFailed(int order, Throwable cause, List<String> unfinished) {
        reducer.discard(order);
        ExecutorFault fault = cause instanceof ExecutorFault ? (ExecutorFault) cause : null;
        String executor = fault == null ? null : fault.executor;
        String reason = fault == null ? cause.toString() : fault.getMessage();
        boolean damages = fault != null && fault.damages;
        events.send(run, Event.orderFailed(order, executor, reason, unfinished, damages));
    }

    // ---- bulk
    // ---------------------------------------------------------------------------------------------------------

    public void takeSum(int order, int length, FileChannel to) throws IOException {
        reducer.takeSum(order, length, to);
    }

    /** Reads a vector from the channel's start and makes it ready for download. */
    public int publish(int length, FileChannel from) throws IOException {
        KeptArray data = broadcaster.take(length);
        Channels.read(from, data.data, length);
        int broadcast = broadcasts.incrementAndGet();
        broadcaster.publish(broadcast, data, exchanging());
        return broadcast;
    }

    /**
     * The same of a joint state that is a base from now on, unless it is encoded for agents that join.
     *
     * @param codec empty: it goes out as float32, and is the first base of its shard
     * @param base names what it is encoded against: version and CRC-32
     * @param replaces whether it is for agents that join
     * @return the broadcast, and the CRC-32 of what comes out of it
     */
    public long[] publish(
            int length,
            FileChannel from,
            int shard,
            long version,
            int parameters,
            String codec,
            long baseVersion,
            long baseCrc,
            boolean replaces)
            throws IOException {
        KeptArray vector = broadcaster.take(length);
        Channels.read(from, vector.data, length);
        int broadcast = broadcasts.incrementAndGet();
        if (codec.isEmpty()) {
            long crc = coding.first(shard, version, vector).crc;
            broadcaster.publish(broadcast, vector, exchanging());
            return new long[] {broadcast, crc};
        }
        HeldBases.Name base = new HeldBases.Name(shard, baseVersion, baseCrc);
        DriverCoding.Outgoing outgoing =
                coding.encode(base, Codec.named(codec), parameters, version, vector, !replaces);
        broadcaster.publish(broadcast, outgoing.data, exchanging());
        return new long[] {broadcast, outgoing.result.crc};
    }

    /** How many executors take part in exchanges now. */
    private synchronized int exchanging() {
        return Math.max(1, freezing == 0 ? executors.now().size() : freezing);
    }

    public void withdraw(int broadcast) {
        broadcaster.withdraw(broadcast);
    }

    /** Where questions of this run's agents go. */
    public ExchangeServer server() {
        return server;
    }

    /** Writes what an agent sent into the channel, from its start on, and frees it. */
    public void takeSent(int agent, int incarnation, int number, int length, FileChannel to) throws IOException {
        server.takeSent(agent, incarnation, number, length, to);
    }

    /** Answers an exchange with a vector from the channel's start. */
    public void answer(
            int agent,
            int incarnation,
            int number,
            int length,
            FileChannel from,
            long version,
            String mode,
            double share)
            throws IOException {
        server.answer(agent, incarnation, number, Channels.read(from, new byte[length], length), version, mode, share);
    }

    // ---- the end
    // ------------------------------------------------------------------------------------------------------

    /** What of any run lies about on the driver and on every executor: for tests and for people who look for a leak. */
    public List<?> inventory() throws Exception {
        List<Object> all = new ArrayList<>();
        all.add(Inventory.of("driver"));
        all.addAll(onAll(
                        "inventory",
                        "mpca: what is stored",
                        true,
                        new ArrayList<>(executors.now().values()),
                        side -> Collections.singletonList(Inventory.of(side.self().executor)))
                .get(30, TimeUnit.SECONDS));
        return all;
    }

    /** Kills what is left of the run on every executor and frees everything, within seconds; safe to call twice. */
    public void close() throws InterruptedException {
        if (closed.getAndSet(true)) {
            return;
        }
        server.close(TimeOuts.END_RUN_MS);
        if (!context.isStopped()) {
            jobs.cancelAll("order/");
            String runName = run;
            CompletableFuture<List<Object>> ended = onAll(
                    "end",
                    "mpca: end of the run",
                    false,
                    new ArrayList<>(executors.now().values()),
                    side -> {
                        side.endRun(runName, TimeOuts.END_RUN_MS / 2);
                        return Collections.emptyList();
                    });
            try {
                ended.get(TimeOuts.END_RUN_MS, TimeUnit.MILLISECONDS);
            } catch (ExecutionException | TimeoutException e) {
                // An executor that does not answer is dying or stopped; its agents die with it.
                jobs.cancel("end", "no answer");
            }
            jobs.cancelAll("");
            broadcaster.close();
            coding.clear();
            synchronized (this) {
                tables.forEach(PeerTable::destroy);
                tables.clear();
            }
            sweeper.removeLater(() -> SparkInternals.matching(BlockNames.ofRun(run)));
            sweeper.drain(TimeOuts.END_RUN_MS);
        }
        reducer.close();
        sweeper.close();
        jobs.close();
    }

    /** Asks every executor given; what they answer, one after the other. */
    private CompletableFuture<List<Object>> onAll(
            String token, String description, boolean strict, List<Peer> peers, EverywhereRDD.Question question) {
        CompletableFuture<List<Object>> outcome = new CompletableFuture<>();
        if (peers.isEmpty()) {
            outcome.complete(new ArrayList<>());
            return outcome;
        }
        jobs.inSubmitter(() -> jobs.submit(
                token,
                description,
                strict,
                false,
                new EverywhereRDD(context, peers, question),
                peers.size(),
                EverywhereRDD::result,
                (answers, failure) -> {
                    if (failure != null) {
                        outcome.completeExceptionally(failure);
                        return;
                    }
                    try {
                        List<Object> all = new ArrayList<>();
                        for (byte[] answer : answers) {
                            all.addAll((List<?>) Msgpack.unpack(answer));
                        }
                        outcome.complete(all);
                    } catch (ProtocolException e) {
                        outcome.completeExceptionally(e);
                    }
                }));
        return outcome;
    }
}
