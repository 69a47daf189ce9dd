package org.mpca.rdd;

import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.Freezing;
import org.mpca.agent.YieldKey;
import org.mpca.wire.Order;

/**
 * Freezes the yields of the next cycle beside the reduce of this one: it asks for them when the rest of the reduce is expected
 * to take no longer than a step of the slowest agent and its copy. Later, and the cycle would wait for that step; sooner, and
 * the snapshots would be older than they need be.
 *
 * <p>The rest of the reduce is what the last one of this shard took, less what has passed; or more, when less of the sum is here
 * than that says. A first reduce, or an order without one, has nothing to go by: then it asks at the end.
 *
 * <p>When the task is killed the thread is interrupted; what the agents were asked for stays asked for, and the order submitted
 * again gets it.
 *
 * <p>Concurrency: made and awaited by the task's thread; a thread of a pool waits and asks. The share is guarded by the lock.
 */
final class FreezeAhead {
    private static final ExecutorService FREEZERS = Threads.pool("mpca-freeze");
    /** How often the expectation is looked at again. */
    private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

    private final Pace pace;
    private final Order order;
    private final List<YieldKey> keys;
    private final long deadlineNanos;
    private final long start = System.nanoTime();
    private final long reduceNanos;
    private final long leadNanos;
    private final Future<Freezing> freezing;

    private double share;

    FreezeAhead(Pace pace, Order order, List<YieldKey> keys, long deadlineNanos) {
        this.pace = pace;
        this.order = order;
        this.keys = keys;
        this.deadlineNanos = deadlineNanos;
        this.reduceNanos = order.reduce == null ? 0 : pace.reduce(order.run, order.reduce.shard);
        this.leadNanos = pace.freeze(order.run);
        this.freezing = FREEZERS.submit(this::freeze);
    }

    /** So much of the sum is here; 1 ends the waiting. */
    synchronized void progress(double share) {
        this.share = share;
        if (share >= 1) {
            notifyAll();
        }
    }

    /** Waits for the agents, once the reduce has ended; looks after the task meanwhile. */
    Freezing await(Waits waits) throws Exception {
        progress(1);
        while (true) {
            try {
                return freezing.get(Waits.SLICE_MS, TimeUnit.MILLISECONDS);
            } catch (TimeoutException e) {
                // The registry keeps the deadline itself and answers who was late; this one only guards against its
                // bugs.
                if (System.nanoTime() - waits.deadlineNanos > TimeUnit.SECONDS.toNanos(1)) {
                    waits.check("freezing", () -> ExecutorSide.get().self().executor);
                } else {
                    waits.checkKilled();
                }
            } catch (ExecutionException e) {
                throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
            }
        }
    }

    /** Asks for nothing any more. */
    void end() {
        freezing.cancel(true);
    }

    private Freezing freeze() throws InterruptedException {
        synchronized (this) {
            for (long rest = rest(System.nanoTime()); rest > leadNanos; rest = rest(System.nanoTime())) {
                TimeUnit.NANOSECONDS.timedWait(this, Math.min(rest - leadNanos, LOOK_NANOS));
            }
        }
        long asked = System.nanoTime();
        Freezing all = AgentRegistry.get().freeze(keys, deadlineNanos);
        if (all.late.isEmpty()) {
            pace.froze(order.run, System.nanoTime() - asked);
        }
        return all;
    }

    /** Nanoseconds that the reduce is expected to take from now on. */
    private long rest(long now) {
        return share >= 1 ? 0 : rest(now - start, reduceNanos, share);
    }

    /**
     * @param passed nanoseconds since the reduce began
     * @param last nanoseconds that it took the time before; Long.MAX_VALUE: not known
     * @param share of the sum that is here
     */
    static long rest(long passed, long last, double share) {
        long byLast = Math.max(0, last - passed);
        long byShare = share > 0 ? (long) (passed / share - passed) : 0;
        return Math.max(byLast, byShare);
    }
}
