package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.mpca.agent.TimeOuts;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.EncodedPlan;
import org.mpca.reduce.Scattered;
import org.mpca.wire.Order;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One single-stage job: every executor sums one range of the shard and streams it here ({@link RangesStep}, {@link ArrivingSums}).
 * The driver receives each element of the sum once, for any number of executors.
 *
 * <p>Concurrency: safe from any thread; what is done for one order is done by one thread after the other.
 */
final class RangesReducer implements Reducer {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static final ExecutorService FETCHERS = Threads.pool("mpca-fetch");

    private final BlockNames names;
    private final ArrivingSums arriving;
    private final DriverCoding coding;
    /** Sums that are encoded, by order. Each keeps its base in use. */
    private final Map<Integer, DriverCoding.Sum> coded = new ConcurrentHashMap<>();

    RangesReducer(BlockNames names, DriverCoding coding) {
        this.names = names;
        this.coding = coding;
        this.arriving = ArrivingSums.open(names);
    }

    @Override
    public void run(OrderJob job) {
        Order.Reduce reduce = job.order.reduce;
        if (reduce != null) {
            ChunkPlan grid = job.plan.reduceGrid(reduce.length);
            EncodedPlan encoded = null;
            if (reduce.coded != null) {
                DriverCoding.Sum sum = coding.sum(reduce, grid);
                coded.put(job.order.order, sum);
                encoded = sum.plan;
                arriving.areEncoded();
            }
            int[] lengths = new int[grid.chunks()];
            for (int chunk = 0; chunk < lengths.length; chunk++) {
                lengths[chunk] = encoded == null ? grid.length(chunk) : encoded.length(chunk);
            }
            arriving.expect(job.order.order, lengths);
        }
        job.answer(new RangesStep());
    }

    @Override
    public void takeSum(int order, int length, FileChannel to) throws IOException {
        ArrivingSums.Sum sum = arriving.take(order);
        if (sum == null) {
            throw new IOException("no sum of that order: order=" + order);
        }
        DriverCoding.Sum encoded = coded.get(order);
        long position = 0;
        for (int chunk = 0; chunk < sum.chunks(); chunk++) {
            ByteBuffer data = need(sum, chunk, order);
            position += encoded == null ? Channels.write(to, position, data) : encoded.write(chunk, data, to, position);
        }
        if (position != length) {
            throw new IOException(
                    "sum is of another length: bytes=" + position + ", expected=" + length + ", order=" + order);
        }
        sum.free();
        discard(order);
    }

    private static ByteBuffer need(ArrivingSums.Sum sum, int chunk, int order) throws IOException {
        ByteBuffer data = sum.get(chunk);
        if (data == null) {
            throw new IOException("a chunk of the sum is missing: chunk=" + chunk + ", order=" + order);
        }
        return data;
    }

    @Override
    public void verify(OrderJob job) throws ExecutorFault, IOException, InterruptedException {
        int order = job.order.order;
        ArrivingSums.Sum sum = arriving.of(order);
        for (int chunk = 0; sum != null && chunk < sum.chunks(); chunk++) {
            if (sum.isDamaged(chunk)) {
                sum.put(chunk, repaired(job, chunk));
            }
            need(sum, chunk, order);
        }
    }

    /** Fetches a chunk from the executor that summed it. */
    private byte[] repaired(OrderJob job, int chunk) throws ExecutorFault, InterruptedException {
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
            return fetched.get(TimeOuts.REPAIR_MS, TimeUnit.MILLISECONDS);
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
        arriving.take(order);
        DriverCoding.Sum sum = coded.remove(order);
        if (sum != null) {
            sum.end();
        }
    }

    @Override
    public void close() {
        arriving.close();
    }
}
