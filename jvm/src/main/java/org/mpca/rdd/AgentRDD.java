package org.mpca.rdd;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.LaunchSpec;

/**
 * One agent, as Spark sees it: one partition, pinned to an executor, whose task starts the agent's process and lends it
 * its thread for the whole run, so that Spark counts the executor as busy and never reclaims it.
 *
 * <p>The task holds the agent; it is not the agent's life. When it is cancelled or aborted the agent goes on training,
 * and another AgentRDD may hold it again. Only the first attempt starts a process: a second one would start an
 * incarnation that the driver believes dead.
 */
final class AgentRDD extends PinnedRDD<byte[]> {
    private static final long serialVersionUID = 1;
    private static final long SLICE_MS = 200;

    private final String run;
    private final int agent;
    private final int incarnation;
    private final List<String> command;
    private final List<String> parent;
    private final LinkedHashMap<String, String> env;
    private final byte[] startMessage;

    AgentRDD(SparkContext context, Peer executor, LaunchSpec spec) {
        super(context, Collections.singletonList(executor), byte[].class);
        this.run = spec.run;
        this.agent = spec.agent;
        this.incarnation = spec.incarnation;
        this.command = new java.util.ArrayList<>(spec.command);
        this.parent = new java.util.ArrayList<>(spec.parent);
        this.env = new LinkedHashMap<>(spec.env);
        this.startMessage = spec.startMessage;
    }

    @Override
    List<byte[]> here(byte[] own, TaskContext context) {
        AgentRegistry registry = AgentRegistry.get();
        if (!registry.alive(run, agent, incarnation)) {
            if (context.attemptNumber() > 0 || context.stageAttemptNumber() > 0) {
                return says("the holding task ran again after the agent's process had ended");
            }
            ExecutorSide side = ExecutorSide.get();
            env.put(
                    "MPCA_DEVICES",
                    side.devices); // which of them is this agent's, it decides itself; see mpca/agent/gpus.py
            registry.readFiles(side.reads);
            registry.writeFiles(side.writes);
            registry.start(
                    new LaunchSpec(run, agent, incarnation, command, parent, env, startMessage, (File) null),
                    side.events(run));
        }
        try {
            while (!registry.awaitEnd(run, agent, incarnation, SLICE_MS)) {
                context.killTaskIfInterrupted();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("holding task interrupted: agent=" + agent, e);
        }
        return says("the agent's process ended");
    }

    /** "Not mine": the executor that this agent belongs to is gone. No failure, since Spark would only try again. */
    @Override
    List<byte[]> elsewhere(String wanted, String here) {
        return says("not mine: executor " + wanted + " is gone, the task ran on executor " + here);
    }

    /** Turns what a partition said into the result of its task. */
    static byte[] result(TaskContext context, java.util.Iterator<byte[]> said) {
        return said.next();
    }

    static String text(byte[] result) {
        return new String(result, StandardCharsets.UTF_8);
    }

    private static List<byte[]> says(String text) {
        return Collections.singletonList(text.getBytes(StandardCharsets.UTF_8));
    }
}
