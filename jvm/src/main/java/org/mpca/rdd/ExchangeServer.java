package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.mpca.agent.TimeOuts;
import org.mpca.wire.Event;
import org.mpca.wire.Msgpack;
import org.mpca.wire.ProtocolException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The driver's side of the exchanges that agents of one run ask for: takes the questions, fetches what was sent, keeps it
 * until Python takes it, and holds the answers until they were fetched. The {@link ServerQueue} decides; {@link Exchanges}
 * is the other end.
 *
 * <p>Concurrency: the queue belongs to one thread, mpca-server, which begins with the first question and never waits in the
 * network; others add commands. {@link #takeSent} and {@link #answer} are called by the Python driver's threads.
 */
public final class ExchangeServer implements ServerQueue.Performer {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static final ExecutorService FETCHERS = Threads.pool("mpca-fetch-sent");
    private static final long LOOK_MS = 500;

    /** A question as it came. */
    private static final class Question {
        final String block;
        final Map<String, Object> fields;
        final Consumer<byte[]> reply;

        Question(Map<String, Object> fields, Consumer<byte[]> reply) {
            this.block = (String) fields.remove("block");
            this.fields = fields;
            this.reply = reply;
        }

        int length() {
            return ((Number) fields.get("length")).intValue();
        }
    }

    /** An answer: the reply that tells of it, and the bytes until they are blocks. */
    private static final class Answer {
        final byte[] reply;
        final int length;
        byte[] data;

        Answer(byte[] reply, byte[] data) {
            this.reply = reply;
            this.length = data.length;
            this.data = data;
        }
    }

    private final String run;
    private final BlockNames names;
    private final Sweeper sweeper;
    private final RunDriver.Executors executors;
    private final Uplink events;
    private final LinkedBlockingQueue<Runnable> commands = new LinkedBlockingQueue<>();
    private final ServerQueue queue = new ServerQueue();
    /** What was fetched and not taken, by the stem of the answer's blocks. Concurrent. */
    private final Map<String, byte[]> sent = new ConcurrentHashMap<>();
    /** By the stem of its blocks. */
    private final Map<String, Answer> answers = new HashMap<>();

    private ServerQueue.Entry fetching;
    /** When the next piece is due, of System.nanoTime. */
    private long fetchBy;

    private Thread worker;
    private boolean closed;

    ExchangeServer(String run, BlockNames names, Sweeper sweeper, RunDriver.Executors executors, Uplink events) {
        this.run = run;
        this.names = names;
        this.sweeper = sweeper;
        this.executors = executors;
        this.events = events;
    }

    // ---- called by other threads
    // ------------------------------------------------------------------------------------------

    /** An executor asks; packed by {@link Exchanges}. */
    public void asked(byte[] packed, Consumer<byte[]> reply) {
        double now = RunDriver.now();
        begin();
        commands.add(() -> {
            Question question = new Question(unpack(packed), reply);
            perform(queue.asked(new ServerQueue.Entry(
                    (String) question.fields.get("executor"),
                    number(question.fields, "agent"),
                    number(question.fields, "incarnation"),
                    number(question.fields, "number"),
                    now,
                    question)));
        });
    }

    /** A word of an executor that needs no reply. */
    public void told(byte[] packed) {
        commands.add(() -> {
            Map<String, Object> word = unpack(packed);
            int agent = number(word, "agent");
            int incarnation = number(word, "incarnation");
            perform(
                    word.get("word").equals("done")
                            ? queue.done(agent, incarnation, number(word, "number"))
                            : queue.ended(agent, incarnation));
        });
    }

    public void lost(String executor) {
        commands.add(() -> perform(queue.lost(executor)));
    }

    /** Writes what an agent sent into the channel, from its start on, and frees it. */
    void takeSent(int agent, int incarnation, int number, int length, FileChannel to) throws IOException {
        byte[] data = sent.remove(names.answer(agent, incarnation, number));
        if (data == null || data.length != length) {
            throw new IllegalStateException("no such exchange is here: agent=" + agent + ", incarnation=" + incarnation
                    + ", number=" + number + ", bytes=" + length + (data == null ? "" : ", has=" + data.length));
        }
        Channels.write(to, 0, ByteBuffer.wrap(data));
    }

    /** Answers an exchange with a vector, which must not change afterwards. Nothing happens if its agent is gone. */
    void answer(int agent, int incarnation, int number, byte[] data, long version, String mode, double share) {
        String name = names.answer(agent, incarnation, number);
        Peer self = SparkInternals.self();
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("block", name);
        reply.put("host", self.host);
        reply.put("port", self.port);
        reply.put("length", data.length);
        reply.put("version", version);
        reply.put("mode", mode);
        reply.put("share", share);
        Answer answer = new Answer(Msgpack.pack(reply), data);
        commands.add(() -> {
            sent.remove(name); // it may be answered without a look at it
            List<ServerQueue.Instruction> out = queue.answered(agent, incarnation, number);
            if (!out.isEmpty()) {
                answers.put(name, answer);
                perform(out);
            }
        });
    }

    /** Ends the thread; afterwards no block of the run is stored here. */
    void close(long millis) throws InterruptedException {
        commands.add(() -> {
            perform(queue.close());
            closed = true;
        });
        Thread server = thread();
        if (server != null) {
            server.join(millis);
        }
    }

    private synchronized Thread thread() {
        return worker;
    }

    private synchronized void begin() {
        if (worker == null) {
            worker = Threads.daemon("mpca-server", this::work);
            worker.start();
        }
    }

    // ---- the server's thread
    // ----------------------------------------------------------------------------------------------

    private void work() {
        while (!closed) {
            try {
                Runnable command = commands.poll(LOOK_MS, TimeUnit.MILLISECONDS);
                if (command != null) {
                    command.run();
                }
                if (fetching != null && System.nanoTime() - fetchBy > 0) {
                    failed(fetching, new IOException("it did not come in time"));
                }
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                LOG.error("the server of " + run + " goes on after our own error", e);
            }
        }
    }

    private void perform(List<ServerQueue.Instruction> instructions) {
        for (ServerQueue.Instruction instruction : instructions) {
            instruction.perform(this);
        }
    }

    @Override
    public void fetch(ServerQueue.Entry entry) {
        Question question = (Question) entry.question;
        fetching = entry;
        came(entry);
        Peer peer = executors.now().get(entry.executor);
        if (peer == null) {
            commands.add(() -> failed(entry, new IOException("executor " + entry.executor + " is gone")));
            return;
        }
        FETCHERS.execute(() -> Pieces.fetch( // connecting may wait
                peer,
                question.block,
                question.length(),
                () -> commands.add(() -> came(entry)),
                (data, failure) ->
                        commands.add(failure == null ? () -> fetched(entry, data) : () -> failed(entry, failure))));
    }

    private void came(ServerQueue.Entry entry) {
        if (entry == fetching) {
            fetchBy = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TimeOuts.SENT_MS);
        }
    }

    private void fetched(ServerQueue.Entry entry, byte[] data) {
        if (entry == fetching) {
            fetching = null;
            List<ServerQueue.Instruction> out = queue.fetched(entry);
            if (entry.state() == ServerQueue.State.HERE) { // nobody has forgotten it meanwhile
                sent.put(name(entry), data);
            }
            perform(out);
        }
    }

    private void failed(ServerQueue.Entry entry, Throwable cause) {
        if (entry == fetching) {
            fetching = null;
            if (cause instanceof CheckedBlocks.Damaged) {
                events.send(run, Event.executorDamages(entry.executor, cause.getMessage()));
            }
            perform(queue.failed(entry, cause.toString()));
        }
    }

    @Override
    public void arrived(ServerQueue.Entry entry) {
        Question question = (Question) entry.question;
        events.send(run, Event.exchangeArrived(question.fields, entry.asked, RunDriver.now()));
    }

    @Override
    public void reply(ServerQueue.Entry entry) {
        Answer answer = answers.get(name(entry));
        if (answer.data != null) {
            Pieces.put(name(entry), answer.data, answer.length);
            answer.data = null;
        }
        say(entry, answer.reply);
    }

    @Override
    public void refuse(ServerQueue.Entry entry, String reason, boolean again) {
        LOG.info(
                "exchange is not served: run={} agent={} incarnation={} number={} again={} cause={}",
                run,
                entry.agent,
                entry.incarnation,
                entry.number,
                again,
                reason);
        say(entry, refusal(reason, again));
    }

    @Override
    public void free(ServerQueue.Entry entry) {
        sent.remove(name(entry));
        Answer answer = answers.remove(name(entry));
        if (answer != null) {
            sweeper.remove(Pieces.names(name(entry), answer.length));
        }
    }

    /** The reply to a question that is not served. */
    public static byte[] refusal(String reason, boolean again) {
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("refused", reason);
        reply.put("again", again);
        return Msgpack.pack(reply);
    }

    private static void say(ServerQueue.Entry entry, byte[] reply) {
        try {
            ((Question) entry.question).reply.accept(reply);
        } catch (Exception e) { // Scala's methods throw what they do not declare
            LOG.warn("a reply could not be sent: executor={} cause={}", entry.executor, e.toString());
        }
    }

    private String name(ServerQueue.Entry entry) {
        return names.answer(entry.agent, entry.incarnation, entry.number);
    }

    private static int number(Map<String, Object> fields, String name) {
        return ((Number) fields.get(name)).intValue();
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> unpack(byte[] packed) {
        try {
            return new LinkedHashMap<>((Map<String, Object>) Msgpack.unpack(packed));
        } catch (ProtocolException e) {
            throw new IllegalArgumentException("not a word of an executor of ours", e);
        }
    }
}
