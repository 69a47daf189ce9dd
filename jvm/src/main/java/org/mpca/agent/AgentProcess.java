package org.mpca.agent;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.List;
import java.util.function.Consumer;
import java.util.logging.Logger;

/**
 * One agent's process: read, killed with its whole process group, waited for. Data workers are in the group, so they go with it.
 *
 * <p>Concurrency: owned by the agent's conductor; {@link #kill} may be called by any thread.
 */
final class AgentProcess {
    private static final Logger LOG = Logger.getLogger("mpca.agent");

    private final Child child;
    private final OutputReader output;
    private final Thread outputThread;

    AgentProcess(Child child, String name, Consumer<List<String>> lines) {
        this.child = child;
        this.output = new OutputReader(child.output(), lines);
        this.outputThread = new Thread(output, name + "-output");
        outputThread.setDaemon(true);
        outputThread.start();
    }

    int pid() {
        return child.pid();
    }

    boolean isAlive() {
        return child.isAlive();
    }

    /** Whether it ends within so long. */
    boolean endsWithin(long millis) throws InterruptedException {
        return child.waitFor(millis);
    }

    /** What the agent reads frames from. */
    OutputStream toAgent() {
        return child.toAgent();
    }

    /** What the agent writes frames to. */
    InputStream fromAgent() {
        return child.fromAgent();
    }

    /** Kills the process; its group follows in {@link #end}. */
    void kill() {
        child.kill();
    }

    /**
     * Sees to it that the process and its group are gone.
     *
     * @return the exit code, 128 + n for signal n, as Java reports it; -1 when even SIGKILL did not end it in time
     */
    int end() throws InterruptedException {
        child.kill();
        child.killGroup();
        if (!child.waitFor(TimeOuts.END_MS)) {
            LOG.warning("agent survives SIGKILL, held by the kernel: pid=" + pid());
            return -1;
        }
        return child.exitCode();
    }

    /** Waits until all that was printed has been passed on, or the time is over. */
    void awaitOutput(long millis) throws InterruptedException {
        outputThread.join(millis);
    }

    /** The last lines printed; waits for the rest of the output to come in. */
    String tail() throws InterruptedException {
        outputThread.join(TimeOuts.OUTPUT_MS);
        return output.tail();
    }

    /** Closes our ends of the pipes, and lets the process's number go. */
    void close() {
        child.release();
    }

    static void closeQuietly(Closeable stream) {
        try {
            stream.close();
        } catch (IOException e) {
            // A pipe whose other end is gone; there is nothing to lose in it.
        }
    }
}
