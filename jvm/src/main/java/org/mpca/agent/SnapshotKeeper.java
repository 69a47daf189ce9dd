package org.mpca.agent;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.mpca.agent.ExecutorState.Instruction;
import org.mpca.agent.ExecutorState.Taken;
import org.mpca.reduce.SpareArrays;
import org.mpca.wire.Late;

/**
 * Keeps one run's {@link ExecutorState} and the bytes that its entries stand for: feeds it events, carries its
 * instructions out.
 *
 * <p>A later attempt of the driver (a higher term) counts cycles from the start again. Its first yield drops all yields of the
 * attempt before; a yield of an earlier attempt is refused.
 *
 * <p>Concurrency: state and bytes belong to the thread mpca-snapshots; all methods but the yields' map are commands to it,
 * which return at once. It never waits for anybody.
 */
final class SnapshotKeeper implements Runnable, ExecutorState.Performer {
    private static final Logger LOG = Logger.getLogger("mpca.agent");

    /** Yields by key; made on any thread, frozen and dropped on this one. */
    final Map<YieldKey, YieldContext> yields = new ConcurrentHashMap<>();
    /** Totals, for reports. */
    final AtomicLong unread = new AtomicLong();

    final AtomicLong superseded = new AtomicLong();

    /** For snapshots. Shards are of two lengths where elements do not divide evenly: one of each, and one that comes back late. */
    final SpareArrays spare = new SpareArrays(3);

    private final String run;
    private final Thread thread;
    private final LinkedBlockingQueue<Runnable> commands = new LinkedBlockingQueue<>();
    private volatile boolean closed;

    private final ExecutorState executor = new ExecutorState();
    private int term = Integer.MIN_VALUE;
    private final Map<Integer, AgentConductor> conductors = new HashMap<>();
    private final Map<Long, CompletableFuture<Freezing>> tickets = new HashMap<>();
    private long lastTicket;

    SnapshotKeeper(String run) {
        this.run = run;
        this.thread = new Thread(this, "mpca-snapshots");
        thread.setDaemon(true);
        thread.start();
    }

    /** The answer when nothing can be frozen. */
    static Freezing noneOf(List<YieldKey> keys, Late reason) {
        Map<Integer, Late> late = new HashMap<>();
        keys.forEach(key -> late.put(key.agent, reason));
        return new Freezing(Collections.emptyMap(), late);
    }

    // ---- called by other threads ----

    void made(YieldKey key) {
        commands.add(() -> {
            if (enter(key.term)) {
                perform(executor.made(key.cycle, key.shard, key.agent, key.incarnation));
            }
        });
    }

    /** Keys of one (term, cycle, shard). */
    CompletableFuture<Freezing> freeze(List<YieldKey> keys) {
        CompletableFuture<Freezing> answer = new CompletableFuture<>();
        commands.add(() -> {
            YieldKey first = keys.get(0);
            if (!enter(first.term)) {
                answer.complete(noneOf(keys, Late.OLDER_DRIVER));
                return;
            }
            long ticket = ++lastTicket;
            tickets.put(ticket, answer);
            List<int[]> agents = new ArrayList<>();
            keys.forEach(key -> agents.add(new int[] {key.agent, key.incarnation}));
            perform(executor.freeze(ticket, first.cycle, first.shard, agents));
        });
        return answer;
    }

    void deadline(int ofTerm, int cycle) {
        commands.add(() -> {
            if (ofTerm == term) {
                perform(executor.deadline(cycle));
            }
        });
    }

    void forget(int ofTerm, int cycle) {
        commands.add(() -> {
            if (enter(ofTerm)) {
                perform(executor.forget(cycle));
            }
        });
    }

    void up(AgentConductor agent) {
        commands.add(() -> {
            perform(executor.agentUp(agent.spec.agent, agent.spec.incarnation));
            if (executor.lives(agent.spec.agent, agent.spec.incarnation)) {
                conductors.put(agent.spec.agent, agent);
            }
        });
    }

    void gone(AgentConductor agent) {
        commands.add(() -> {
            perform(executor.agentGone(agent.spec.agent, agent.spec.incarnation));
            conductors.remove(agent.spec.agent, agent);
        });
    }

    void snapshot(AgentConductor agent, int cycle, int shard, FrozenYield state) {
        commands.add(() -> {
            LaunchSpec spec = agent.spec;
            List<Instruction> instructions =
                    executor.snapshot(spec.agent, spec.incarnation, cycle, shard, state.tau, state.crc, state.finite);
            boolean used = false;
            if (executor.isFrozen(cycle, spec.agent, spec.incarnation)) {
                YieldContext context = yields.get(key(cycle, shard, spec.agent, spec.incarnation));
                if (context != null && !context.frozen()) {
                    context.freezeAs(state); // before the answer goes out
                    used = true;
                }
            }
            if (!used) {
                state.kept.release();
            }
            perform(instructions);
        });
    }

    /** Completes with whether to acknowledge. */
    CompletableFuture<Boolean> offer(int agent, int incarnation, Arrival arrival) {
        CompletableFuture<Boolean> taken = new CompletableFuture<>();
        commands.add(() -> {
            List<Instruction> instructions = executor.offer(agent, incarnation, arrival);
            perform(instructions);
            taken.complete(!instructions.isEmpty()); // whatever is taken is acknowledged
        });
        return taken;
    }

    void installed(AgentConductor agent, int shard, long version) {
        commands.add(() -> perform(executor.installed(agent.spec.agent, agent.spec.incarnation, shard, version)));
    }

    /** Ends the thread. What was still asked is given up. */
    void close(long millis) throws InterruptedException {
        commands.add(() -> closed = true);
        thread.join(millis);
    }

    // ---- the keeper's thread ----

    @Override
    public void run() {
        while (!closed) {
            try {
                commands.take().run();
            } catch (InterruptedException | RuntimeException e) {
                LOG.log(Level.SEVERE, "keeper of " + run + " goes on after our own error", e);
            }
        }
        yields.clear();
        tickets.values().forEach(one -> one.completeExceptionally(new CancellationException("run is closed: " + run)));
    }

    private boolean enter(int of) {
        if (of > term) {
            perform(executor.forget(Integer.MAX_VALUE));
            yields.keySet().removeIf(key -> key.term < of);
            term = of;
        }
        return of == term;
    }

    private void perform(List<Instruction> instructions) {
        for (Instruction instruction : instructions) {
            instruction.perform(this);
        }
    }

    private YieldKey key(int cycle, int shard, int agent, int incarnation) {
        return new YieldKey(run, term, cycle, shard, agent, incarnation);
    }

    @Override
    public void interrupt(int agent, int cycle, int shard) {
        conductors.get(agent).interrupt(cycle, shard);
    }

    @Override
    public void answer(long ticket, int cycle, int shard, List<Taken> frozen, Map<Integer, Late> late) {
        Map<Integer, FrozenYield> states = new HashMap<>();
        Map<Integer, Late> reasons = new HashMap<>(late);
        for (Taken one : frozen) {
            YieldContext context = yields.get(key(cycle, shard, one.agent, one.incarnation));
            if (context != null) {
                states.put(one.agent, context.state());
            } else {
                reasons.put(one.agent, Late.FORGOTTEN);
            }
        }
        tickets.remove(ticket).complete(new Freezing(states, reasons));
    }

    @Override
    public void back(int agent, int incarnation) {
        conductors.get(agent).reportBack();
    }

    @Override
    public void discard(int agent, int cycle, int shard) {
        LOG.info("late snapshot dropped: agent=" + agent + " cycle=" + cycle + " shard=" + shard);
    }

    @Override
    public void write(int agent, Arrival arrival) {
        conductors.get(agent).write(arrival);
    }

    @Override
    public void supersede(int agent, int shard, long version) {
        superseded.incrementAndGet();
    }

    @Override
    public void acknowledge(int agent, int shard, long version) {
        // Whoever offered is told by the future, and tells the driver.
    }

    @Override
    public void drop(int cycle, int number) {
        unread.addAndGet(number);
        yields.values().removeIf(context -> {
            boolean gone = context.key().cycle == cycle && context.key().term == term;
            if (gone) {
                context.forget();
            }
            return gone;
        });
    }
}
