package org.mpca.agent;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.logging.Logger;

/**
 * The preloaded parents of a registry's agents, one for each command, environment and folder: what is imported depends on them,
 * and so does the number of threads that libraries read when they are imported.
 *
 * <p>Concurrency: any thread; guarded by its own lock, under which nothing waits but the start of a process.
 */
final class Parents {
    private static final Logger LOG = Logger.getLogger("mpca.agent");

    private final Map<List<Object>, Parent> parents = new HashMap<>();
    private boolean closed;

    /**
     * Starts an agent: forked where its spec has a parent and that can, else as a process of its own.
     *
     * @param unwanted whether nobody wants it any more; looked at while a parent imports
     */
    Child launch(LaunchSpec spec, BooleanSupplier unwanted) throws IOException, InterruptedException {
        if (!spec.parent.isEmpty()) {
            try {
                return fork(spec, unwanted);
            } catch (Parent.NotForked e) {
                LOG.warning("agent is started without a preloaded parent: agent=" + spec.agent + " cause="
                        + e.getMessage());
            }
        }
        return SpawnedChild.start(spec);
    }

    /** By a second parent when the first one ends just now: it does so when nothing was asked for long. */
    private Child fork(LaunchSpec spec, BooleanSupplier unwanted) throws IOException, InterruptedException {
        Parent first = of(spec);
        try {
            return first.fork(unwanted);
        } catch (Parent.NotForked e) {
            Parent second = first.isGone() ? of(spec) : first;
            if (second == first) {
                throw e;
            }
            return second.fork(unwanted);
        }
    }

    private synchronized Parent of(LaunchSpec spec) throws IOException, InterruptedException {
        if (closed) {
            throw new IOException("registry is shut down: run=" + spec.run + ", agent=" + spec.agent);
        }
        List<Object> key = Arrays.asList(spec.parent, spec.env, spec.workDir);
        Parent parent = parents.get(key);
        if (parent == null || parent.isGone()) {
            parent = Parent.start(spec);
            parents.put(key, parent);
        }
        return parent;
    }

    /** Ends all of them, with the agents that they still have. */
    synchronized void shutdown() {
        closed = true;
        parents.values().forEach(Parent::kill);
        parents.clear();
    }
}
