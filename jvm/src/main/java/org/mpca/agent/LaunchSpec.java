package org.mpca.agent;

import java.io.File;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What an agent process is started with. The interpreter, its path and the number of threads come in {@code command}
 * and {@code env}; nothing is guessed on the executor.
 *
 * <p>Concurrency: immutable.
 */
public final class LaunchSpec {
    public final String run;
    public final int agent;
    public final int incarnation;
    public final List<String> command;
    /** The command of the preloaded parent that forks such agents; empty: the agent is a process of its own start. */
    public final List<String> parent;
    /** Added to the executor's own environment; an empty value removes the variable. */
    public final Map<String, String> env;
    /** The packed Start message, a frame's body. */
    public final byte[] startMessage;
    /** Null: the executor's own. */
    public final File workDir;

    public LaunchSpec(
            String run,
            int agent,
            int incarnation,
            List<String> command,
            List<String> parent,
            Map<String, String> env,
            byte[] startMessage,
            File workDir) {
        this.run = run;
        this.agent = agent;
        this.incarnation = incarnation;
        this.command = Collections.unmodifiableList(command);
        this.parent = Collections.unmodifiableList(parent);
        this.env = Collections.unmodifiableMap(new LinkedHashMap<>(env));
        this.startMessage = startMessage;
        this.workDir = workDir;
    }
}
