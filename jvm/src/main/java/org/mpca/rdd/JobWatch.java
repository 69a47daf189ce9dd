package org.mpca.rdd;

import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.ExecutorLostFailure;
import org.apache.spark.FetchFailed;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskEndReason;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.TaskKilled;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/**
 * Listens to Spark's scheduler: cancels a job of ours at its first failed task, and reports executors.
 *
 * <p>Spark would try a task four times, on executors where it must not run; cancelling takes 0.2 s from a killed
 * executor to a failed order instead of 0.8. Which executor is at fault is what the driver needs: the one that was lost,
 * or the one that a task names ({@link ExecutorFault}), not the one where the task happened to fail.
 *
 * <p>Concurrency: called by Spark's listener thread and by those of jobs; the tables are concurrent.
 */
public final class JobWatch extends SparkListener {
    static final String TOKEN = "mpca.job";
    static final String STRICT = "mpca.job.strict";
    private static final String CAUSE = "Caused by: ";
    private static final Map<SparkContext, JobWatch> WATCHES = Collections.synchronizedMap(new WeakHashMap<>());

    /** Who hears of executors. */
    public interface ExecutorListener {
        void added(String executor, String host, int cores);

        void removed(String executor, String reason);
    }

    /** Why a job failed first. */
    static final class Failure {
        final String executor;
        final String reason;
        private final boolean damages;

        Failure(String executor, String reason) {
            this(executor, reason, false);
        }

        Failure(String executor, String reason, boolean damages) {
            this.executor = executor;
            this.reason = reason;
            this.damages = damages;
        }

        ExecutorFault asException() {
            return new ExecutorFault(executor, reason, damages);
        }
    }

    private static final class Job {
        final int id;
        final String token;

        Job(int id, String token) {
            this.id = id;
            this.token = token;
        }
    }

    private final SparkContext context;
    private final ExecutorListener listener;
    private final Map<Integer, Job> strictByStage = new ConcurrentHashMap<>();
    private final Map<String, Failure> failures = new ConcurrentHashMap<>();
    /** Who hears on which executors tasks of a job begin, by token. */
    private final Map<String, Consumer<String>> launches = new ConcurrentHashMap<>();

    private JobWatch(SparkContext context, ExecutorListener listener) {
        this.context = context;
        this.listener = listener;
    }

    /** Begins to watch a context; before its first executor comes. */
    public static void watch(SparkContext context, ExecutorListener listener) {
        JobWatch watch = new JobWatch(context, listener);
        WATCHES.put(context, watch);
        context.addSparkListener(watch);
    }

    static JobWatch get(SparkContext context) {
        JobWatch watch = WATCHES.get(context);
        if (watch == null) {
            throw new IllegalStateException(
                    "this session has no plug-in of mpca: add org.mpca.bridge.MpcaPlugin to spark.plugins");
        }
        return watch;
    }

    /** Tells `launched` of each executor that is sent a task of this job, which is strict and is not submitted yet. */
    void tellLaunches(String token, Consumer<String> launched) {
        launches.put(token, launched);
    }

    /** The first failure of a job that has ended, once. */
    Failure takeFailure(String token) {
        return failures.remove(token);
    }

    @Override
    public void onJobStart(SparkListenerJobStart start) {
        if (start.properties() == null || start.properties().getProperty(STRICT) == null) {
            return;
        }
        Job job = new Job(start.jobId(), start.properties().getProperty(TOKEN));
        SparkInternals.stages(start).forEach(stage -> strictByStage.put(stage, job));
    }

    @Override
    public void onTaskStart(SparkListenerTaskStart start) {
        Job job = strictByStage.get(start.stageId());
        Consumer<String> launched = job == null ? null : launches.get(job.token);
        if (launched != null) {
            launched.accept(start.taskInfo().executorId());
        }
    }

    @Override
    public void onTaskEnd(SparkListenerTaskEnd end) {
        Job job = strictByStage.get(end.stageId());
        // A killed task is the consequence of a cancelled job, not the cause.
        if (job == null || !(end.reason() instanceof TaskFailedReason) || end.reason() instanceof TaskKilled) {
            return;
        }
        Failure failure = failure(end.reason(), end.taskInfo().executorId());
        if (failures.putIfAbsent(job.token, failure) == null) {
            context.cancelJob(job.id, failure.reason);
        }
    }

    @Override
    public void onJobEnd(SparkListenerJobEnd end) {
        strictByStage.values().removeIf(job -> {
            // Whoever submitted the job has been told before this; what failed after its first failure is of no
            // interest.
            if (job.id == end.jobId()) {
                failures.remove(job.token);
                launches.remove(job.token); // not before: a job may have ended when its first event is heard
            }
            return job.id == end.jobId();
        });
    }

    @Override
    public void onExecutorAdded(SparkListenerExecutorAdded added) {
        listener.added(
                added.executorId(),
                added.executorInfo().executorHost(),
                added.executorInfo().totalCores());
    }

    @Override
    public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
        listener.removed(removed.executorId(), removed.reason());
    }

    private static Failure failure(TaskEndReason reason, String ranOn) {
        if (reason instanceof ExecutorLostFailure) {
            ExecutorLostFailure lost = (ExecutorLostFailure) reason;
            return new Failure(lost.execId(), lost.toErrorString());
        }
        if (reason instanceof ExceptionFailure) {
            ExceptionFailure failed = (ExceptionFailure) reason;
            if (failed.exception().isDefined() && failed.exception().get() instanceof ExecutorFault) {
                ExecutorFault fault = (ExecutorFault) failed.exception().get();
                return new Failure(fault.executor, fault.getMessage(), fault.damages);
            }
            return new Failure(ranOn, "executor " + ranOn + ": " + failed.className() + ": " + failed.description());
        }
        if (reason instanceof FetchFailed) {
            FetchFailed failed = (FetchFailed) reason;
            String had = failed.bmAddress() == null ? ranOn : failed.bmAddress().executorId();
            return new Failure(
                    had, "executor " + ranOn + " could not fetch from executor " + had + ": " + root(failed.message()));
        }
        return new Failure(ranOn, ((TaskFailedReason) reason).toErrorString());
    }

    /** What is at the bottom of a stack of causes, in a line. */
    private static String root(String trace) {
        String found = "";
        for (String line : trace.split("\n")) {
            if (line.startsWith(CAUSE)) {
                found = line.substring(CAUSE.length());
            } else if (found.isEmpty()) {
                found = line.trim();
            }
        }
        return found;
    }
}
