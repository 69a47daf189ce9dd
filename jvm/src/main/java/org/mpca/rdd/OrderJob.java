package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.mpca.wire.Order;

/** One order on its way through Spark, as a reducer sees it. Immutable. */
final class OrderJob {
    /** What comes of it: the answers in executor order, or a failure. Called once, in a thread of Spark's scheduler. */
    interface Outcome {
        void done(OrderJob job, List<byte[]> answers);

        /** `unfinished`: executors whose task had not ended. */
        void failed(Throwable cause, List<String> unfinished);
    }

    final Order order;
    final OrderPlan plan;
    final Outcome outcome;
    private final Jobs jobs;

    OrderJob(Order order, OrderPlan plan, Jobs jobs, Outcome outcome) {
        this.order = order;
        this.plan = plan;
        this.jobs = jobs;
        this.outcome = outcome;
    }

    Jobs jobs() {
        return jobs;
    }

    static String token(int order) {
        return "order/" + order;
    }

    /** Runs the tasks that answer, with the step that sums inside them, or null. */
    void answer(OrderTask.ReduceStep step) {
        ModelStateRDD states = new ModelStateRDD(jobs.context(), plan);
        jobs.submit(
                token(order.order),
                order.description,
                true,
                false,
                states,
                order.executors.size(),
                new OrderTask(plan, step),
                (answers, failure) -> {
                    if (failure == null) {
                        open(answers);
                    } else {
                        outcome.failed(failure, unfinished(answers));
                    }
                });
    }

    /** An answer with the checksum behind it: it says who contributes with what weight. */
    static byte[] seal(int order, byte[] answer) {
        return CheckedBlocks.seal(token(order), Arrays.copyOf(answer, answer.length + CheckedBlocks.TRAILER_BYTES))
                .array();
    }

    private void open(byte[][] sealed) {
        List<byte[]> answers = new ArrayList<>();
        for (int i = 0; i < sealed.length; i++) {
            if (CheckedBlocks.open(token(order.order), ByteBuffer.wrap(sealed[i])) == null) {
                String executor = order.executors.get(i);
                // It cannot be asked for again: the order goes out once more without that executor, which may come
                // back.
                outcome.failed(
                        new ExecutorFault(executor, "executor " + executor + ": its answer was damaged on its way"),
                        new ArrayList<>());
                return;
            }
            answers.add(Arrays.copyOf(sealed[i], sealed[i].length - CheckedBlocks.TRAILER_BYTES));
        }
        outcome.done(this, answers);
    }

    private List<String> unfinished(byte[][] answers) {
        List<String> executors = new ArrayList<>();
        for (int i = 0; i < answers.length; i++) {
            if (answers[i] == null) {
                executors.add(order.executors.get(i));
            }
        }
        return executors;
    }
}
