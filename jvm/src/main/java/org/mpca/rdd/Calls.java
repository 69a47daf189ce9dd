package org.mpca.rdd;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ExecutorService;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Calls of peers, of which some may block for as long as connecting does, in a few threads: a thousand peers are called at a
 * time, and each of those that are gone holds one thread up.
 *
 * <p>Calls of one peer are made one after the other, in the order in which they were added. So what is pushed to it over one
 * connection arrives in that order: were all shards of a model under way at once, the first would be there with the last.
 *
 * <p>Concurrency: safe from any thread.
 */
final class Calls {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    static final int MOST_THREADS = 32;

    private final ExecutorService threads;
    /** Calls that wait, by peer; also of one that is called and has none. Guarded by this object, as all below. */
    private final Map<String, Queue<Runnable>> waiting = new HashMap<>();
    /** Peers that no thread calls, and that have calls. */
    private final Queue<String> idle = new ArrayDeque<>();

    private int working;

    Calls(String name) {
        this.threads = Threads.pool(name);
    }

    void add(Peer peer, Runnable call) {
        synchronized (this) {
            if (!waiting.containsKey(peer.executor)) {
                waiting.put(peer.executor, new ArrayDeque<>());
                idle.add(peer.executor);
            }
            waiting.get(peer.executor).add(call);
            if (idle.isEmpty() || working == MOST_THREADS) {
                return;
            }
            working++;
        }
        threads.execute(this::work);
    }

    private void work() {
        for (String peer = nextPeer(); peer != null; peer = nextPeer()) {
            for (Runnable call = nextCall(peer); call != null; call = nextCall(peer)) {
                try {
                    call.run();
                } catch (Exception e) { // Scala's methods throw what they do not declare
                    LOG.error("a call of executor {} failed by our own error", peer, e);
                }
            }
        }
    }

    private synchronized String nextPeer() {
        String peer = idle.poll();
        if (peer == null) {
            working--;
        }
        return peer;
    }

    private synchronized Runnable nextCall(String peer) {
        Runnable call = waiting.get(peer).poll();
        if (call == null) {
            waiting.remove(peer);
        }
        return call;
    }
}
