package org.mpca.rdd;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.mpca.wire.Order;

/** One order on its way through Spark, as a reducer sees it. Immutable. */
final class OrderJob {
  /** What comes of it: the answers in executor order, or a failure. Called once, in a thread of Spark's scheduler. */
  interface Outcome {
    void done(List<byte[]> answers);

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
    ModelStateRDD states = new ModelStateRDD(jobs.context(), order, plan.peers);
    jobs.submit(token(order.order), order.description, true, states, order.executors.size(),
        new OrderTask(plan, step), (answers, failure) -> {
          if (failure == null) {
            outcome.done(Arrays.asList(answers));
          } else {
            outcome.failed(failure, unfinished(answers));
          }
        });
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
