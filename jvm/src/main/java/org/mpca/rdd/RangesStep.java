package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.WeightedSum;
import org.mpca.wire.Answer;
import org.mpca.wire.Order;

/**
 * One executor's share of a reduction by ranges: it fetches its range of chunks from every other part, one request a
 * peer, sums each chunk in part order as soon as it is complete, and pushes the sum to the driver at once.
 *
 * <p>Every chunk was frozen by an earlier order, so none is missing and nothing is polled for. Peers are asked from the
 * next one on, so that not all begin with the same. Any failure names the peer and ends the order: all ranges of a sum
 * must have the same contributors.
 */
final class RangesStep implements OrderTask.ReduceStep {
    private static final long serialVersionUID = 1;
    private static final ExecutorService FETCHERS = Threads.pool("mpca-fetch");

    @Override
    public void run(Order order, OrderPlan plan, Waits waits, Answer answer) throws Exception {
        DriverClock clock = ExecutorSide.get().clock;
        answer.reduceStart = clock.now();
        new Range(order, plan).sum(waits, answer);
        answer.reduceEnd = clock.now();
    }

    /** The grid was cut for the executors of the freezing order; its chunks are shared out among those of this one. */
    private static int firstChunk(ChunkPlan grid, int executor, int executors) {
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

    /** What happens on the way, told by network threads. */
    private interface Event {
        void happen() throws ExecutorFault;
    }

    /**
     * One run of the step.
     *
     * <p>Concurrency: everything belongs to the task's thread, which fetches nothing itself; network threads add events to its
     * queue.
     */
    private static final class Range {
        private final Order order;
        private final OrderPlan plan;
        private final ChunkPlan grid;
        private final BlockNames names;
        private final String here;
        private final int first;
        private final int end;
        /** By chunk of the range, then by part; null until arrived. */
        private final ByteBuffer[][] chunks;

        private final int[] missing;
        private final LinkedBlockingQueue<Event> events = new LinkedBlockingQueue<>();
        /** Chunks of which every part is here, and which are not summed yet. */
        private final ArrayDeque<Integer> complete = new ArrayDeque<>();
        /** Executors of which something came damaged. */
        private final Set<String> damaging = new HashSet<>();

        private long bytesIn;
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
            this.chunks = new ByteBuffer[end - first][order.reduce.parts.size()];
            this.missing = new int[end - first];
        }

        void sum(Waits waits, Answer answer) throws Exception {
            if (first == end) {
                return;
            }
            double total = 0;
            for (Order.Part part : order.reduce.parts) {
                total += part.weight;
            }
            Arrays.fill(missing, order.reduce.parts.size());
            ask();
            for (int summed = 0; pushed < chunks.length; ) {
                boolean summing = summed < chunks.length;
                Event event = complete.isEmpty() ? events.poll(Waits.SLICE_MS, TimeUnit.MILLISECONDS) : events.poll();
                if (event != null) {
                    event.happen();
                }
                waits.check(
                        (summing ? "reducing cycle " : "pushing the sum of cycle ") + order.reduce.cycle,
                        this::waitedFor);
                if (!complete.isEmpty()) {
                    int chunk = complete.remove();
                    push(chunk, add(chunk, total));
                    answer.bytesOut += grid.length(first + chunk);
                    summed++;
                }
            }
            answer.bytesIn = bytesIn;
        }

        /** Asks every part's executor for this range, from the part after this executor's own on. */
        private void ask() throws ExecutorFault {
            List<Order.Part> parts = order.reduce.parts;
            int own = 0;
            for (int p = 0; p < parts.size(); p++) {
                own = parts.get(p).executor.equals(here) ? p : own;
            }
            for (int step = 1; step <= parts.size(); step++) {
                int p = (own + step) % parts.size();
                if (parts.get(p).executor.equals(here)) {
                    takeOwn(p);
                } else {
                    fetch(p, plan.peers.get(parts.get(p).executor));
                }
            }
        }

        private void takeOwn(int p) throws ExecutorFault {
            PartStore.Part part = ExecutorSide.get().parts.need(order, plan.partOrders[p]);
            for (int c = first; c < end; c++) {
                arrived(
                        c - first,
                        p,
                        ByteBuffer.wrap(part.data, grid.offset(c), grid.length(c))
                                .slice());
            }
        }

        private void fetch(int p, Peer peer) {
            List<String> wanted = BlockNames.numbered(names.parts(order.reduce.cycle, plan.partOrders[p]), first, end);
            // Connecting may block for as long as the network's time-out: not in the task's thread.
            FETCHERS.execute(() -> {
                try {
                    CheckedBlocks.fetch(peer, wanted, new Receiver(p, peer));
                } catch (RuntimeException e) {
                    failed(new ExecutorFault(peer.executor, peer + " could not be asked: " + e));
                }
            });
        }

        /** Takes what one peer sends; in network threads. */
        private final class Receiver implements SparkInternals.FetchListener {
            private final int part;
            private final Peer peer;

            Receiver(int part, Peer peer) {
                this.part = part;
                this.peer = peer;
            }

            @Override
            public void arrived(String name, ByteBuffer bytes) {
                // The network's buffer is valid during this call only.
                byte[] copy = new byte[bytes.remaining()];
                bytes.get(copy);
                events.add(() -> {
                    bytesIn += copy.length;
                    Range.this.arrived(BlockNames.number(name) - first, part, ByteBuffer.wrap(copy));
                });
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
                            peer.executor, "chunk " + name + " of " + peer + " could not be fetched: " + cause));
                }
            }
        }

        private void arrived(int chunk, int p, ByteBuffer bytes) throws ExecutorFault {
            if (bytes.remaining() != grid.length(first + chunk)) {
                throw new ExecutorFault(
                        order.reduce.parts.get(p).executor,
                        "chunk " + (first + chunk) + " of another length: bytes=" + bytes.remaining() + ", expected="
                                + grid.length(first + chunk));
            }
            if (missing[chunk] > 0 && chunks[chunk][p] == null) {
                chunks[chunk][p] = bytes;
                if (--missing[chunk] == 0) {
                    complete.add(chunk);
                }
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
                for (int p = 0; missing[chunk] > 0 && p < chunks[chunk].length; p++) {
                    if (chunks[chunk][p] == null) {
                        return order.reduce.parts.get(p).executor;
                    }
                }
            }
            return here;
        }

        private byte[] add(int chunk, double total) {
            ByteBuffer[] row = chunks[chunk];
            chunks[chunk] = null; // its bytes are of no more use
            WeightedSum sum = new WeightedSum(grid.length(first + chunk));
            for (int p = 0; p < row.length; p++) {
                sum.add(row[p], order.reduce.parts.get(p).weight / total);
            }
            return sum.result(CheckedBlocks.TRAILER_BYTES);
        }

        /** `sum` has room for its checksum behind it. */
        private void push(int chunk, byte[] sum) {
            ExecutorSide.get()
                    .sums
                    .put(order.run, order.term, order.order, first + chunk, sum, grid.length(first + chunk));
            FETCHERS.execute(() -> {
                try {
                    CheckedBlocks.upload(plan.driver, names.sum(order.order) + (first + chunk), sum, this::pushed);
                } catch (RuntimeException e) {
                    pushed(e);
                }
            });
        }

        private void pushed(Throwable failure) {
            if (failure == null) {
                events.add(() -> pushed++);
            } else {
                failed(new ExecutorFault(here, "the sum could not be pushed to the driver: " + failure));
            }
        }
    }
}
