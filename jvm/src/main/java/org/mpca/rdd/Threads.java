package org.mpca.rdd;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

/** Daemon threads with names: none of ours may keep an executor's JVM alive. */
public final class Threads {
  private Threads() {}

  public static Thread daemon(String name, Runnable work) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    return thread;
  }

  /** A pool for calls that may block in the network or in an agent; threads go after a minute of idleness. */
  static ExecutorService pool(String name) {
    AtomicInteger number = new AtomicInteger();
    return Executors.newCachedThreadPool(work -> daemon(name + "-" + number.incrementAndGet(), work));
  }
}
