package org.mpca.rdd;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Daemon threads with names: none of ours may keep an executor's JVM alive. */
public final class Threads {
    private Threads() {}

    public static Thread daemon(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    /** One thread for calls that may block and must not come side by side; it goes after a minute of idleness. */
    static ExecutorService one(String name) {
        ThreadPoolExecutor one = new ThreadPoolExecutor(
                1, 1, 1, TimeUnit.MINUTES, new LinkedBlockingQueue<>(), work -> daemon(name, work));
        one.allowCoreThreadTimeOut(true);
        return one;
    }

    /** A pool for calls that may block in the network or in an agent; threads go after a minute of idleness. */
    static ExecutorService pool(String name) {
        AtomicInteger number = new AtomicInteger();
        return Executors.newCachedThreadPool(work -> daemon(name + "-" + number.incrementAndGet(), work));
    }
}
