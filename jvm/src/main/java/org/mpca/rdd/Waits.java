package org.mpca.rdd;

import java.util.function.Supplier;

import org.apache.spark.TaskContext;

/**
 * The two reasons for which a task stops waiting: Spark killed it, or the order's deadline passed. The deadline is an
 * moment that the driver chose, so that a retry does not begin it anew. Tasks look here every few milliseconds rather than being
 * interrupted: an interrupt would close the channels of whoever it hits. One thread.
 */
final class Waits {
  static final long SLICE_MS = 10;

  private final TaskContext context;
  /** Of System.nanoTime. */
  final long deadlineNanos;

  Waits(TaskContext context, long deadlineNanos) {
    this.context = context;
    this.deadlineNanos = deadlineNanos;
  }

  /** Ends the task if Spark killed it. */
  void checkKilled() {
    context.killTaskIfInterrupted();
  }

  /** Ends the task if it has to end; `culprit` says which executor it waits for, asked only then. */
  void check(String what, Supplier<String> culprit) throws ExecutorFault {
    checkKilled();
    if (System.nanoTime() - deadlineNanos >= 0) {
      String executor = culprit.get();
      throw new ExecutorFault(executor, "deadline passed while " + what + ", waiting for executor " + executor);
    }
  }
}
