package org.mpca.agent;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;
import java.util.logging.Logger;
import org.mpca.wire.Late;

/**
 * The agents of this executor: where tasks start them, find them, and ask for their shards.
 *
 * <p>A door only. Decisions are {@link ExecutorState}'s, bytes are {@link SnapshotKeeper}'s (one a run), each process is
 * {@link AgentConductor}'s, and the files of their states are {@link StateFiles}'.
 *
 * <p>Concurrency: any thread may call anything; no call waits longer than it says.
 */
public final class AgentRegistry {
    private static final Logger LOG = Logger.getLogger("mpca.agent");

    private static AgentRegistry instance;

    private final Map<String, AgentConductor> agents = new ConcurrentHashMap<>();
    private final Map<String, SnapshotKeeper> keepers = new ConcurrentHashMap<>();
    private volatile FileReads files = url -> {
        throw new IOException("no client of the cluster's storage on this executor: url=" + url);
    };
    private final StateFiles states = new StateFiles();
    private final Parents parents = new Parents();
    /** Run, then agent and incarnation: the newest number it was asked to save, whether it was here or not. Guarded by this. */
    private final Map<String, Map<String, Integer>> saves = new HashMap<>();

    private volatile boolean closed;

    public AgentRegistry() {}

    /** The one of this executor's JVM; a new one after {@link #shutdown}. */
    public static synchronized AgentRegistry get() {
        if (instance == null || instance.closed) {
            instance = new AgentRegistry();
        }
        return instance;
    }

    /** Who reads files for agents that are started from now on. */
    public void readFiles(FileReads reads) {
        files = reads;
    }

    /** Who writes the states of agents to files from now on. */
    public void writeFiles(FileWrites writes) {
        states.writeTo(writes);
    }

    /**
     * Starts the process and returns at once; what comes of it, a failed start included, comes as events. An agent that
     * lives already in this incarnation is only bound to {@code events}; one that lives in an older one is killed.
     */
    public synchronized void start(LaunchSpec spec, AgentEvents events) {
        if (closed) {
            throw new IllegalStateException("registry is shut down: run=" + spec.run + ", agent=" + spec.agent);
        }
        agents.values().removeIf(one -> !one.alive());
        for (AgentConductor other : agents.values()) {
            if (other.spec.run.equals(spec.run) && other.spec.agent == spec.agent) {
                if (other.spec.incarnation == spec.incarnation) {
                    other.rebind(events);
                    return;
                }
                LOG.warning(
                        "older incarnation is killed: agent=" + spec.agent + " incarnation=" + other.spec.incarnation);
                other.kill(true);
            }
        }
        SnapshotKeeper keeper = keepers.computeIfAbsent(spec.run, SnapshotKeeper::new);
        AgentConductor conductor = new AgentConductor(spec, events, keeper, files, states, parents);
        agents.put(name(spec.run, spec.agent, spec.incarnation), conductor);
        conductor.start();
    }

    /** Waits until the process is gone and all that it had to say was reported. True as well when it was never here. */
    public boolean awaitEnd(String run, int agent, int incarnation, long millis) throws InterruptedException {
        AgentConductor conductor = find(run, agent, incarnation);
        return conductor == null || conductor.awaitEnd(millis);
    }

    public boolean alive(String run, int agent, int incarnation) {
        AgentConductor conductor = find(run, agent, incarnation);
        return conductor != null && conductor.alive();
    }

    /** For rediscovery. */
    public List<AgentStatus> living(String run) {
        List<AgentStatus> living = new ArrayList<>();
        for (AgentConductor one : agents.values()) {
            if (one.spec.run.equals(run) && one.alive()) {
                living.add(one.status());
            }
        }
        return living;
    }

    /** Idempotent at the agent. An agent that is not here needs none. */
    public void begin(String run, int agent, int incarnation) {
        AgentConductor conductor = find(run, agent, incarnation);
        if (conductor != null) {
            conductor.begin();
        }
    }

    /** Passes on who reads the data; an agent that is not here reads nothing. */
    public void tellReaders(String run, int agent, int incarnation, int version, Map<?, ?> readers) {
        AgentConductor conductor = find(run, agent, incarnation);
        if (conductor != null) {
            conductor.tellReaders(version, readers);
        }
    }

    /** Idempotent. An agent that is not here is started with the new number. */
    public void cut(String run, int agent, int incarnation, int shards) {
        AgentConductor conductor = find(run, agent, incarnation);
        if (conductor != null) {
            conductor.cut(shards);
        }
    }

    public void stop(String run, int agent, int incarnation, String reason) {
        AgentConductor conductor = find(run, agent, incarnation);
        if (conductor != null) {
            conductor.stop(reason);
        }
    }

    /**
     * Has an agent copy what is its own, and writes that to a file, in the background. Idempotent: numbers rise, and one that is
     * not new does nothing. Each new one is reported once, whatever becomes of it.
     *
     * @param events who hears that there is no such agent; what becomes of the file is reported as all of the agent is
     */
    public void saveState(String run, int agent, int incarnation, int number, String url, AgentEvents events) {
        if (!isNew(run, agent, incarnation, number)) {
            return;
        }
        AgentConductor conductor = find(run, agent, incarnation);
        if (conductor != null) {
            conductor.saveState(number, url);
        } else {
            events.saved(agent, incarnation, number, 0, "", 0.0, StateFiles.NOT_THERE);
        }
    }

    private synchronized boolean isNew(String run, int agent, int incarnation, int number) {
        Map<String, Integer> newest = saves.computeIfAbsent(run, key -> new HashMap<>());
        String name = agent + "/" + incarnation;
        if (number <= newest.getOrDefault(name, 0)) {
            return false;
        }
        newest.put(name, number);
        return true;
    }

    /** Interrupts no agent. Gives the same object for the same key until its cycle is forgotten. */
    public YieldContext yield(YieldKey key) {
        SnapshotKeeper keeper = keepers.get(key.run);
        if (keeper == null) {
            return new YieldContext(this, key); // no agent of this run was ever here: freezing it says so
        }
        return keeper.yields.computeIfAbsent(key, made -> {
            keeper.made(made);
            return new YieldContext(this, made);
        });
    }

    /**
     * Freezes the yields of several agents at once: they are interrupted side by side, and one that is late throws nothing.
     *
     * @param keys of one (run, term, cycle, shard), one an agent
     * @param deadlineNanos of System.nanoTime; what is not frozen then is closed for good, with the reason in {@link Freezing#late}
     */
    public Freezing freeze(List<YieldKey> keys, long deadlineNanos) throws InterruptedException {
        checkAlike(keys);
        YieldKey first = keys.get(0);
        SnapshotKeeper keeper = keepers.get(first.run);
        if (keeper == null) {
            return SnapshotKeeper.noneOf(keys, Late.NO_SUCH_INCARNATION);
        }
        for (YieldKey key : keys) {
            this.yield(key).touch();
        }
        CompletableFuture<Freezing> answer = keeper.freeze(keys);
        try {
            return answer.get(Math.max(0, deadlineNanos - System.nanoTime()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException late) {
            keeper.deadline(first.term, first.cycle);
            return settled(answer, "freeze of " + first);
        } catch (ExecutionException e) {
            throw new IllegalStateException("freeze failed: " + first, e);
        }
    }

    /** Drops the yields of that cycle and of those before it. */
    public void forget(String run, int term, int cycle) {
        SnapshotKeeper keeper = keepers.get(run);
        if (keeper != null) {
            keeper.forget(term, cycle);
        }
    }

    /**
     * Hands a downloaded joint shard over.
     *
     * @return whether to acknowledge: it lies in the agent's slot or waits for it, or a newer one does. False: no such
     * agent
     */
    public boolean offer(String run, int agent, int incarnation, Arrival arrival) throws InterruptedException {
        SnapshotKeeper keeper = keepers.get(run);
        return keeper != null && settled(keeper.offer(agent, incarnation, arrival), "offer to agent " + agent);
    }

    /** Reports of all agents go to {@code events} from now on. */
    public void rebind(AgentEvents events) {
        agents.values().forEach(one -> one.rebind(events));
    }

    /** Yields of a run that were made and forgotten, and were never read. */
    public long unread(String run) {
        SnapshotKeeper keeper = keepers.get(run);
        return keeper == null ? 0 : keeper.unread.get();
    }

    /** Arrivals of a run that a newer one made useless before their agent took them. */
    public long superseded(String run) {
        SnapshotKeeper keeper = keepers.get(run);
        return keeper == null ? 0 : keeper.superseded.get();
    }

    /** Ends a run here: kills its agents, without reports, and ends its threads, within seconds. */
    public void close(String run) {
        closeAll(run::equals, closeBy());
    }

    /** Ends all runs and refuses new ones. All threads end but mpca-spawner. Safe to call twice. */
    public void shutdown() {
        synchronized (this) {
            closed = true; // whoever was inside start() has put its agent in by now
        }
        long by = closeBy();
        closeAll(run -> true, by);
        parents.shutdown();
        states.shutdown(millisUntil(by));
    }

    private static long closeBy() {
        return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TimeOuts.CLOSE_MS);
    }

    private void closeAll(Predicate<String> which, long by) {
        List<AgentConductor> ending = new ArrayList<>(agents.values());
        ending.removeIf(one -> !which.test(one.spec.run));
        ending.forEach(one -> one.kill(true));
        try {
            for (AgentConductor one : ending) {
                if (!one.awaitEnd(millisUntil(by))) {
                    LOG.warning(
                            "agent outlives its run: agent=" + one.spec.agent + " incarnation=" + one.spec.incarnation);
                }
            }
            for (String run : new ArrayList<>(keepers.keySet())) {
                if (which.test(run)) {
                    keepers.remove(run).close(millisUntil(by));
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        agents.values().removeAll(ending);
        states.end(which); // no agent hands anything over any more
        synchronized (this) {
            saves.keySet().removeIf(which);
        }
    }

    private static long millisUntil(long nanos) {
        return Math.max(1, TimeUnit.NANOSECONDS.toMillis(nanos - System.nanoTime()));
    }

    private AgentConductor find(String run, int agent, int incarnation) {
        return agents.get(name(run, agent, incarnation));
    }

    private static String name(String run, int agent, int incarnation) {
        return run + "/" + agent + "/" + incarnation;
    }

    private static void checkAlike(List<YieldKey> keys) {
        if (keys.isEmpty()) {
            throw new IllegalArgumentException("nothing to freeze");
        }
        YieldKey first = keys.get(0);
        HashSet<Integer> seen = new HashSet<>();
        for (YieldKey key : keys) {
            if (!key.run.equals(first.run)
                    || key.term != first.term
                    || key.cycle != first.cycle
                    || key.shard != first.shard
                    || !seen.add(key.agent)) {
                throw new IllegalArgumentException(
                        "yields of one freeze differ in more than their agent, or not even there: " + first + ", "
                                + key);
            }
        }
    }

    private static <T> T settled(CompletableFuture<T> answer, String what) throws InterruptedException {
        try {
            return answer.get(TimeOuts.KEEPER_MS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException e) {
            throw new IllegalStateException("the keeper does not answer: " + what, e);
        }
    }
}
