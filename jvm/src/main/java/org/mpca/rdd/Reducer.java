package org.mpca.rdd;

import java.io.IOException;
import java.nio.channels.FileChannel;

/** The port to whatever sums the frozen parts of a shard onto the driver. Two of them: ranges (default) and tree. */
interface Reducer {
  /** Runs the order's job, or jobs, and reports to it. Called in the thread that submits. */
  void run(OrderJob job);

  /**
   * Compares the checksums of what an order's tasks pushed here, and fetches what is damaged once more. Takes a while: not for
   * a thread of Spark's.
   *
   * @throws ExecutorFault it is damaged again
   */
  void verify(OrderJob job) throws ExecutorFault, IOException, InterruptedException;

  /** Writes the sum of a finished order into the channel, from its start on, and frees it. */
  void takeSum(int order, int length, FileChannel to) throws IOException;

  /** Bytes of sums that reached the driver by an order, whose tasks say that they pushed `pushed`. */
  long bytesIn(int order, long pushed);

  /** Ends the job or jobs of an order; its outcome is told. */
  void cancel(int order, Jobs jobs, String reason);

  /** Frees what an order left that failed, or whose sum nobody wants. */
  void discard(int order);
}
