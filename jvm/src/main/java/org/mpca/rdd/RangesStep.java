package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.DoubleConsumer;
import org.mpca.agent.TimeOuts;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.EncodedPlan;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.OrderedSum;
import org.mpca.reduce.Scattered;
import org.mpca.reduce.SpareArrays;
import org.mpca.wire.Answer;
import org.mpca.wire.Order;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One executor's share of a reduction by ranges: it takes its range of chunks of every other part, adds each chunk to its sum in
 * part order, and pushes the sum to the driver as soon as it is complete.
 *
 * <p>Every chunk was frozen by an earlier order, so none is missing and nothing is polled for. Ranges were pushed here when they
 * were frozen ({@link PartPush}). It asks for them, in one request a peer, if that order had other executors, whose ranges were
 * others, and for what is damaged or does not come. Any failure names the peer and ends the order: all ranges of a sum must have
 * the same contributors.
 *
 * <p>Measured with K = 8, 30 Mbit/s, int8 and 16 MiB. When ranges were asked for by the order that sums, the driver's link carried
 * nothing for the first 0.29 s of a cycle of 1.13; asking for a quarter of a range at a time made that 0.16 s, and the cycle longer.
 */
final class RangesStep implements OrderTask.ReduceStep {
    private static final long serialVersionUID = 1;
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static final ExecutorService FETCHERS = Threads.pool("mpca-fetch");
    /** What is under way of the chunks of a reduce: their sums, parts that wait for their turn, and what goes to the driver. */
    private static final SpareArrays SPARE = new SpareArrays(256);

    @Override
    public void run(Order order, OrderPlan plan, Waits waits, Answer answer, DoubleConsumer progress) throws Exception {
        DriverClock clock = ExecutorSide.get().clock;
        answer.reduceStart = clock.now();
        new Range(order, plan).sum(waits, answer, progress);
        answer.reduceEnd = clock.now();
    }

    @Override
    public void froze(Order order, OrderPlan plan, ChunkPlan grid, PartStore.Part part) {
        PartPush.beginLater(order, plan, grid, part);
    }

    /** The grid was cut for the executors of the freezing order; its chunks are shared out among those of this one. */
    static int firstChunk(ChunkPlan grid, int executor, int executors) {
        return (int) ((long) grid.chunks() * executor / executors);
    }

    /** Which of an order's executors sums a chunk. */
    static String owner(ChunkPlan grid, List<String> executors, int chunk) {
        int executor = 0;
        while (chunk >= firstChunk(grid, executor + 1, executors.size())) {
            executor++;
        }
        return executors.get(executor);
    }

    /** A rest fits the next sum of the shard if the same executors share out the same chunks. */
    static Object cut(List<String> executors, ChunkPlan grid) {
        return Arrays.asList(executors, Arrays.toString(grid.edges()));
    }

    /** What happens on the way, told by network threads. */
    private interface Event {
        void happen() throws ExecutorFault;
    }

    /**
     * One run of the step.
     *
     * <p>Concurrency: everything but the sums of chunks belongs to the task's thread, which fetches nothing itself; network
     * threads add what they bring to those sums, and events to its queue.
     */
    private static final class Range {
        private final Order order;
        private final OrderPlan plan;
        private final ChunkPlan grid;
        /** How parts are encoded, and how the sum is; null: float32 travels. */
        private final EncodedPlan parts;

        private final EncodedPlan sums;
        /** What rounding left of the sum before, and leaves of this one, by chunk of the range. */
        private float[][] before;

        private final float[][] left;
        private final BlockNames names;
        private final String here;
        private final int first;
        private final int end;
        /** By chunk of the range; null once it is on its way to the driver. */
        private final OrderedSum[] chunks;
        /** Of a chunk, how many parts are still to come. */
        private final int[] missing;

        private final LinkedBlockingQueue<Event> events = new LinkedBlockingQueue<>();
        /** Chunks of which every part is here, and which are not summed yet. */
        private final ArrayDeque<Integer> complete = new ArrayDeque<>();
        /** Executors that are to be asked, to which there is no connection. */
        private final Set<String> connecting = ConcurrentHashMap.newKeySet();
        /** Executors of which something came damaged. */
        private final Set<String> damaging = new HashSet<>();
        /** Ranges that are still being pushed here, by part; told of by network threads. */
        private final Map<Integer, PushedParts.Range> coming = new HashMap<>();
        /** What was pushed, by part: sums are made of it, and it is not copied. */
        private final Map<Integer, KeptArray> arrays = new HashMap<>();
        /** This executor's part, the same. */
        private final List<KeptArray> own = new ArrayList<>();

        private long bytesIn;
        private int arrived;
        private int pushed;

        Range(Order order, OrderPlan plan) {
            this.order = order;
            this.plan = plan;
            this.grid = plan.reduceGrid(order.reduce.length);
            this.names = new BlockNames(order.run, order.term);
            this.here = ExecutorSide.get().self().executor;
            int me = order.executors.indexOf(here);
            this.first = firstChunk(grid, me, order.executors.size());
            this.end = firstChunk(grid, me + 1, order.executors.size());
            Order.Coded coded = order.reduce.coded;
            this.parts = coded == null ? null : Coding.plan(coded, grid);
            this.sums = coded == null ? null : new EncodedPlan(parts.codec().ofSums(), grid, coded.parameters);
            this.left = new float[end - first][];
            this.chunks = new OrderedSum[end - first];
            this.missing = new int[end - first];
        }

        void sum(Waits waits, Answer answer, DoubleConsumer progress) throws Exception {
            if (first == end) {
                return;
            }
            double total = 0;
            for (Order.Part part : order.reduce.parts) {
                total += part.weight;
            }
            double[] weights = new double[order.reduce.parts.size()];
            for (int p = 0; p < weights.length; p++) {
                weights[p] = order.reduce.parts.get(p).weight / total;
            }
            for (int chunk = 0; chunk < chunks.length; chunk++) {
                chunks[chunk] = parts == null
                        ? new OrderedSum(grid.length(first + chunk), weights, SPARE)
                        : new OrderedSum(parts, first + chunk, weights, SPARE);
            }
            if (sums != null) {
                before = coding().sums.left(order.reduce.shard, order.reduce.after, cut(order.executors, grid));
            }
            Arrays.fill(missing, weights.length);
            begin();
            for (int summed = 0; pushed < chunks.length; ) {
                boolean summing = summed < chunks.length;
                Event event = complete.isEmpty() ? events.poll(Waits.SLICE_MS, TimeUnit.MILLISECONDS) : events.poll();
                if (event != null) {
                    event.happen();
                    progress.accept((double) pushed / chunks.length);
                } else {
                    askSilent();
                }
                waits.check(
                        (summing ? "reducing cycle " : "pushing the sum of cycle ") + order.reduce.cycle,
                        this::waitedFor,
                        this::unconnected);
                if (!complete.isEmpty()) {
                    int chunk = complete.remove();
                    KeptArray sum = summed(chunk);
                    chunks[chunk] = null;
                    answer.bytesOut += sum.data.length - CheckedBlocks.TRAILER_BYTES;
                    push(chunk, sum);
                    summed++;
                }
            }
            if (sums != null) {
                coding().sums
                        .keep(order.reduce.shard, order.order, order.reduce.after, cut(order.executors, grid), left);
            }
            answer.bytesIn = bytesIn;
            arrays.values().forEach(KeptArray::release);
            own.forEach(KeptArray::release); // after a failure network threads may still add them
        }

        private Coding coding() {
            return ExecutorSide.get().coding(order.run, order.term);
        }

        /** The sum of a chunk, rounded once more if it is encoded, with room for its checksum. */
        private KeptArray summed(int chunk) {
            int length = sums == null ? grid.length(first + chunk) : sums.length(first + chunk);
            KeptArray sum = KeptArray.take(SPARE, length + CheckedBlocks.TRAILER_BYTES);
            if (sums == null) {
                chunks[chunk].result(sum.data);
                return sum;
            }
            left[chunk] = new float[sums.elements(first + chunk)];
            float[] added = before == null ? null : before[chunk];
            ByteBuffer out = ByteBuffer.wrap(sum.data);
            chunks[chunk].values(values -> sums.encode(first + chunk, values, added, 0, left[chunk], 0, out));
            return sum;
        }

        /** Takes what was pushed here, and asks for the rest, from the part after this executor's own on. */
        private void begin() throws ExecutorFault {
            PushedParts pushed = ExecutorSide.get().pushed;
            TreeMap<Integer, List<Event>> early = new TreeMap<>();
            int mine = 0;
            for (int p = 0; p < order.reduce.parts.size(); p++) {
                mine = order.reduce.parts.get(p).executor.equals(here) ? p : mine;
            }
            for (int step = 1; step <= order.reduce.parts.size(); step++) {
                int p = (mine + step) % order.reduce.parts.size();
                String executor = order.reduce.parts.get(p).executor;
                int cycle = order.reduce.cycle;
                int frozenBy = plan.partOrders[p];
                if (executor.equals(here)) {
                    takeOwn(p);
                } else if (pushed.expects(order.run, order.term, cycle, frozenBy, executor, order.executors)) {
                    watch(p, pushed.range(order.run, order.term, cycle, frozenBy, executor), early);
                } else {
                    fetch(p, first, end);
                }
            }
            early.values().forEach(events::addAll); // sums of the first chunks first
        }

        private void watch(int p, PushedParts.Range range, Map<Integer, List<Event>> early) {
            int[] ends = new int[end - first];
            for (int chunk = 0, at = 0; chunk < ends.length; chunk++) {
                at += partLength(chunk);
                ends[chunk] = at;
            }
            coming.put(p, range);
            Thread me = Thread.currentThread();
            range.watch(ends, chunk -> {
                Event here = () -> takePushed(p, range, chunk, ends[chunk] - partLength(chunk));
                if (Thread.currentThread() == me) {
                    early.computeIfAbsent(chunk, key -> new ArrayList<>()).add(here);
                } else {
                    events.add(here);
                }
            });
        }

        /** Bytes of a chunk of the range as it travels, with its checksum. */
        private int partLength(int chunk) {
            return (parts == null ? grid.length(first + chunk) : parts.length(first + chunk))
                    + CheckedBlocks.TRAILER_BYTES;
        }

        private void takePushed(int p, PushedParts.Range range, int chunk, int at) {
            KeptArray array = arrays.computeIfAbsent(p, key -> range.use());
            String name = partNames(p) + (first + chunk);
            if (CheckedBlocks.open(name, ByteBuffer.wrap(array.data, at, partLength(chunk))) == null) {
                Peer peer = peer(p);
                LOG.warn("damaged on its way, and fetched: block={} from={}", name, peer);
                damaging.add(peer.executor);
                Receiver receiver = new Receiver(p, peer, chunks.clone());
                ask(peer, () -> CheckedBlocks.fetchOnce(peer, name, receiver));
            } else if (chunks[chunk].takeKept(p, array.data, at)) {
                bytesIn += partLength(chunk) - CheckedBlocks.TRAILER_BYTES;
                arrived(chunk);
            }
        }

        /** Asks for what was to be pushed, and of which nothing comes any more. */
        private void askSilent() {
            long now = System.nanoTime();
            coming.values().removeIf(PushedParts.Range::isTold);
            for (int p : new ArrayList<>(coming.keySet())) {
                if (coming.get(p).silentMillis(now) > TimeOuts.RELAY_SILENCE_MS) {
                    int next = first + coming.remove(p).unwatch();
                    ExecutorSide.get().pushed.giveUp(order.run, order.term, peer(p).executor);
                    LOG.warn(
                            "not pushed, and asked for: cycle={} chunks={}..{} from={}",
                            order.reduce.cycle,
                            next,
                            end - 1,
                            peer(p));
                    fetch(p, next, end);
                }
            }
        }

        private Peer peer(int p) {
            return plan.peers.get(order.reduce.parts.get(p).executor);
        }

        /** What names of the chunks of a part begin with. */
        private String partNames(int p) {
            return names.parts(order.reduce.cycle, plan.partOrders[p], order.reduce.parts.get(p).executor);
        }

        private void takeOwn(int p) throws ExecutorFault {
            int length = parts == null ? order.reduce.length : parts.length();
            PartStore.Part part = ExecutorSide.get().parts.need(order, plan.partOrders[p], length);
            own.add(part.kept);
            for (int c = first; c < end; c++) {
                if (chunks[c - first].takeKept(p, part.data, parts == null ? grid.offset(c) : parts.offset(c))) {
                    arrived(c - first);
                }
            }
        }

        private void fetch(int p, int from, int end) {
            if (from < end) {
                List<String> wanted = BlockNames.numbered(partNames(p), from, end);
                Receiver receiver = new Receiver(p, peer(p), chunks.clone());
                ask(peer(p), () -> CheckedBlocks.fetch(peer(p), wanted, receiver));
            }
        }

        /** Connecting may block for as long as the network's time-out: not in the task's thread. */
        private void ask(Peer peer, Runnable question) {
            connecting.add(peer.executor);
            FETCHERS.execute(() -> {
                if (SparkInternals.connects(peer)) {
                    connecting.remove(peer.executor);
                }
                try {
                    question.run();
                } catch (RuntimeException e) {
                    failed(new ExecutorFault(peer.executor, peer + " could not be asked: " + e));
                }
            });
        }

        /** Adds what one peer sends to its chunk, from where it lies; in network threads. */
        private final class Receiver implements SparkInternals.FetchListener {
            private final int part;
            private final Peer peer;
            private final OrderedSum[] sums;

            Receiver(int part, Peer peer, OrderedSum[] sums) {
                this.part = part;
                this.peer = peer;
                this.sums = sums;
            }

            @Override
            public void arrived(String name, Scattered bytes) {
                int chunk = BlockNames.number(name) - first;
                int length = bytes.length();
                connecting.remove(peer.executor);
                if (length != sums[chunk].length()) {
                    Range.this.failed(new ExecutorFault(
                            peer.executor,
                            "chunk " + (first + chunk) + " of another length: bytes=" + length + ", expected="
                                    + sums[chunk].length()));
                } else if (sums[chunk].take(part, bytes)) {
                    events.add(() -> {
                        bytesIn += length;
                        Range.this.arrived(chunk);
                    });
                }
            }

            @Override
            public void damaged(String name) {
                events.add(() -> damaging.add(peer.executor));
            }

            @Override
            public void failed(String name, Throwable cause) {
                if (cause instanceof CheckedBlocks.Damaged) {
                    events.add(() -> failByDamage(peer.executor, cause.getMessage()));
                } else {
                    Range.this.failed(new ExecutorFault(
                            peer.executor,
                            "chunk " + name + " of " + peer + " could not be fetched by executor " + here + " at "
                                    + ExecutorSide.get().self().host + ": " + cause));
                }
            }
        }

        private void arrived(int chunk) {
            arrived++;
            if (--missing[chunk] == 0) {
                complete.add(chunk);
            }
        }

        /** Damaged by several senders is damaged by this executor or its link. */
        private void failByDamage(String sender, String what) throws ExecutorFault {
            String culprit = damaging.size() > 1 ? here : sender;
            throw new ExecutorFault(
                    culprit, "executor " + culprit + " damages bytes: " + what + ", at executor " + here, true);
        }

        /** Ends the order when the task's thread comes to it. */
        private void failed(ExecutorFault fault) {
            events.add(() -> {
                throw fault;
            });
        }

        /** The executor of a part of which something is still missing; this one while its sums are on their way. */
        private String waitedFor() {
            for (int chunk = 0; chunk < chunks.length; chunk++) {
                for (int p = 0; missing[chunk] > 0 && p < order.reduce.parts.size(); p++) {
                    if (!chunks[chunk].has(p)) {
                        return order.reduce.parts.get(p).executor;
                    }
                }
            }
            return here;
        }

        /** Whether this executor waits for a connection; whoever reads it has to find a closed port between two workers. */
        private String unconnected(String executor) {
            Peer peer = plan.peers.get(executor);
            return peer == null || !connecting.contains(executor)
                    ? ""
                    : " at " + peer.host + ":" + peer.port + ", to which executor " + here + " at "
                            + ExecutorSide.get().self().host + " has got no connection";
        }

        /** `sum` has room for its checksum behind it. */
        private void push(int chunk, KeptArray sum) {
            int length = sum.data.length - CheckedBlocks.TRAILER_BYTES;
            ExecutorSide.get().sums.put(order.run, order.term, order.order, first + chunk, sum, length);
            String name = names.sum(order.order) + (first + chunk);
            FETCHERS.execute(() -> {
                try {
                    CheckedBlocks.stream(plan.driver, name, sum.data, failure -> pushed(sum, failure));
                } catch (RuntimeException e) {
                    pushed(sum, e);
                }
            });
        }

        private void pushed(KeptArray sum, Throwable failure) {
            if (failure == null) {
                sum.release();
                events.add(() -> pushed++);
            } else { // and nobody knows whether the network still reads the array
                failed(new ExecutorFault(here, "the sum could not be pushed to the driver: " + failure));
            }
        }
    }
}
