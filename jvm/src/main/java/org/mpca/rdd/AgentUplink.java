package org.mpca.rdd;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.mpca.agent.AgentEvents;
import org.mpca.agent.Sent;
import org.mpca.wire.Event;

/**
 * What the agents of one run report, turned into events for the driver; what they ask goes to {@link Exchanges}. Printed lines are gathered for a moment, since
 * an agent may print thousands a second; everything else goes at once, after the lines printed before it.
 *
 * <p>Called from the threads of the agents and of their files; one thread, "mpca-output", sends what was gathered. The gathered lines are
 * guarded by this object's lock, which is never held while sending; {@code sending} is, so that nothing overtakes lines
 * that another thread has taken and not sent yet.
 */
final class AgentUplink implements AgentEvents {
    private static final long GATHER_MS = 100;
    /** Lines of one agent between two sendings; what is beyond is counted and dropped. */
    private static final int MAX_LINES = 1000;

    private final String run;
    private final String executor;
    private final String host;
    private final Uplink uplink;
    private final Exchanges exchanges;
    private final Map<List<Integer>, Lines> gathered = new LinkedHashMap<>();
    private final Object sending = new Object();
    private boolean sleeping;

    AgentUplink(String run, String executor, String host, Uplink uplink, Exchanges exchanges) {
        this.run = run;
        this.executor = executor;
        this.host = host;
        this.uplink = uplink;
        this.exchanges = exchanges;
    }

    @Override
    public void hello(Map<String, Object> hello) {
        send(Event.agentHello(executor, host, hello));
    }

    @Override
    public void died(int agent, int incarnation, int pid, int exitCode, String tail) {
        send(Event.agentDied(executor, agent, incarnation, pid, exitCode, tail));
    }

    @Override
    public void failed(int agent, int incarnation, String error, String traceback) {
        send(Event.agentFailed(executor, host, agent, incarnation, error, traceback));
    }

    @Override
    public void finished(int agent, int incarnation, byte[] returns) {
        send(Event.agentFinished(executor, agent, incarnation, returns));
    }

    @Override
    public void progress(int agent, int incarnation, Map<String, Object> progress) {
        uplink.send(run, Event.agentProgress(agent, incarnation, progress));
    }

    @Override
    public void back(int agent, int incarnation) {
        send(Event.agentBack(executor, agent, incarnation));
    }

    @Override
    public void asks(int agent, int incarnation, Sent sent) {
        exchanges.asks(run, agent, incarnation, sent);
    }

    @Override
    public void saved(int agent, int incarnation, int number, long bytes, String sha256, double seconds, String error) {
        send(Event.agentSaved(executor, agent, incarnation, number, bytes, sha256, seconds, error));
    }

    @Override
    public void ended(int agent, int incarnation) {
        exchanges.ended(run, agent, incarnation);
    }

    @Override
    public void output(int agent, int incarnation, List<String> lines) {
        List<Integer> who = new ArrayList<>(2);
        who.add(agent);
        who.add(incarnation);
        synchronized (this) {
            gathered.computeIfAbsent(who, key -> new Lines()).add(lines);
            if (sleeping) {
                return;
            }
            sleeping = true;
        }
        Threads.daemon("mpca-output", this::sendGathered).start();
    }

    /** Waits a moment for more lines, sends all, and ends: an agent that prints nothing costs no thread. */
    private void sendGathered() {
        try {
            Thread.sleep(GATHER_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        flush();
    }

    private void send(Event event) {
        flush();
        uplink.send(run, event);
    }

    private void flush() {
        synchronized (sending) {
            sendAll();
        }
    }

    private void sendAll() {
        Map<List<Integer>, Lines> taken;
        synchronized (this) {
            taken = new LinkedHashMap<>(gathered);
            gathered.clear();
            sleeping = false;
        }
        taken.forEach((who, lines) -> uplink.send(run, Event.output(who.get(0), who.get(1), lines.all())));
    }

    private static final class Lines {
        private final List<String> kept = new ArrayList<>();
        private int dropped;

        void add(List<String> more) {
            for (String line : more) {
                if (kept.size() < MAX_LINES) {
                    kept.add(line);
                } else {
                    dropped++;
                }
            }
        }

        List<String> all() {
            if (dropped > 0) {
                kept.add("... " + dropped + " more lines, too many to show");
            }
            return kept;
        }
    }
}
