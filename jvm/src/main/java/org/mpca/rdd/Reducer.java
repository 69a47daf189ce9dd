package org.mpca.rdd;

import java.io.IOException;
import java.nio.channels.FileChannel;

/** Sums the frozen parts of a shard and brings the sum to the driver. Two implementations: ranges (default) and tree. */
interface Reducer {
    /** Submits the Spark job or jobs of an order; the outcome goes to {@code job.outcome}. Called in the submitting thread. */
    void run(OrderJob job);

    /**
     * Checks what the order's tasks pushed to the driver, and fetches damaged chunks once more. This may take seconds, so no
     * thread of Spark's may call it.
     *
     * @throws ExecutorFault a chunk is damaged again
     */
    void verify(OrderJob job) throws ExecutorFault, IOException, InterruptedException;

    /** Writes the sum of a finished order to the start of the channel, and frees the sum. */
    void takeSum(int order, int length, FileChannel to) throws IOException;

    /** Bytes of sums that the driver received for an order; {@code pushed}: bytes that its tasks say they sent. */
    long bytesIn(int order, long pushed);

    /** Cancels the jobs of an order; it then fails with the reason. */
    void cancel(int order, Jobs jobs, String reason);

    /** Frees what a failed order left on the driver, or a sum that is not needed. */
    void discard(int order);

    /** The run ends: nothing is taken any more. */
    void close();
}
