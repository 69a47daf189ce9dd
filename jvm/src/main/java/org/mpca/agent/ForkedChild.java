package org.mpca.agent;

import java.io.Closeable;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * An agent that a {@link Parent} forks, over FIFOs. The parent keeps its number until {@link #release}, so that no signal of
 * ours can hit another process.
 */
final class ForkedChild implements Child {
    private final Parent parent;
    private final int number;
    /** Completed by the parent's reader, with its end or the parent's. */
    private final CompletableFuture<Integer> exit;

    private OutputStream toAgent;
    private InputStream fromAgent;
    private InputStream output;
    private int pid;

    ForkedChild(Parent parent, int number, CompletableFuture<Integer> exit) {
        this.parent = parent;
        this.number = number;
        this.exit = exit;
    }

    /** Opens our ends of its pipes, which the parent holds open: this waits for nobody. */
    void open(String stem) throws IOException {
        toAgent = new FileOutputStream(stem + ".in");
        fromAgent = new FileInputStream(stem + ".out");
        output = new FileInputStream(stem + ".err");
    }

    void forked(int pid) {
        this.pid = pid;
    }

    @Override
    public int pid() {
        return pid;
    }

    @Override
    public boolean isAlive() {
        return !exit.isDone();
    }

    @Override
    public OutputStream toAgent() {
        return toAgent;
    }

    @Override
    public InputStream fromAgent() {
        return fromAgent;
    }

    @Override
    public InputStream output() {
        return output;
    }

    @Override
    public void kill() {
        if (isAlive()) {
            parent.say("end", number);
        }
    }

    /** A parent that is gone took its agents along, but not what they had started: their group is what is left to name it by. */
    @Override
    public void killGroup() throws InterruptedException {
        if (!parent.say("end", number)) {
            SpawnedChild.killGroup(pid);
        }
    }

    /** A parent that is stopped ends nobody; its own end is the agent's. One that answers has other agents to live for. */
    @Override
    public boolean waitFor(long millis) throws InterruptedException {
        if (ended(millis)) {
            return true;
        }
        parent.endIfSilent(number);
        return ended(millis);
    }

    private boolean ended(long millis) throws InterruptedException {
        try {
            exit.get(millis, TimeUnit.MILLISECONDS);
            return true;
        } catch (TimeoutException e) {
            return false;
        } catch (ExecutionException e) {
            throw new IllegalStateException("an exit code never fails", e);
        }
    }

    @Override
    public int exitCode() {
        return exit.getNow(-1);
    }

    @Override
    public void release() {
        for (Closeable one : new Closeable[] {toAgent, fromAgent, output}) {
            if (one != null) {
                AgentProcess.closeQuietly(one);
            }
        }
        parent.release(number);
    }
}
