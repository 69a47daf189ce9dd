package org.mpca.rdd;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.DoubleConsumer;
import java.util.stream.Collectors;
import org.apache.spark.Partitioner;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.mpca.reduce.WeightedSum;
import org.mpca.wire.Answer;
import org.mpca.wire.Order;
import org.mpca.wire.ProtocolException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Tuple2;

/**
 * The paper's reduction: a tree over Spark's own shuffle, two levels deep. About sqrt(K) groups of neighbouring executors
 * are summed by one task each; the driver adds the groups' sums. The yardstick for {@link RangesReducer}, which moves
 * half as much.
 *
 * <p>Spark's treeReduce adds in the order of arrival; here a group sorts its parts by position and the driver adds groups
 * in partition order, so the same contributors give the same bytes (other bytes than ranges: sums of sums round
 * otherwise). An order with a reduce becomes two jobs: the first one's map tasks begin the downloads and read the frozen
 * parts, the second freezes and answers. Tasks of the first are interrupted when it is cancelled: none of them has an open
 * channel but Spark's.
 *
 * <p>Concurrency: safe from any thread; what is done for one order is done by one thread after the other.
 */
final class TreeReducer implements Reducer {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static final String GROUP = "group";

    /** By order, until taken. */
    private final Map<Integer, Sum> sums = new ConcurrentHashMap<>();

    @Override
    public void run(OrderJob job) {
        if (job.order.reduce == null) {
            job.answer(null);
        } else {
            sum(job, true);
        }
    }

    private void sum(OrderJob job, boolean first) {
        double start = RunDriver.now();
        int parts = job.order.reduce.parts.size();
        int groups = (int) Math.ceil(Math.sqrt(parts));
        JavaPairRDD<Integer, byte[]> shuffled = JavaPairRDD.fromJavaRDD(new JavaRDD<>(
                        new PartsRDD(job.jobs().context(), job.order, job.plan), SparkInternals.pairTag()))
                .partitionBy(new Neighbours(groups, parts));
        double[] weights =
                job.order.reduce.parts.stream().mapToDouble(part -> part.weight).toArray();
        job.jobs()
                .submit(
                        token(job.order.order),
                        job.order.description + " (tree)",
                        true,
                        true,
                        shuffled.rdd(),
                        groups,
                        new GroupSum(job.order.reduce, weights),
                        (sumsOfGroups, failure) -> {
                            shuffled.rdd().cleanShuffleDependencies(false);
                            boolean whole =
                                    failure == null && keep(job.order.order, job.order.reduce.length, sumsOfGroups);
                            boolean damaged = failure == null
                                    ? !whole
                                    : failure instanceof ExecutorFault && ((ExecutorFault) failure).damages;
                            if (damaged && first) {
                                LOG.warn(
                                        "a sum was damaged on its way, and is made once more: order={} cause={}",
                                        job.order.order,
                                        failure == null ? "a group's sum" : failure.getMessage());
                                Threads.daemon("mpca-tree", () -> again(job)).start();
                            } else if (!whole) {
                                // Its groups do not say which of the parts' executors is waited for.
                                job.outcome.failed(
                                        failure != null
                                                ? failure
                                                : new IOException("a group's sum came damaged to the driver, twice"),
                                        job.order.reduce.parts.stream()
                                                .map(p -> p.executor)
                                                .collect(Collectors.toList()));
                            } else {
                                double end = RunDriver.now();
                                // Submitting waits for Spark's scheduler, whose thread this is.
                                Threads.daemon("mpca-tree", () -> answer(job, start, end))
                                        .start();
                            }
                        });
    }

    private void again(OrderJob job) {
        try {
            job.jobs().inSubmitter(() -> sum(job, false));
        } catch (RuntimeException e) {
            job.outcome.failed(e, job.order.executors);
        }
    }

    private static void answer(OrderJob job, double start, double end) {
        try {
            job.jobs().inSubmitter(() -> job.answer(new Stamp(start, end)));
        } catch (RuntimeException e) {
            job.outcome.failed(e, job.order.executors);
        }
    }

    /** Adds the groups' sums; false if one of them is damaged. */
    private boolean keep(int order, int length, byte[][] groups) {
        WeightedSum sum = new WeightedSum(length);
        long bytes = 0;
        for (byte[] group : groups) {
            ByteBuffer whole = CheckedBlocks.open(GROUP, ByteBuffer.wrap(group));
            if (whole == null) {
                return false;
            }
            sum.add(whole, 1.0);
            bytes += whole.remaining();
        }
        sums.put(order, new Sum(sum.result(), bytes));
        return true;
    }

    @Override
    public void verify(OrderJob job) {
        // Done when the groups' sums came: the second job, which answers, is not submitted before.
    }

    @Override
    public void takeSum(int order, int length, FileChannel to) throws IOException {
        Sum sum = sums.remove(order);
        if (sum == null || sum.data.length != length) {
            throw new IOException("no sum of that order and length: order=" + order + ", expected=" + length
                    + (sum == null ? "" : ", bytes=" + sum.data.length));
        }
        Channels.write(to, 0, ByteBuffer.wrap(sum.data));
    }

    @Override
    public long bytesIn(int order, long pushed) {
        Sum sum = sums.get(order);
        return sum == null ? 0 : sum.received;
    }

    @Override
    public void discard(int order) {
        sums.remove(order);
    }

    @Override
    public void close() {
        sums.clear();
    }

    @Override
    public void cancel(int order, Jobs jobs, String reason) {
        jobs.cancel(token(order), reason);
        jobs.cancel(OrderJob.token(order), reason);
    }

    private static final class Sum {
        final byte[] data;
        /** Bytes that came to the driver for it. */
        final long received;

        Sum(byte[] data, long received) {
            this.data = data;
            this.received = received;
        }
    }

    private static String part(int position) {
        return "part/" + position;
    }

    private static String token(int order) {
        return "order/" + order + "/tree";
    }

    /** Stage 1: the frozen part of each executor, under its position. */
    private static final class PartsRDD extends PinnedRDD<Tuple2<Integer, byte[]>> {
        private static final long serialVersionUID = 1;

        private final OrderPlan plan;

        PartsRDD(SparkContext context, Order order, OrderPlan plan) {
            super(context, peers(order, plan), SparkInternals.pairClass());
            this.plan = plan;
        }

        @Override
        byte[] own(String executor) {
            return plan.own(executor);
        }

        @Override
        List<Tuple2<Integer, byte[]>> here(byte[] brings, TaskContext context) {
            try {
                plan.enter(brings);
                Order order = plan.order();
                OrderTask.prelude(order, plan);
                String here = ExecutorSide.get().self().executor;
                List<Tuple2<Integer, byte[]>> own = new ArrayList<>();
                for (int p = 0; p < order.reduce.parts.size(); p++) {
                    if (order.reduce.parts.get(p).executor.equals(here)) {
                        // In use for good: Spark does not say when it has written it.
                        byte[] data =
                                ExecutorSide.get().parts.need(order, plan.partOrders[p], order.reduce.length).data;
                        own.add(new Tuple2<>(p, data));
                        own.add(new Tuple2<>(-1 - p, CheckedBlocks.checksumOf(part(p), data)));
                    }
                }
                return own;
            } catch (ProtocolException | ExecutorFault e) {
                throw SparkInternals.unchecked(e);
            }
        }

        /** The order's executors, and those that hold a part without being asked for anything else. */
        private static List<Peer> peers(Order order, OrderPlan plan) {
            List<String> ids = new ArrayList<>(order.executors);
            order.reduce.parts.stream()
                    .map(part -> part.executor)
                    .filter(id -> !ids.contains(id))
                    .forEach(ids::add);
            List<Peer> peers = new ArrayList<>();
            ids.forEach(id -> peers.add(plan.peers.get(id)));
            return peers;
        }
    }

    /** Neighbouring positions come into one group; a part's checksum, under -1 - p, into that of the part. */
    private static final class Neighbours extends Partitioner {
        private static final long serialVersionUID = 1;

        private final int groups;
        private final int parts;

        Neighbours(int groups, int parts) {
            this.groups = groups;
            this.parts = parts;
        }

        @Override
        public int numPartitions() {
            return groups;
        }

        @Override
        public int getPartition(Object position) {
            int p = (Integer) position;
            return (p < 0 ? -1 - p : p) * groups / parts;
        }
    }

    /** Stage 2: the weighted sum of one group, in the order of positions, not of arrival. */
    private static final class GroupSum implements SparkInternals.TaskBody<Tuple2<Integer, byte[]>> {
        private static final long serialVersionUID = 1;

        private final int length;
        private final String[] executors;
        private final double[] weights;

        GroupSum(Order.Reduce reduce, double[] weights) {
            this.length = reduce.length;
            this.executors = reduce.parts.stream().map(part -> part.executor).toArray(String[]::new);
            this.weights = weights;
        }

        @Override
        public byte[] run(TaskContext context, Iterator<Tuple2<Integer, byte[]>> parts) throws ExecutorFault {
            List<Tuple2<Integer, byte[]>> sorted = new ArrayList<>();
            Map<Integer, byte[]> checksums = new HashMap<>();
            parts.forEachRemaining(one -> {
                if (one._1() < 0) {
                    checksums.put(-1 - one._1(), one._2());
                } else {
                    sorted.add(one);
                }
            });
            Collections.sort(sorted, (a, b) -> Integer.compare(a._1(), b._1()));
            double total = 0;
            for (double weight : weights) {
                total += weight;
            }
            WeightedSum sum = new WeightedSum(length);
            for (Tuple2<Integer, byte[]> part : sorted) {
                int p = part._1();
                if (!Arrays.equals(CheckedBlocks.checksumOf(part(p), part._2()), checksums.get(p))) {
                    String sender = executors[p];
                    throw new ExecutorFault(
                            sender,
                            "executor " + sender + " damages bytes: its part arrived at executor "
                                    + ExecutorSide.get().self().executor + " with a wrong checksum",
                            true);
                }
                sum.add(part._2(), weights[p] / total);
            }
            return CheckedBlocks.seal(GROUP, sum.result(CheckedBlocks.TRAILER_BYTES))
                    .array();
        }
    }

    /** The second job sums nothing; its answers say when the first one did. */
    private static final class Stamp implements OrderTask.ReduceStep, Serializable {
        private static final long serialVersionUID = 1;

        private final double start;
        private final double end;

        Stamp(double start, double end) {
            this.start = start;
            this.end = end;
        }

        @Override
        public void run(Order order, OrderPlan plan, Waits waits, Answer answer, DoubleConsumer progress) {
            answer.reduceStart = start;
            answer.reduceEnd = end;
        }
    }
}
