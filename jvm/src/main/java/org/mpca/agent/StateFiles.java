package org.mpca.agent;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Writes the states that agents hand over to files of the cluster's storage, in the background, so that neither an agent nor
 * its conductor ever waits for storage.
 *
 * <p>A state lies in a memory file of the agent, opened through {@code /proc}. What was opened stays readable when the agent
 * closes it, and after its death. It is read by position and never mapped, for the reasons of
 * {@link org.mpca.shm.AgentSegment}. A file is whole, and what the agent said that it would be, or it is removed.
 *
 * <p>Concurrency: any thread may call, and no call waits for storage. Two daemon threads copy, mpca-states-0 and -1; each ends
 * with its last copy.
 */
final class StateFiles {
    /** Why there is no file: the agent was not asked. */
    static final String NOT_THERE = "the agent is not there";
    /** ... or it was asked, and did not answer. */
    static final String ENDED_FIRST = "it ended first";

    private static final Logger LOG = Logger.getLogger("mpca.agent");
    private static final int STEP_BYTES = 256 << 10;

    /** What became of a file. */
    interface Outcome {
        /** {@code error} is empty when the file is there; else there are no bytes, and sha256 is empty. */
        void of(long bytes, String sha256, double seconds, String error);
    }

    /** A URL always has the same one: a second file of that name waits until the first is there or was removed. */
    private final ThreadPoolExecutor[] copiers = {copier(0), copier(1)};

    /** Those that wait for a copier, too. */
    private final Set<Copy> copies = ConcurrentHashMap.newKeySet();

    private volatile FileWrites storage;

    private static ThreadPoolExecutor copier(int number) {
        return new ThreadPoolExecutor(0, 1, 0, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), work -> {
            Thread thread = new Thread(work, "mpca-states-" + number);
            thread.setDaemon(true);
            return thread;
        });
    }

    void writeTo(FileWrites writes) {
        storage = writes;
    }

    /** Opens the memory, and has its first {@code bytes} copied to {@code url}. The outcome is told once, by any thread. */
    void write(String run, String memory, long bytes, String sha256, String url, Outcome outcome) {
        Copy copy = new Copy(run, bytes, sha256, url, outcome);
        try {
            copy.memory = new RandomAccessFile(memory, "r");
        } catch (IOException e) { // no reason to end the agent, which trains on
            copy.tell("", describe(e));
            return;
        }
        copies.add(copy);
        try {
            copiers[url.hashCode() & 1].execute(copy);
        } catch (RejectedExecutionException e) { // after a shutdown
            copy.over = true;
            copy.run();
        }
    }

    /** Gives up what is not written yet of these runs, and removes what is there of it. */
    void end(Predicate<String> runs) {
        for (Copy copy : copies) {
            if (runs.test(copy.run)) {
                copy.over = true;
            }
        }
    }

    /** Gives up all, and waits so long for what is under way. */
    void shutdown(long millis) {
        long by = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        List<Runnable> waiting = new ArrayList<>();
        for (ThreadPoolExecutor copier : copiers) {
            waiting.addAll(copier.shutdownNow()); // interrupts: it may hang in its storage
        }
        end(run -> true);
        waiting.forEach(Runnable::run);
        try {
            for (ThreadPoolExecutor copier : copiers) {
                copier.awaitTermination(Math.max(0, by - System.nanoTime()), TimeUnit.NANOSECONDS);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private final class Copy implements Runnable {
        final String run;
        private final long bytes;
        private final String sha256;
        private final String url;
        private final Outcome outcome;
        private final long since = System.nanoTime();
        RandomAccessFile memory;
        /** Nobody wants the file any more. */
        volatile boolean over;

        Copy(String run, long bytes, String sha256, String url, Outcome outcome) {
            this.run = run;
            this.bytes = bytes;
            this.sha256 = sha256;
            this.url = url;
            this.outcome = outcome;
        }

        @Override
        public void run() {
            String written = "";
            String error = "";
            try {
                written = write();
            } catch (Throwable e) { // an Error is an outcome too: somebody waits for one
                LOG.log(Level.WARNING, "no file of a state: run=" + run + " url=" + url, e);
                error = describe(e);
            } finally {
                copies.remove(this);
                closeQuietly(memory);
            }
            tell(written, error);
        }

        private void tell(String written, String error) {
            double seconds = (System.nanoTime() - since) / 1e9;
            outcome.of(error.isEmpty() ? bytes : 0, written, seconds, error);
        }

        private String write() throws IOException {
            checkWanted();
            FileWrites files = storage;
            if (files == null) {
                throw new IOException("no client of the cluster's storage on this executor: url=" + url);
            }
            FileWrites.Target target = files.create(url);
            boolean whole = false;
            try {
                String written = copyTo(target);
                if (!written.equals(sha256)) {
                    throw new IOException("state is not what its agent said: sha256=" + written + ", said=" + sha256
                            + ", url=" + url);
                }
                target.sync();
                target.close();
                whole = true;
                return written;
            } finally {
                if (!whole) {
                    Thread.interrupted(); // of a shutdown: the removal should go through yet
                    closeQuietly(target);
                    deleteQuietly(files);
                }
            }
        }

        /** The sha256 of what was copied. */
        private String copyTo(FileWrites.Target target) throws IOException {
            FileChannel channel = memory.getChannel();
            MessageDigest digest = sha256();
            // Direct, since positional I/O on heap buffers lets the JDK keep a hidden direct copy of any size per
            // thread.
            ByteBuffer step = ByteBuffer.allocateDirect(STEP_BYTES);
            byte[] piece = new byte[STEP_BYTES];
            for (long at = 0; at < bytes; ) {
                checkWanted();
                step.clear().limit((int) Math.min(STEP_BYTES, bytes - at));
                int got = channel.read(step, at);
                if (got < 0) {
                    throw new EOFException("state ended: bytes=" + at + " of " + bytes);
                }
                step.flip();
                step.get(piece, 0, got);
                digest.update(piece, 0, got);
                target.write(piece, 0, got);
                at += got;
            }
            return String.format("%064x", new BigInteger(1, digest.digest()));
        }

        private void checkWanted() throws IOException {
            if (over) {
                throw new IOException("the run ended before the file was written: run=" + run);
            }
        }

        private void deleteQuietly(FileWrites files) {
            try {
                files.delete(url);
            } catch (IOException | RuntimeException e) {
                LOG.log(Level.INFO, "a part of a state stays: url=" + url, e); // no record names it
            }
        }
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e); // every Java has it
        }
    }

    private static String describe(Throwable e) {
        return e.getClass().getSimpleName() + ": " + e.getMessage();
    }

    private static void closeQuietly(Closeable one) {
        try {
            one.close();
        } catch (IOException | RuntimeException e) {
            // Nothing that is wanted is in it.
        }
    }
}
