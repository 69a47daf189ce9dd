package org.mpca.rdd;

import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import org.mpca.agent.TimeOuts;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Removes blocks off the data path. Spark's removeBlock waits without limit for a reader (a hang was seen in the
 * prototype), so each removal runs in a thread that is given up after a deadline of our own.
 *
 * <p>One thread, "mpca-sweeper", owns the queue; its helper does the call that may hang. Others only enqueue.
 */
final class Sweeper {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");

    private final LinkedBlockingQueue<Runnable> queue = new LinkedBlockingQueue<>();
    private ExecutorService helper;

    private Thread worker;
    private boolean closed;

    /** Lets the threads go once everything enqueued before is done. */
    void close() {
        enqueue(() -> {
            closed = true;
            if (helper != null) {
                helper.shutdown();
            }
        });
    }

    /** The thread begins with the first task. */
    private synchronized void enqueue(Runnable task) {
        if (worker == null) {
            worker = Threads.daemon("mpca-sweeper", this::work);
            worker.start();
        }
        queue.add(task);
    }

    /** Removes the blocks named, some time soon. */
    void remove(List<String> names) {
        remove(names, () -> {});
    }

    /** The same; `then` runs when they are gone, so that nobody is sent them any more. Not at all if one cannot be removed. */
    void remove(List<String> names, Runnable then) {
        removeLater(() -> names, then);
    }

    /** Removes what `names` says when its turn comes: for names that have to be looked up first. */
    void removeLater(Supplier<List<String>> names) {
        removeLater(names, () -> {});
    }

    /** The same, and then what {@link #remove(List, boolean, Runnable)} says. */
    private void removeLater(Supplier<List<String>> names, Runnable then) {
        enqueue(() -> {
            if (removeNow(names)) {
                then.run();
            }
        });
    }

    /** Waits until everything enqueued before has been done, at most so long. */
    boolean drain(long millis) throws InterruptedException {
        CountDownLatch reached = new CountDownLatch(1);
        enqueue(reached::countDown);
        return reached.await(millis, TimeUnit.MILLISECONDS);
    }

    private void work() {
        while (!closed) {
            try {
                queue.take().run();
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                LOG.warn("blocks could not be removed: {}", e.toString());
            }
        }
    }

    private boolean removeNow(Supplier<List<String>> names) {
        List<String> all = names.get();
        if (all.isEmpty()) {
            return true;
        }
        if (helper == null) {
            helper = newHelper();
        }
        Future<?> removal = helper.submit(() -> all.forEach(SparkInternals::remove));
        try {
            removal.get(TimeOuts.REMOVAL_MS, TimeUnit.MILLISECONDS);
            return true;
        } catch (TimeoutException e) {
            LOG.warn(
                    "a removal hangs and is given up: blocks={}, first={}, waited_ms={}",
                    all.size(),
                    all.get(0),
                    TimeOuts.REMOVAL_MS);
            helper.shutdownNow();
            helper = null;
        } catch (ExecutionException e) {
            LOG.warn(
                    "blocks could not be removed: first={}, cause={}",
                    all.get(0),
                    e.getCause().toString());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return false;
    }

    private static ExecutorService newHelper() {
        return Executors.newSingleThreadExecutor(work -> Threads.daemon("mpca-remove", work));
    }
}
