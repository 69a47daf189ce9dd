package org.mpca.rdd;

import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.apache.spark.TaskContext;

/**
 * The two reasons for which a task stops waiting: Spark killed it, or the order's deadline passed. The driver chose the
 * deadline as a moment, so a retried task does not get more time. Tasks look here every few milliseconds and are not
 * interrupted, since an interrupt would close the channels that the thread uses.
 *
 * <p>Concurrency: used by the task's thread alone.
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
        check(what, culprit, executor -> "");
    }

    /** As above; `more` is what else is known of that executor, put behind its name. */
    void check(String what, Supplier<String> culprit, UnaryOperator<String> more) throws ExecutorFault {
        checkKilled();
        if (System.nanoTime() - deadlineNanos >= 0) {
            String executor = culprit.get();
            String waiting = ", waiting for executor " + executor + more.apply(executor);
            throw new ExecutorFault(executor, "deadline passed while " + what + waiting);
        }
    }
}
