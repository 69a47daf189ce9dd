package org.mpca.bridge;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.mpca.rdd.ExchangeServer;
import org.mpca.rdd.JobWatch;
import org.mpca.rdd.Peer;
import org.mpca.rdd.SparkInternals;
import org.mpca.wire.Event;

/**
 * Where events arrive in the driver's JVM, until Python polls them; one queue a run. Also knows the executors: one is
 * ready when its plug-in has said hello (only then does it answer us) and Spark has told how many cores it has.
 *
 * <p>Filled by Spark's message and listener threads, which must never wait: everything here only enqueues. Guarded by its
 * own lock, the queues apart.
 */
final class Inbox implements JobWatch.ExecutorListener, SparkInternals.Questions {
    private static final int MOST_AT_ONCE = 1000;

    private static Inbox current;

    private final Map<String, Peer> hellos = new HashMap<>();
    private final Map<String, Integer> cores = new HashMap<>();
    private final LinkedHashMap<String, Peer> ready = new LinkedHashMap<>();
    private final Set<String> gone = new HashSet<>();
    private final Map<String, Run> runs = new HashMap<>();

    /** A run that Python has opened, and has not closed. */
    private static final class Run {
        final LinkedBlockingQueue<byte[]> events = new LinkedBlockingQueue<>();
        /** A file of /proc that the Python driver keeps open: the path ends with that process. */
        final Path owner;
        /** Who serves the exchanges that its agents ask for; null: nobody yet. */
        ExchangeServer server;

        Run(Path owner) {
            this.owner = owner;
        }
    }

    /** Begins anew, for a new SparkContext. */
    static synchronized Inbox open() {
        current = new Inbox();
        return current;
    }

    static synchronized Inbox current() {
        if (current == null) {
            throw new IllegalStateException(
                    "no session with mpca's plug-in: add org.mpca.bridge.MpcaPlugin to spark.plugins");
        }
        return current;
    }

    /** Opens the queue of a run; the executors that are here already are its first events. */
    synchronized void subscribe(String run, Path owner) {
        if (runs.putIfAbsent(run, new Run(owner)) != null) {
            throw new IllegalArgumentException("a run of this name is open in this session: run=" + run);
        }
        ready.keySet().forEach(executor -> post(run, readyEvent(executor)));
    }

    /** Questions of the run's executors go there from now on. */
    synchronized void serve(String run, ExchangeServer server) {
        runs.get(run).server = server;
    }

    synchronized void unsubscribe(String run) {
        runs.remove(run);
    }

    @Override
    public synchronized void asked(String run, byte[] question, Consumer<byte[]> reply) {
        ExchangeServer server = server(run);
        if (server == null) {
            reply.accept(ExchangeServer.refusal("the run is over", false));
        } else {
            server.asked(question, reply);
        }
    }

    @Override
    public synchronized void told(String run, byte[] word) {
        ExchangeServer server = server(run);
        if (server != null) {
            server.told(word);
        }
    }

    private ExchangeServer server(String run) {
        Run open = runs.get(run);
        return open == null ? null : open.server;
    }

    void post(String run, Event event) {
        post(run, event.pack());
    }

    /** Enqueues a packed event; those of a run that is over are dropped. */
    synchronized void post(String run, byte[] event) {
        Run open = runs.get(run);
        if (open != null) {
            open.events.add(event);
        }
    }

    /** The events of a run, oldest first; waits for the first. */
    List<byte[]> poll(String run, long timeoutMs) throws InterruptedException {
        Run open;
        synchronized (this) {
            open = runs.get(run);
        }
        List<byte[]> events = new ArrayList<>();
        byte[] first = open == null ? null : open.events.poll(timeoutMs, TimeUnit.MILLISECONDS);
        if (first != null) {
            events.add(first);
            open.events.drainTo(events, MOST_AT_ONCE - 1);
        }
        return events;
    }

    /** Whether the Python driver of a run has died, and could not end it. */
    synchronized boolean abandoned() {
        return runs.values().stream().anyMatch(open -> !Files.exists(open.owner));
    }

    /** Executors that are ready now. */
    synchronized Map<String, Peer> executors() {
        return new LinkedHashMap<>(ready);
    }

    synchronized void hello(Peer peer) {
        hellos.put(peer.executor, peer);
        readyIfComplete(peer.executor);
    }

    @Override
    public synchronized void added(String executor, String host, int count) {
        cores.put(executor, count);
        readyIfComplete(executor);
    }

    @Override
    public synchronized void removed(String executor, String reason) {
        gone.add(executor);
        hellos.remove(executor);
        cores.remove(executor);
        if (ready.remove(executor) != null) {
            runs.values().stream().filter(open -> open.server != null).forEach(open -> open.server.lost(executor));
            postToAll(Event.executorLost(executor, reason));
        }
    }

    private void readyIfComplete(String executor) {
        // A hello may come after the loss, on another way; ids are never used again.
        if (!gone.contains(executor)
                && hellos.containsKey(executor)
                && cores.containsKey(executor)
                && ready.put(executor, hellos.get(executor)) == null) {
            postToAll(readyEvent(executor));
        }
    }

    private Event readyEvent(String executor) {
        return Event.executorReady(executor, ready.get(executor).host, cores.get(executor));
    }

    private void postToAll(Event event) {
        runs.keySet().forEach(run -> post(run, event));
    }
}
