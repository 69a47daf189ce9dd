package org.mpca.rdd;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.function.BiConsumer;
import org.mpca.agent.Arrival;
import org.mpca.agent.Sent;
import org.mpca.agent.TimeOuts;
import org.mpca.reduce.KeptArray;
import org.mpca.wire.Msgpack;
import org.mpca.wire.ProtocolException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The executor's side of the exchanges that its agents ask for: keeps what an agent sent as {@link Pieces}, asks the driver in
 * words, fetches the answer and hands it over. {@link ExchangeServer} is the other end.
 *
 * <p>A question waits for its turn at the driver, for as long as that takes; no thread waits for it. It is repeated when no
 * answer came for {@link TimeOuts#ANSWER_MS}, and soon after anything failed. It is given up when the agent has ended or has
 * asked anew.
 *
 * <p>Concurrency: state belongs to one thread, that of the port; agents' and network threads only add commands. What is kept by
 * run is concurrent.
 */
final class Exchanges {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");

    /** The world outside. {@code execute} runs commands one after the other, in the thread that owns the state. */
    interface Port extends Executor {
        /** Runs a command after so long. */
        void later(long millis, Runnable command);

        void put(String stem, byte[] data);

        void remove(String stem, int length);

        /** {@code done} gets the reply or the failure, in any thread. */
        void ask(String run, byte[] question, BiConsumer<byte[], Throwable> done);

        void tell(String run, byte[] word);

        /** {@code done} gets all bytes or the failure, in any thread. */
        void fetch(Peer from, String stem, int length, BiConsumer<byte[], Throwable> done);

        /** Whether there is such an agent. */
        boolean offer(String run, int agent, int incarnation, Arrival arrival);

        /** A time of this machine's monotonic clock, as one of the driver's. */
        double onDriver(double seconds);
    }

    /** An exchange that is not over. */
    private static final class Open {
        final String run;
        final int agent;
        final int incarnation;
        final Sent sent;
        final String block;

        Open(String run, int agent, int incarnation, Sent sent, String block) {
            this.run = run;
            this.agent = agent;
            this.incarnation = incarnation;
            this.sent = sent;
            this.block = block;
        }

        String key() {
            return Exchanges.key(run, agent, incarnation);
        }
    }

    private final String executor;
    private final Port port;
    /** By run. */
    private final Map<String, Integer> terms = new ConcurrentHashMap<>();
    /** Runs whose agents have asked: others cost no thread. */
    private final Set<String> asking = ConcurrentHashMap.newKeySet();

    private final Map<String, Open> open = new HashMap<>();

    Exchanges(String executor, Port port) {
        this.executor = executor;
        this.port = port;
    }

    // ---- called by other threads
    // ------------------------------------------------------------------------------------------

    /** An order has come from this attempt of the driver. No agent asks before. */
    void enter(String run, int term) {
        terms.merge(run, term, Math::max);
    }

    void asks(String run, int agent, int incarnation, Sent sent) {
        String block = new BlockNames(run, terms.getOrDefault(run, 0)).sent(agent, incarnation, sent.number);
        asking.add(run);
        port.execute(() -> {
            Open one = new Open(run, agent, incarnation, sent, block);
            close(open.get(one.key()));
            port.put(block, sent.data);
            open.put(one.key(), one);
            ask(one);
        });
    }

    /** The process is gone. */
    void ended(String run, int agent, int incarnation) {
        if (!asking.contains(run)) {
            return;
        }
        port.execute(() -> {
            Open one = open.get(key(run, agent, incarnation));
            if (one != null) {
                close(one);
                port.tell(run, word("ended", one));
            }
        });
    }

    /** Forgets a run. When the answer is complete, no more blocks of the run are stored; the caller removes them by prefix. */
    CompletableFuture<Void> endRun(String run) {
        terms.remove(run);
        return asking.remove(run)
                ? CompletableFuture.runAsync(() -> open.values().removeIf(one -> one.run.equals(run)), port)
                : CompletableFuture.completedFuture(null);
    }

    // ---- the thread of the port
    // -------------------------------------------------------------------------------------------

    private void ask(Open one) {
        if (open.get(one.key()) != one) {
            return;
        }
        Map<String, Object> question = new LinkedHashMap<>();
        question.put("block", one.block);
        question.put("executor", executor);
        question.put("agent", one.agent);
        question.put("incarnation", one.incarnation);
        question.put("number", one.sent.number);
        question.put("shard", one.sent.shard);
        question.put("updates", one.sent.updates);
        question.put("version", one.sent.version);
        question.put("length", one.sent.data.length);
        question.put("crc", one.sent.crc);
        question.put("finite", one.sent.finite);
        question.put("start", port.onDriver(one.sent.start));
        port.ask(one.run, Msgpack.pack(question), (reply, failure) -> port.execute(() -> replied(one, reply, failure)));
    }

    private void replied(Open one, byte[] packed, Throwable failure) {
        if (open.get(one.key()) != one) {
            return;
        }
        if (failure != null) {
            again(one, failure.toString());
            return;
        }
        Map<?, ?> reply = unpack(packed);
        if (!reply.containsKey("refused")) {
            fetch(one, reply);
        } else if ((Boolean) reply.get("again")) {
            again(one, (String) reply.get("refused"));
        } else {
            LOG.info(
                    "exchange is given up: agent={} number={} cause={}",
                    one.agent,
                    one.sent.number,
                    reply.get("refused"));
            close(one);
        }
    }

    private void fetch(Open one, Map<?, ?> reply) {
        Peer driver = new Peer("driver", (String) reply.get("host"), ((Number) reply.get("port")).intValue());
        port.fetch(
                driver,
                (String) reply.get("block"),
                ((Number) reply.get("length")).intValue(),
                (data, failure) -> port.execute(() -> fetched(one, reply, data, failure)));
    }

    private void fetched(Open one, Map<?, ?> reply, byte[] data, Throwable failure) {
        if (open.get(one.key()) != one) {
            return;
        }
        if (failure != null) {
            again(one, failure.toString());
            return;
        }
        long version = ((Number) reply.get("version")).longValue();
        double share = ((Number) reply.get("share")).doubleValue();
        close(one);
        port.tell(one.run, word("done", one));
        port.offer(
                one.run,
                one.agent,
                one.incarnation,
                new Arrival(one.sent.shard, version, (String) reply.get("mode"), share, KeptArray.of(data), true));
    }

    private void again(Open one, String cause) {
        LOG.warn("exchange is asked for again: agent={} number={} cause={}", one.agent, one.sent.number, cause);
        port.later(TimeOuts.DOWNLOAD_AGAIN_MS, () -> ask(one));
    }

    private void close(Open one) {
        if (one != null) {
            open.remove(one.key());
            port.remove(one.block, one.sent.data.length);
        }
    }

    private static byte[] word(String word, Open one) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("word", word);
        fields.put("agent", one.agent);
        fields.put("incarnation", one.incarnation);
        fields.put("number", one.sent.number);
        return Msgpack.pack(fields);
    }

    private static Map<?, ?> unpack(byte[] packed) {
        try {
            return (Map<?, ?>) Msgpack.unpack(packed);
        } catch (ProtocolException e) {
            throw new IllegalStateException("the driver's reply cannot be read", e);
        }
    }

    private static String key(String run, int agent, int incarnation) {
        return run + "/" + agent + "/" + incarnation;
    }
}
