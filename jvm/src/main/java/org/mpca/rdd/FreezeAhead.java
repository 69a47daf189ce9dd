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
 * to take no longer than a step of the slowest agent, its copy, and what is done with it. Later, and the cycle would wait for
 * that; sooner, and the snapshots would be older than they need be.
 *
 * <p>The rest of the reduce is what the last one of this shard took, less what has passed; or more, when less of the sum is with
 * the driver than that says. A first reduce, or an order without one, has nothing to go by: then it asks at the end.
 *
 * <p>When the task is killed the thread is interrupted, but not while it keeps what came: that would close the channels that it
 * uses. What the agents were asked for stays asked for, and the order submitted again gets it.
 *
 * <p>Concurrency: made and awaited by the task's thread; a thread of a pool waits, asks and keeps. The lock guards the share, and
 * whether it keeps.
 */
final class FreezeAhead {
    /** What is done with what agents have answered. */
    interface Keeper {
        void keep(Freezing all) throws Exception;
    }

    private static final ExecutorService FREEZERS = Threads.pool("mpca-freeze");
    /** How often the expectation is looked at again. */
    private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

    private final Pace pace;
    private final Order order;
    private final List<YieldKey> keys;
    private final long deadlineNanos;
    private final Keeper keeper;
    private final long start = System.nanoTime();
    private final long reduceNanos;
    private final long leadNanos;
    private final Future<?> freezing;

    private double share;
    private boolean keeping;

    FreezeAhead(Pace pace, Order order, List<YieldKey> keys, long deadlineNanos, Keeper keeper) {
        this.pace = pace;
        this.order = order;
        this.keys = keys;
        this.deadlineNanos = deadlineNanos;
        this.keeper = keeper;
        this.reduceNanos = order.reduce == null ? 0 : pace.reduce(order.run, order.reduce.shard);
        this.leadNanos = pace.freeze(order.run);
        this.freezing = FREEZERS.submit(() -> {
            freeze();
            return null;
        });
    }

    /** So much of the reduce is done; 1 ends the waiting. */
    synchronized void progress(double share) {
        this.share = share;
        if (share >= 1) {
            notifyAll();
        }
    }

    /** Waits for the agents and for what is done with their yields, once the reduce has ended; looks after the task meanwhile. */
    void await(Waits waits) throws Exception {
        progress(1);
        while (true) {
            try {
                freezing.get(Waits.SLICE_MS, TimeUnit.MILLISECONDS);
                return;
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
    synchronized void end() {
        if (!keeping) {
            freezing.cancel(true);
        }
    }

    private void freeze() throws Exception {
        synchronized (this) {
            for (long rest = rest(System.nanoTime()); rest > leadNanos; rest = rest(System.nanoTime())) {
                TimeUnit.NANOSECONDS.timedWait(this, Math.min(rest - leadNanos, LOOK_NANOS));
            }
        }
        long asked = System.nanoTime();
        Freezing all = AgentRegistry.get().freeze(keys, deadlineNanos);
        synchronized (this) {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            keeping = true;
        }
        keeper.keep(all);
        if (all.late.isEmpty()) {
            pace.froze(order.run, System.nanoTime() - asked);
        }
    }

    /** Nanoseconds that the reduce is expected to take from now on. */
    private long rest(long now) {
        return share >= 1 ? 0 : rest(now - start, reduceNanos, share);
    }

    /**
     * @param passed nanoseconds since the reduce began
     * @param last nanoseconds that it took the time before; Long.MAX_VALUE: not known
     * @param share of the reduce that is done
     */
    static long rest(long passed, long last, double share) {
        long byLast = Math.max(0, last - passed);
        long byShare = share > 0 ? (long) (passed / share - passed) : 0;
        return Math.max(byLast, byShare);
    }
}
