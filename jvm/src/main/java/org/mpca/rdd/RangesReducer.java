package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.mpca.agent.TimeOuts;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.Scattered;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One single-stage job: every executor sums one range of the shard and pushes it here ({@link RangesStep}). The driver
 * receives each element of the sum once, for any number of executors.
 *
 * <p>Concurrency: safe from any thread; what is done for one order is done by one thread after the other. Removals happen in the
 * sweeper.
 */
final class RangesReducer implements Reducer {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static final ExecutorService FETCHERS = Threads.pool("mpca-fetch");

    /** So many orders that failed are swept after again; what comes even later goes with the run. */
    private static final int FAILED = 16;

    private final BlockNames names;
    private final Sweeper sweeper;
    private final DriverCoding coding;
    /** Chunks of the sums that may still be taken, by order. */
    private final Map<Integer, Integer> chunks = new ConcurrentHashMap<>();
    /** Those of them that are encoded. Each keeps its base in use. */
    private final Map<Integer, DriverCoding.Sum> coded = new ConcurrentHashMap<>();
    /** Chunks of the newest orders that failed, by order: late tasks of theirs may push some still. */
    private final NavigableMap<Integer, Integer> failed = new ConcurrentSkipListMap<>();
    /** Chunks that came damaged, as they were fetched afterwards: by order, then by number. */
    private final Map<Integer, Map<Integer, byte[]>> repaired = new ConcurrentHashMap<>();

    RangesReducer(BlockNames names, Sweeper sweeper, DriverCoding coding) {
        this.coding = coding;
        this.names = names;
        this.sweeper = sweeper;
    }

    @Override
    public void run(OrderJob job) {
        if (job.order.reduce != null) {
            chunks.put(
                    job.order.order,
                    job.plan.reduceGrid(job.order.reduce.length).chunks());
            if (job.order.reduce.coded != null) {
                ChunkPlan grid = job.plan.reduceGrid(job.order.reduce.length);
                coded.put(job.order.order, coding.sum(job.order.reduce, grid));
            }
        }
        job.answer(new RangesStep());
    }

    @Override
    public void takeSum(int order, int length, FileChannel to) throws IOException {
        Integer count = chunks.get(order);
        if (count == null) {
            throw new IOException("no sum of that order: order=" + order);
        }
        DriverCoding.Sum sum = coded.get(order);
        long position = 0;
        for (int chunk = 0; chunk < count; chunk++) {
            position += copyOut(order, chunk, sum, to, position);
        }
        if (position != length) {
            throw new IOException(
                    "sum is of another length: bytes=" + position + ", expected=" + length + ", order=" + order);
        }
        free(order, count);
    }

    private long copyOut(int order, int chunk, DriverCoding.Sum sum, FileChannel to, long position) throws IOException {
        byte[] instead = repaired.getOrDefault(order, Collections.emptyMap()).get(chunk);
        if (instead != null) {
            return write(chunk, ByteBuffer.wrap(instead), sum, to, position);
        }
        String name = names.sum(order) + chunk;
        long[] written = new long[1];
        if (!SparkInternals.read(name, block -> {
            ByteBuffer data = block.duplicate();
            data.limit(data.limit() - CheckedBlocks.TRAILER_BYTES);
            written[0] = write(chunk, data, sum, to, position);
        })) {
            throw new IOException("a chunk of the sum is missing: block=" + name + ", order=" + order);
        }
        return written[0];
    }

    private static long write(int chunk, ByteBuffer data, DriverCoding.Sum sum, FileChannel to, long position)
            throws IOException {
        return Channels.write(to, position, sum == null ? data : sum.chunk(chunk, data));
    }

    @Override
    public void verify(OrderJob job) throws ExecutorFault, IOException, InterruptedException {
        int order = job.order.order;
        Integer count = chunks.get(order);
        for (int chunk = 0; count != null && chunk < count; chunk++) {
            String name = names.sum(order) + chunk;
            boolean[] whole = new boolean[1];
            if (!SparkInternals.read(name, block -> whole[0] = CheckedBlocks.open(name, block) != null)) {
                throw new IOException("a chunk of the sum is missing: block=" + name + ", order=" + order);
            }
            if (!whole[0]) {
                repair(job, chunk);
            }
        }
    }

    /** Fetches a chunk from the executor that summed it, and keeps it until the sum is taken. */
    private void repair(OrderJob job, int chunk) throws ExecutorFault, InterruptedException {
        ChunkPlan grid = job.plan.reduceGrid(job.order.reduce.length);
        Peer owner = job.plan.peers.get(RangesStep.owner(grid, job.order.executors, chunk));
        String name = names.kept(job.order.order) + chunk;
        LOG.warn("the sum was damaged on its way, and is fetched once more: block={} from={}", name, owner);
        CompletableFuture<byte[]> fetched = new CompletableFuture<>();
        FETCHERS.execute(() -> {
            try {
                CheckedBlocks.fetchOnce(owner, name, new Fetched(fetched));
            } catch (RuntimeException e) {
                fetched.completeExceptionally(e);
            }
        });
        try {
            byte[] data = fetched.get(TimeOuts.REPAIR_MS, TimeUnit.MILLISECONDS);
            repaired.computeIfAbsent(job.order.order, key -> new ConcurrentHashMap<>())
                    .put(chunk, data);
        } catch (ExecutionException e) {
            boolean damages = e.getCause() instanceof CheckedBlocks.Damaged;
            throw new ExecutorFault(
                    owner.executor,
                    "executor " + owner.executor + (damages ? " damages bytes: " : ": ")
                            + "its sum came damaged to the driver, and once more: "
                            + e.getCause().getMessage(),
                    damages);
        } catch (TimeoutException e) {
            throw new ExecutorFault(
                    owner.executor,
                    "executor " + owner.executor + ": its sum came damaged to the driver, and not again within "
                            + TimeOuts.REPAIR_MS + " ms");
        }
    }

    /** One block, as bytes of our own. */
    private static final class Fetched implements SparkInternals.FetchListener {
        private final CompletableFuture<byte[]> to;

        Fetched(CompletableFuture<byte[]> to) {
            this.to = to;
        }

        @Override
        public void arrived(String name, Scattered bytes) {
            to.complete(bytes.bytes());
        }

        @Override
        public void failed(String name, Throwable cause) {
            to.completeExceptionally(cause);
        }
    }

    @Override
    public long bytesIn(int order, long pushed) {
        return pushed;
    }

    @Override
    public void cancel(int order, Jobs jobs, String reason) {
        jobs.cancel(OrderJob.token(order), reason);
    }

    @Override
    public void discard(int order) {
        Integer count = chunks.get(order);
        if (count != null) {
            failed.put(order, count);
            if (failed.size() > FAILED) {
                failed.pollFirstEntry();
            }
            free(order, count);
        }
    }

    /**
     * Also removes what late tasks of earlier orders pushed after those had been given up. All by name: Spark looks for a prefix
     * among the files of its folders too, a millisecond each time.
     */
    private void free(int order, int count) {
        chunks.remove(order);
        DriverCoding.Sum sum = coded.remove(order);
        if (sum != null) {
            sum.end();
        }
        repaired.remove(order);
        List<String> unwanted = BlockNames.numbered(names.sum(order), 0, count);
        failed.forEach((late, chunksOfIt) -> unwanted.addAll(BlockNames.numbered(names.sum(late), 0, chunksOfIt)));
        sweeper.remove(unwanted, true);
    }
}
