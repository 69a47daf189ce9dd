package org.mpca.agent;

import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.mpca.wire.FrameReader;
import org.mpca.wire.FrameWriter;
import org.mpca.wire.Msgpack;

/**
 * A preloaded parent of agents ({@code mpca/agent/parent.py}, which has the words): a child of this JVM that has imported what
 * agents import, and forks them.
 *
 * <p>Its end ends its agents, by the kernel. This JVM sees that as the end of its pipe, and tells each of them with the exit code
 * of SIGKILL; a new parent is started for the next agent ({@link Parents}).
 *
 * <p>Concurrency: any thread may ask, writing under the writer's lock; mpca-parent reads the answers.
 */
final class Parent {
    private static final Logger LOG = Logger.getLogger("mpca.agent");
    private static final long LOOK_MILLIS = 50;
    private static final int KILLED = 128 + 9;

    /** The parent did not fork: an agent of its own start is what remains. */
    static final class NotForked extends IOException {
        private static final long serialVersionUID = 1;

        NotForked(String why) {
            super(why);
        }
    }

    private final Process process;
    private final FrameWriter writer;
    private final AtomicInteger numbers = new AtomicInteger();
    /** Completed with the first word, exceptionally when the parent ends before. */
    private final CompletableFuture<List<?>> ready = new CompletableFuture<>();
    /** Answers to open and fork, by the agent's number. */
    private final Map<Integer, CompletableFuture<List<?>>> answers = new ConcurrentHashMap<>();
    /** Exit codes of agents that are not released. */
    private final Map<Integer, CompletableFuture<Integer>> exits = new ConcurrentHashMap<>();

    private volatile boolean gone;

    private Parent(Process process) {
        this.process = process;
        this.writer = new FrameWriter(process.getOutputStream());
        Thread reader = new Thread(this::read, "mpca-parent");
        reader.setDaemon(true);
        reader.start();
    }

    static Parent start(LaunchSpec spec) throws IOException, InterruptedException {
        ProcessBuilder builder = SpawnedChild.builder(spec.parent, spec);
        builder.redirectError(ProcessBuilder.Redirect.INHERIT); // into the executor's log
        return new Parent(Spawner.start(builder));
    }

    boolean isGone() {
        return gone;
    }

    /**
     * Forks an agent, once everything is imported.
     *
     * @param unwanted whether nobody wants it any more; looked at while this waits
     * @throws NotForked the parent could not, or ended meanwhile
     */
    ForkedChild fork(BooleanSupplier unwanted) throws IOException, InterruptedException {
        await(ready, unwanted, Long.MAX_VALUE);
        int number = numbers.incrementAndGet();
        CompletableFuture<Integer> exit = new CompletableFuture<>();
        exits.put(number, exit);
        ForkedChild child = new ForkedChild(this, number, exit);
        try {
            child.open((String) ask("open", number, unwanted));
            child.forked(((Number) ask("fork", number, unwanted)).intValue());
            return child;
        } catch (IOException | InterruptedException | RuntimeException e) {
            child.release();
            throw e;
        }
    }

    /** Ends a parent that does not answer, and with it its agents. It is asked about an agent of its own. */
    void endIfSilent(int number) throws InterruptedException {
        try {
            ask("here", number, () -> false);
        } catch (IOException e) {
            LOG.warning("a preloaded parent is ended, and its agents with it: " + e.getMessage());
        }
    }

    /** What its answer says behind the agent's number. */
    private Object ask(String word, int number, BooleanSupplier unwanted) throws IOException, InterruptedException {
        CompletableFuture<List<?>> answer = new CompletableFuture<>();
        answers.put(number, answer);
        if (!say(word, number)) {
            throw new NotForked("the preloaded parent has ended");
        }
        List<?> said = await(answer, unwanted, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TimeOuts.FORK_MS));
        if (said.get(0).equals("refused")) {
            throw new NotForked((String) said.get(2));
        }
        return said.size() > 2 ? said.get(2) : null;
    }

    private List<?> await(CompletableFuture<List<?>> answer, BooleanSupplier unwanted, long by)
            throws IOException, InterruptedException {
        while (true) {
            try {
                return answer.get(LOOK_MILLIS, TimeUnit.MILLISECONDS);
            } catch (ExecutionException e) {
                throw new NotForked("the preloaded parent has ended");
            } catch (TimeoutException e) {
                if (unwanted.getAsBoolean()) {
                    throw new IOException("not wanted any more before it was started");
                }
                if (by != Long.MAX_VALUE && System.nanoTime() - by > 0) {
                    kill(); // stopped, or held by the kernel: the next agent gets another one
                    throw new NotForked("the preloaded parent does not answer");
                }
            }
        }
    }

    /** Tells the parent; false when it is gone. */
    boolean say(String word, int number) {
        synchronized (writer) {
            if (gone) {
                return false;
            }
            try {
                writer.write(Msgpack.pack(Arrays.asList(word, number)));
                return true;
            } catch (IOException e) {
                return false; // it ended just now, as the reader will see
            }
        }
    }

    void release(int number) {
        answers.remove(number);
        if (exits.remove(number) != null) {
            say("reap", number);
        }
    }

    /** Its agents die with it. */
    void kill() {
        process.destroyForcibly();
    }

    private void read() {
        FrameReader reader = new FrameReader(process.getInputStream());
        String folder = null;
        try {
            for (byte[] body = reader.read(); body != null; body = reader.read()) {
                List<?> said = (List<?>) Msgpack.unpack(body);
                int number = ((Number) said.get(1)).intValue();
                if (said.get(0).equals("ready")) {
                    folder = (String) said.get(2);
                    ready.complete(said);
                } else if (said.get(0).equals("ended")) {
                    CompletableFuture<Integer> exit = exits.get(number);
                    if (exit != null) {
                        exit.complete(((Number) said.get(2)).intValue());
                    }
                } else {
                    CompletableFuture<List<?>> answer = answers.remove(number);
                    if (answer != null) {
                        answer.complete(said);
                    }
                }
            }
        } catch (IOException | RuntimeException e) {
            LOG.log(Level.WARNING, "the preloaded parent cannot be understood, and is ended: " + e, e);
        }
        end(folder);
    }

    private void end(String folder) {
        process.destroyForcibly();
        synchronized (writer) {
            gone = true;
        }
        try {
            process.waitFor(); // SIGKILL was sent to its agents by the time that it can be reaped
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt(); // nobody does
        }
        EOFException ended = new EOFException("the preloaded parent has ended");
        ready.completeExceptionally(ended);
        answers.values().forEach(one -> one.completeExceptionally(ended));
        exits.values().forEach(one -> one.complete(KILLED));
        if (folder != null) {
            removeQuietly(new File(folder)); // it did so itself, unless it was killed
        }
    }

    private static void removeQuietly(File folder) {
        File[] fifos = folder.listFiles();
        for (File one : fifos == null ? new File[0] : fifos) {
            one.delete();
        }
        folder.delete();
    }
}
