package org.mpca.rdd;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;

/**
 * Submits the jobs of one run, each under a token and with a description that the Spark UI shows.
 *
 * <p>One thread, "mpca-submit", does it: job group and description are properties of the submitting thread, and the
 * user's own must stay as they are. Tokens and job ids are in a concurrent map.
 */
final class Jobs {
    private final SparkContext context;
    private final String run;
    private final ExecutorService submitter =
            Executors.newSingleThreadExecutor(work -> Threads.daemon("mpca-submit", work));
    private final Map<String, Integer> ids = new ConcurrentHashMap<>();

    Jobs(SparkContext context, String run) {
        this.context = context;
        this.run = run;
    }

    SparkContext context() {
        return context;
    }

    /** Runs work in the submitting thread and waits for it; what it throws is thrown here. */
    void inSubmitter(Runnable work) {
        try {
            submitter.submit(work).get();
        } catch (ExecutionException e) {
            throw SparkInternals.unchecked(e.getCause());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while submitting", e);
        }
    }

    /** Tells `launched` of each executor to which a task of a strict job is sent; before the job is submitted. */
    void tellLaunches(String token, Consumer<String> launched) {
        JobWatch.get(context).tellLaunches(run + "/" + token, launched);
    }

    /**
     * Submits one job over all partitions; in the submitting thread only.
     *
     * @param strict cancel the job at its first failed task instead of letting Spark try again
     * @param interruptible interrupt its tasks when it is cancelled: for those that wait in Spark's own code, which does not
     *     look whether they were killed. For a shuffle that is gone it waits two minutes, and they have a core meanwhile.
     */
    <T> void submit(
            String token,
            String description,
            boolean strict,
            boolean interruptible,
            RDD<T> rdd,
            int partitions,
            SparkInternals.TaskBody<T> body,
            BiConsumer<byte[][], Throwable> done) {
        String name = run + "/" + token;
        context.setJobGroup("mpca " + run + " " + token, description, interruptible);
        context.setLocalProperty(JobWatch.TOKEN, name);
        context.setLocalProperty(JobWatch.STRICT, strict ? "true" : null);
        try {
            int id = SparkInternals.submit(context, rdd, partitions, body, (results, failure) -> {
                ids.remove(name);
                JobWatch.Failure first = JobWatch.get(context).takeFailure(name);
                done.accept(results, failure == null || first == null ? failure : first.asException());
            });
            ids.put(name, id);
        } finally {
            context.setLocalProperty(JobWatch.TOKEN, null);
            context.setLocalProperty(JobWatch.STRICT, null);
            context.clearJobGroup();
        }
    }

    /** Cancels a job: its {@code done} is called with the failure. Does nothing if no job has that token. */
    void cancel(String token, String reason) {
        Integer id = ids.get(run + "/" + token);
        if (id != null) {
            context.cancelJob(id, reason);
        }
    }

    /** Ends all jobs whose token starts so. */
    void cancelAll(String prefix) {
        for (String name : ids.keySet()) {
            String token = name.substring(run.length() + 1);
            if (token.startsWith(prefix)) {
                cancel(token, "the run has ended");
            }
        }
    }

    void close() {
        submitter.shutdown();
    }
}
