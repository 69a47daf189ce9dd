package org.mpca.rdd;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Calls of peers, of which some may block for as long as connecting does, in a few threads: a thousand peers are called at a
 * time, and each of those that are gone holds one thread up.
 *
 * <p>Concurrency: safe from any thread.
 */
final class Calls {
    static final int MOST_THREADS = 32;

    private final ExecutorService threads;
    private final Queue<Runnable> waiting = new ConcurrentLinkedQueue<>();
    private final AtomicInteger working = new AtomicInteger();

    Calls(String name) {
        this.threads = Threads.pool(name);
    }

    void add(Runnable call) {
        waiting.add(call);
        begin();
    }

    private void begin() {
        if (working.incrementAndGet() <= MOST_THREADS) {
            threads.execute(this::work);
        } else {
            working.decrementAndGet();
        }
    }

    private void work() {
        try {
            for (Runnable call = waiting.poll(); call != null; call = waiting.poll()) {
                call.run();
            }
        } finally {
            working.decrementAndGet();
        }
        if (!waiting.isEmpty()) { // it came after the last look, and found all at work
            begin();
        }
    }
}
