package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

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

  /** One run of the step. Network threads fill in chunks; the task's thread sums and pushes. */
  private static final class Range {
    private final Order order;
    private final OrderPlan plan;
    private final ChunkPlan grid;
    private final BlockNames names;
    private final String here;
    private final int first;
    private final int end;
    /** By chunk of the range, then by part; null until arrived. Guarded by `this`. */
    private final ByteBuffer[][] chunks;
    private final int[] missing;
    /** Chunks that are complete, or -1 to look for a failure. */
    private final LinkedBlockingQueue<Integer> events = new LinkedBlockingQueue<>();
    private final AtomicLong bytesIn = new AtomicLong();
    /** Executors of which something came damaged. Guarded by `this`. */
    private final Set<String> damaging = new HashSet<>();
    private ExecutorFault failure;
    private int pushed;

    Range(Order order, OrderPlan plan) {
      this.order = order;
      this.plan = plan;
      this.grid = plan.reduceGrid(order.reduce.length);
      this.names = new BlockNames(order.run, order.epoch);
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
      List<Order.Part> parts = order.reduce.parts;
      double total = 0;
      for (Order.Part part : parts) {
        total += part.weight;
      }
      java.util.Arrays.fill(missing, parts.size());
      ask();
      for (int done = 0; done < chunks.length; ) {
        Integer chunk = events.poll(Waits.SLICE_MS, TimeUnit.MILLISECONDS);
        waits.check("reducing cycle " + order.reduce.cycle, this::waitedFor);
        throwFailure();
        if (chunk != null && chunk >= 0) {
          push(chunk, add(chunk, total));
          answer.bytesOut += grid.length(first + chunk);
          done++;
        }
      }
      while (pushedSoFar() < chunks.length) {
        events.poll(Waits.SLICE_MS, TimeUnit.MILLISECONDS);
        waits.check("pushing the sum of cycle " + order.reduce.cycle, () -> here);
        throwFailure();
      }
      answer.bytesIn = bytesIn.get();
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
        arrived(c - first, p, ByteBuffer.wrap(part.data, grid.offset(c), grid.length(c)).slice());
      }
    }

    private void fetch(int p, Peer peer) {
      List<String> wanted =
          BlockNames.numbered(names.parts(order.reduce.cycle, plan.partOrders[p]), first, end);
      // Connecting may block for as long as the network's time-out: not in the task's thread.
      FETCHERS.execute(() -> {
        try {
          CheckedBlocks.fetch(peer, wanted, new SparkInternals.FetchListener() {
            @Override
            public void arrived(String name, ByteBuffer bytes) {
              // The network's buffer is valid during this call only.
              byte[] copy = new byte[bytes.remaining()];
              bytes.get(copy);
              bytesIn.addAndGet(copy.length);
              Range.this.arrived(BlockNames.number(name) - first, p, ByteBuffer.wrap(copy));
            }

            @Override
            public void damaged(String name) {
              Range.this.damagedBy(peer.executor);
            }

            @Override
            public void failed(String name, Throwable cause) {
              if (cause instanceof CheckedBlocks.Damaged) {
                Range.this.failedByDamage(peer.executor, cause.getMessage());
              } else {
                Range.this.failed(peer.executor, "chunk " + name + " of " + peer + " could not be fetched: " + cause);
              }
            }
          });
        } catch (RuntimeException e) {
          failed(peer.executor, peer + " could not be asked: " + e);
        }
      });
    }

    private synchronized void arrived(int chunk, int p, ByteBuffer bytes) {
      if (bytes.remaining() != grid.length(first + chunk)) {
        failed(order.reduce.parts.get(p).executor, "chunk " + (first + chunk) + " of another length: bytes="
            + bytes.remaining() + ", expected=" + grid.length(first + chunk));
      } else if (chunks[chunk][p] == null) {
        chunks[chunk][p] = bytes;
        if (--missing[chunk] == 0) {
          events.add(chunk);
        }
      }
    }

    private void failed(String executor, String what) {
      failed(new ExecutorFault(executor, what));
    }

    private synchronized void damagedBy(String executor) {
      damaging.add(executor);
    }

    /** Damaged by several senders is damaged by this executor or its link. */
    private synchronized void failedByDamage(String sender, String what) {
      String culprit = damaging.size() > 1 ? here : sender;
      failed(new ExecutorFault(culprit, "executor " + culprit + " damages bytes: " + what + ", at executor " + here, true));
    }

    private synchronized void failed(ExecutorFault fault) {
      if (failure == null) {
        failure = fault;
      }
      events.add(-1);
    }

    private synchronized void throwFailure() throws ExecutorFault {
      if (failure != null) {
        throw failure;
      }
    }

    private synchronized int pushedSoFar() {
      return pushed;
    }

    /** The executor of a part of which something is still missing. */
    private synchronized String waitedFor() {
      for (ByteBuffer[] row : chunks) {
        for (int p = 0; row != null && p < row.length; p++) {
          if (row[p] == null) {
            return order.reduce.parts.get(p).executor;
          }
        }
      }
      return here;
    }

    private byte[] add(int chunk, double total) {
      ByteBuffer[] row;
      synchronized (this) {
        row = chunks[chunk];
        chunks[chunk] = null;
      }
      WeightedSum sum = new WeightedSum(grid.length(first + chunk));
      for (int p = 0; p < row.length; p++) {
        sum.add(row[p], order.reduce.parts.get(p).weight / total);
      }
      return sum.result(CheckedBlocks.TRAILER_BYTES);
    }

    /** `sum` has room for its checksum behind it. */
    private void push(int chunk, byte[] sum) {
      ExecutorSide.get().sums.put(order.run, order.epoch, order.order, first + chunk, sum, grid.length(first + chunk));
      FETCHERS.execute(() -> {
        try {
          CheckedBlocks.upload(plan.driver, names.sum(order.order) + (first + chunk), sum, failed -> {
            if (failed != null) {
              failed(here, "the sum could not be pushed to the driver: " + failed);
            } else {
              synchronized (this) {
                pushed++;
              }
              events.add(-1);
            }
          });
        } catch (RuntimeException e) {
          failed(here, "the sum could not be pushed to the driver: " + e);
        }
      });
    }
  }
}
