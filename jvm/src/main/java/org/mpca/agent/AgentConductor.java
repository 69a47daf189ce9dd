package org.mpca.agent;

import java.io.IOException;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.mpca.shm.AgentSegment;
import org.mpca.wire.Fields;
import org.mpca.wire.FrameReader;
import org.mpca.wire.FrameWriter;
import org.mpca.wire.Message;
import org.mpca.wire.ProtocolException;

/**
 * Conducts one agent from the start of its process to its end: writes its messages, reads and dispatches what it says,
 * moves bytes in and out of its segment, and reports.
 *
 * <pre>
 *   STARTING &lt;-Cut, Hello-&gt; ATTACHED --Finished, Failed--&gt; ENDING --process gone--&gt; ENDED
 *       +-----------------Finished, Failed-----------------^
 *   any of them --process gone--&gt; ENDED, and died is reported unless ENDING
 * </pre>
 *
 * Finished and Failed are reported when the process is gone and all that it printed was passed on, or after a second: the
 * driver may stop listening after the last agent's. A SnapshotRequest may be sent before Begin. A Cut makes the agent say Hello
 * anew, with another segment; one that owes an answer by then is killed. An agent that breaks the
 * protocol is killed. What it had sent before its end is handled before the keeper hears that it is gone, so a snapshot that
 * was handed over counts. So does a state: its memory is open here, and is written to its file whatever becomes of the agent.
 * Each save is reported once; one that the agent leaves unanswered, with an error.
 *
 * <p>Concurrency: all state belongs to the thread mpca-agent-N; others add commands to its queue, and to the table of saves. It
 * must not be interrupted: that would close the segment. mpca-agent-N-frames only reads frames into the queue, and
 * {@link FilePipe} has a thread of its own.
 */
final class AgentConductor implements Runnable {
    private static final Logger LOG = Logger.getLogger("mpca.agent");
    /** How soon a death is noticed that no end of stream tells, since forked data workers hold the pipe too. */
    private static final long LOOK_MILLIS = 50;

    private enum State {
        STARTING,
        ATTACHED,
        ENDING,
        ENDED
    }

    /** May throw what makes the agent unusable. */
    private interface Command {
        void run() throws IOException;
    }

    final LaunchSpec spec;
    private final SnapshotKeeper keeper;
    private final FileReads files;
    private final StateFiles states;
    private final Parents parents;
    private final String name;
    private final LinkedBlockingQueue<Command> commands = new LinkedBlockingQueue<>();
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile AgentEvents events;
    private volatile AgentProcess process;
    private volatile boolean attached;
    /** Set by a shutdown: this end is not reported. */
    private volatile boolean dismissed;
    /** Set by a kill: it need not be started any more. */
    private volatile boolean unwanted;
    /** Number and URL of each save until the agent has answered it. Who removes one sees to its report. */
    private final Map<Integer, String> saves = new ConcurrentHashMap<>();
    /** The process is gone, and commands may be performed no more. */
    private volatile boolean gone;

    private State state = State.STARTING;
    private FrameWriter writer;
    private AgentSegment segment;
    private FilePipe filePipe;
    /** As Hello told it. */
    private int pid;

    private boolean begun;
    private boolean streamEnded;
    private boolean stopping;
    /** When its process is ended, of System.nanoTime; null: it stays. */
    private Long leaveBy;
    /** The report of Finished or Failed, until it is sent; and when it is sent at the latest. */
    private Consumer<AgentEvents> lastWord;

    private long lastWordBy;
    private String fault = "";
    private int askedCycle;
    private int askedShard = -1;
    /** Number of its newest Exchange. */
    private int exchanges;
    /** Of the Exchange whose Install was not sent yet; -1: none. */
    private int askingShard = -1;
    /** An Exchange has taken the snapshot slot before the Snapshot in it was read: that is asked for again. */
    private boolean overtaken;
    /** The number of shards of the newest Cut; 0: there was none. */
    private int cutInto;
    /** Shards whose Install the agent has not answered. */
    private final BitSet installs = new BitSet();

    AgentConductor(
            LaunchSpec spec,
            AgentEvents events,
            SnapshotKeeper keeper,
            FileReads files,
            StateFiles states,
            Parents parents) {
        this.spec = spec;
        this.files = files;
        this.states = states;
        this.parents = parents;
        this.events = events;
        this.keeper = keeper;
        this.name = "mpca-agent-" + spec.agent;
    }

    void start() {
        Thread thread = new Thread(this, name);
        thread.setDaemon(true);
        thread.start();
    }

    // ---- called by other threads ----

    void rebind(AgentEvents newEvents) {
        events = newEvents;
    }

    boolean alive() {
        return ended.getCount() > 0;
    }

    boolean awaitEnd(long millis) throws InterruptedException {
        return ended.await(millis, TimeUnit.MILLISECONDS);
    }

    AgentStatus status() {
        AgentProcess child = process;
        return new AgentStatus(spec.agent, spec.incarnation, child == null ? 0 : child.pid(), attached);
    }

    void begin() {
        commands.add(() -> {
            begun = true;
            writer.write(Message.begin().pack());
        });
    }

    void tellReaders(int version, Map<?, ?> readers) {
        commands.add(() -> {
            if (state == State.ATTACHED) { // one that is leaving reads no more
                writer.write(Message.readersChanged(version, readers).pack());
            }
        });
    }

    void cut(int shards) {
        commands.add(() -> {
            if (state != State.ATTACHED || stopping || shards == cutInto) {
                return; // an order that was submitted again
            }
            if (askedShard >= 0) {
                throw new ProtocolException("cut while a snapshot is asked for: agent=" + spec.agent + ", shard="
                        + askedShard + " of cycle=" + askedCycle);
            }
            cutInto = shards;
            segment.close(); // its memory is free when the agent closes it too
            segment = null;
            attached = false;
            enter(State.STARTING, "Cut");
            writer.write(Message.cut(shards).pack());
        });
    }

    /** Numbers rise, and none comes twice. */
    void saveState(int number, String url) {
        saves.put(number, url);
        commands.add(() -> {
            if (state != State.ATTACHED) {
                giveUp(number, StateFiles.NOT_THERE);
            } else if (!begun) { // it would take this for a breach of the protocol
                giveUp(number, "the agent has not begun");
            } else {
                writer.write(Message.saveState(number).pack());
            }
        });
        if (gone) {
            giveUp(number, StateFiles.NOT_THERE);
        }
    }

    void stop(String reason) {
        commands.add(() -> {
            stopping = true;
            askingShard = -1; // it waits no more, and answers again
            writer.write(Message.stop(reason).pack());
        });
    }

    void interrupt(int cycle, int shard) {
        commands.add(() -> {
            askedCycle = cycle;
            askedShard = shard;
            writer.write(Message.snapshotRequest(cycle, shard).pack());
        });
    }

    void write(Arrival arrival) {
        commands.add(() -> {
            segment.writeArrival(arrival.shard, arrival.version, arrival.mode, arrival.data);
            arrival.kept.release();
            installs.set(arrival.shard);
            if (arrival.shard == askingShard) {
                askingShard = -1;
            }
            writer.write(Message.install(arrival.shard, arrival.version, arrival.mode, arrival.alpha)
                    .pack());
        });
    }

    void reportBack() {
        commands.add(() -> tell(to -> to.back(spec.agent, spec.incarnation)));
    }

    /** Ends the agent; {@code quietly}: without reporting a death. */
    void kill(boolean quietly) {
        dismissed |= quietly;
        unwanted = true;
        commands.add(this::leaveNow); // if the process is not even started yet
        AgentProcess child = process;
        if (child != null) {
            child.kill(); // at once: the conductor may be writing to a stopped agent
        }
    }

    // ---- the conductor's thread ----

    @Override
    public void run() {
        int exitCode = -1;
        try {
            exitCode = conduct();
        } catch (InterruptedException | RuntimeException e) {
            LOG.log(Level.SEVERE, name + " ends by our own error: " + spec.run, e);
            fault = e.toString();
        } finally {
            finish(exitCode);
        }
    }

    private int conduct() throws InterruptedException {
        try {
            process = new AgentProcess(
                    parents.launch(spec, () -> unwanted),
                    name,
                    lines -> tell(to -> to.output(spec.agent, spec.incarnation, lines)));
        } catch (IOException e) {
            fault = e.getMessage();
            return 127; // what a shell says when there is no such program
        }
        writer = new FrameWriter(process.toAgent());
        Thread reader = new Thread(this::readFrames, name + "-frames");
        reader.setDaemon(true);
        reader.start();
        perform(() -> writer.write(spec.startMessage)); // before whatever is in the queue by now
        while (process.isAlive() && (leaveBy == null || System.nanoTime() - leaveBy < 0)) {
            perform(commands.poll(LOOK_MILLIS, TimeUnit.MILLISECONDS));
            if (lastWord != null && System.nanoTime() - lastWordBy > 0) {
                tellLastWord();
            }
        }
        int exitCode = process.end(); // the group too: now the stream ends, whoever held it
        long drainBy = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TimeOuts.DRAIN_MS);
        while (!streamEnded && System.nanoTime() - drainBy < 0) {
            perform(commands.poll(LOOK_MILLIS, TimeUnit.MILLISECONDS));
        }
        return exitCode;
    }

    private void perform(Command command) throws InterruptedException {
        if (command == null) {
            return;
        }
        try {
            command.run();
        } catch (IOException | RuntimeException e) {
            // Writing to a process that just died fails before it is seen to be dead.
            // Its end is what counts, and the loop sees that.
            boolean dead = e instanceof IOException && process.endsWithin(TimeOuts.SEEN_DEAD_MS);
            if (!dead && process.isAlive() && state != State.ENDING) {
                LOG.log(Level.WARNING, name + " is killed: " + e.getMessage(), e);
                fault = e.getMessage();
                leaveNow();
            }
        }
    }

    private void readFrames() {
        FrameReader reader = new FrameReader(process.fromAgent());
        try {
            for (byte[] body = reader.read(); body != null; body = reader.read()) {
                byte[] frame = body;
                commands.add(() -> receive(Message.unpack(frame)));
            }
        } catch (IOException e) {
            commands.add(() -> {
                throw e;
            });
        }
        commands.add(() -> {
            streamEnded = true;
            if (leaveBy == null) {
                leaveBy = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TimeOuts.LEAVE_MS);
            }
        });
    }

    private void receive(Message message) throws IOException {
        Fields fields = message.fields;
        switch (message.kind) {
            case HELLO:
                expect(state == State.STARTING, message);
                hello(fields);
                break;
            case SNAPSHOT:
                expect(
                        state == State.ATTACHED
                                && askingShard < 0
                                && !overtaken
                                && askedShard == fields.integer("shard")
                                && askedCycle == fields.integer("cycle"),
                        message);
                snapshot(fields);
                break;
            case INSTALLED:
                expect(state == State.ATTACHED, message);
                installs.clear(fields.integer("shard"));
                keeper.installed(this, fields.integer("shard"), fields.number("version"));
                break;
            case EXCHANGE:
                expect(
                        state == State.ATTACHED && askingShard < 0 && fields.integer("number") == exchanges + 1,
                        message);
                exchange(fields);
                break;
            case PROGRESS:
                tell(to -> to.progress(spec.agent, spec.incarnation, withBytes(fields.asMap())));
                break;
            case FILES:
                expect(fields.integer("pid") == process.pid() || process.pid() == 0, message);
                filePipe = FilePipe.open(fields, files, name);
                break;
            case STATE_SAVED:
                expect(state != State.ENDING && saves.containsKey(fields.integer("number")), message);
                stateSaved(fields);
                break;
            case FINISHED:
                byte[] returns = fields.bytes("returns");
                leave(message, to -> to.finished(spec.agent, spec.incarnation, returns));
                break;
            case FAILED:
                String error = fields.text("error");
                String traceback = fields.text("traceback");
                leave(message, to -> to.failed(spec.agent, spec.incarnation, error, traceback));
                break;
            default:
                expect(false, message);
        }
    }

    /** What the agent cannot know: where the bytes came from that were read for it. */
    private Map<String, Object> withBytes(Map<String, Object> progress) {
        Map<String, Object> all = new LinkedHashMap<>(progress);
        all.put("data_read", filePipe == null ? 0 : filePipe.readBytes());
        all.put("data_remote", filePipe == null ? 0 : filePipe.remoteBytes());
        return all;
    }

    private void hello(Fields fields) throws IOException {
        pid = fields.integer("pid");
        if (fields.integer("agent") != spec.agent
                || fields.integer("incarnation") != spec.incarnation
                || (process.pid() != 0 && process.pid() != pid)) {
            throw new ProtocolException("Hello of somebody else: agent=" + fields.integer("agent") + ", incarnation="
                    + fields.integer("incarnation") + ", pid=" + pid + ", our child=" + process.pid());
        }
        segment = AgentSegment.open(
                pid,
                fields.integer("segment_fd"),
                fields.number("segment_bytes"),
                fields.numbers("slots"),
                fields.numbers("bounds"));
        enter(State.ATTACHED, "Hello");
        attached = true;
        keeper.up(this);
        tell(to -> to.hello(fields.asMap()));
    }

    private void snapshot(Fields fields) throws IOException {
        AgentSegment.Read read;
        try {
            read = segment.readSnapshot(askedShard, askedCycle, keeper.spare);
        } catch (ProtocolException e) {
            if (segment.snapshotVersion() != exchanges + 1) {
                throw e;
            }
            overtaken = true; // its Exchange follows
            return;
        }
        FrozenYield frozen = new FrozenYield(
                fields.integer("updates"),
                read.crc,
                read.finite,
                read.distance,
                fields.real("start"),
                fields.real("end"),
                read.data);
        keeper.snapshot(this, askedCycle, askedShard, frozen);
        askedShard = -1;
    }

    private void exchange(Fields fields) throws IOException {
        int shard = fields.integer("shard");
        AgentSegment.Read read = segment.readSnapshot(shard, exchanges + 1, keeper.spare);
        exchanges++;
        // An Install that is under way ends the exchange for the agent, which cannot know that it is no answer.
        askingShard = stopping || installs.get(shard) ? -1 : shard;
        Sent sent = new Sent(
                exchanges,
                shard,
                fields.integer("updates"),
                fields.number("version"),
                read.crc,
                read.finite,
                fields.real("start"),
                read.data.data); // for good: nobody says when the driver has it
        tell(to -> to.asks(spec.agent, spec.incarnation, sent));
        if (overtaken) {
            overtaken = false;
            writer.write(Message.snapshotRequest(askedCycle, askedShard).pack());
        }
    }

    private void stateSaved(Fields fields) throws IOException {
        int number = fields.integer("number");
        String error = fields.text("error");
        if (!error.isEmpty()) {
            giveUp(number, error);
            return;
        }
        states.write(
                spec.run,
                "/proc/" + pid + "/fd/" + fields.integer("fd"),
                fields.number("bytes"),
                fields.text("sha256"),
                saves.remove(number),
                (bytes, sha256, seconds, why) ->
                        tell(to -> to.saved(spec.agent, spec.incarnation, number, bytes, sha256, seconds, why)));
        writer.write(Message.stateTaken(number).pack());
    }

    /** Any thread. */
    private void giveUp(int number, String error) {
        if (saves.remove(number) != null) {
            tell(to -> to.saved(spec.agent, spec.incarnation, number, 0, "", 0.0, error));
        }
    }

    private void leave(Message message, Consumer<AgentEvents> report) throws ProtocolException {
        expect(state == State.STARTING || state == State.ATTACHED, message);
        saves.keySet().forEach(number -> giveUp(number, StateFiles.ENDED_FIRST)); // before its last word
        enter(State.ENDING, message.kind.name());
        leaveBy = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TimeOuts.LEAVE_MS);
        lastWord = report;
        lastWordBy = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TimeOuts.LAST_WORD_MS);
    }

    private void tellLastWord() {
        Consumer<AgentEvents> report = lastWord;
        lastWord = null;
        if (report != null) {
            tell(report);
        }
    }

    private void leaveNow() {
        leaveBy = System.nanoTime();
    }

    private void expect(boolean allowed, Message message) throws ProtocolException {
        if (!allowed) {
            throw new ProtocolException("message not allowed now: agent=" + spec.agent + ", message=" + message
                    + ", state=" + state + ", asked shard=" + askedShard + " of cycle=" + askedCycle
                    + ", asking shard=" + askingShard + " by exchange=" + exchanges + ", saves=" + saves.keySet());
        }
    }

    private void enter(State next, String reason) {
        LOG.fine(() -> "agent=" + spec.agent + " state " + state + " -> " + next + " reason=\"" + reason + "\"");
        state = next;
    }

    private void finish(int exitCode) {
        State last = state;
        enter(State.ENDED, "exit code " + exitCode);
        attached = false;
        gone = true;
        saves.keySet().forEach(number -> giveUp(number, StateFiles.ENDED_FIRST));
        keeper.gone(this);
        AgentProcess child = process;
        String tail = fault;
        if (child != null) {
            child.kill(); // dead by now, unless our own error brought us here
            awaitOutput(child);
            tellLastWord();
            tail = tailOf(child);
            child.close();
        }
        if (segment != null) {
            try {
                segment.close();
            } catch (IOException e) {
                LOG.log(Level.WARNING, name + ": segment does not close", e);
            }
        }
        tell(to -> to.ended(spec.agent, spec.incarnation));
        if (last != State.ENDING && !dismissed) {
            String lines = tail;
            int its = child == null ? 0 : child.pid();
            tell(to -> to.died(spec.agent, spec.incarnation, its, exitCode, lines));
        }
        ended.countDown();
    }

    private void awaitOutput(AgentProcess child) {
        long millis = lastWord == null ? 0 : TimeUnit.NANOSECONDS.toMillis(lastWordBy - System.nanoTime());
        try {
            child.awaitOutput(Math.max(millis, 1));
        } catch (InterruptedException e) {
            // The report is late as it is.
        }
    }

    private String tailOf(AgentProcess child) {
        try {
            String printed = child.tail();
            return fault.isEmpty() ? printed : printed.isEmpty() ? fault : printed + "\n" + fault;
        } catch (InterruptedException e) {
            return fault;
        }
    }

    /** A listener's error is its own. */
    private void tell(Consumer<AgentEvents> report) {
        try {
            report.accept(events);
        } catch (RuntimeException e) {
            LOG.log(Level.WARNING, name + ": a report failed", e);
        }
    }
}
