package org.mpca.rdd;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;


/**
 * One single-stage job: every executor sums one range of the shard and pushes it here ({@link RangesStep}). The driver
 * receives each element of the sum once, whatever the number of executors.
 *
 * <p>Guarded by its own lock; removals happen in the sweeper.
 */
final class RangesReducer implements Reducer {
  private final BlockNames names;
  private final Sweeper sweeper;
  /** Chunks of the sums that may still be taken, by order. */
  private final Map<Integer, Integer> chunks = new HashMap<>();

  RangesReducer(BlockNames names, Sweeper sweeper) {
    this.names = names;
    this.sweeper = sweeper;
  }

  @Override
  public void run(OrderJob job) {
    if (job.order.reduce != null) {
      synchronized (this) {
        chunks.put(job.order.order, job.plan.reduceGrid(job.order.reduce.length).chunks());
      }
    }
    job.answer(new RangesStep());
  }

  @Override
  public void takeSum(int order, int length, FileChannel to) throws IOException {
    Integer count;
    synchronized (this) {
      count = chunks.get(order);
    }
    if (count == null) {
      throw new IOException("no sum of that order: order=" + order);
    }
    List<String> all = BlockNames.numbered(names.sum(order), 0, count);
    long position = 0;
    for (String name : all) {
      long written = SparkInternals.copyOut(name, to, position);
      if (written < 0) {
        throw new IOException("a chunk of the sum is missing: block=" + name + ", order=" + order);
      }
      position += written;
    }
    if (position != length) {
      throw new IOException("sum is of another length: bytes=" + position + ", expected=" + length + ", order=" + order);
    }
    discard(order);
  }

  @Override
  public long bytesIn(int order, long pushed) {
    return pushed;
  }

  @Override
  public void cancel(int order, Jobs jobs, String reason) {
    jobs.cancel(OrderJob.token(order), reason);
  }

  /** Also removes what late tasks of earlier orders pushed after those had been given up. */
  @Override
  public void discard(int order) {
    synchronized (this) {
      chunks.remove(order);
    }
    sweeper.removeLater(this::unwanted, true);
  }

  private List<String> unwanted() {
    List<String> found = new ArrayList<>();
    for (String name : SparkInternals.matching(names.sums())) {
      synchronized (this) {
        if (!chunks.containsKey((int) BlockNames.numberAfter(names.sums(), name))) {
          found.add(name);
        }
      }
    }
    return found;
  }
}
