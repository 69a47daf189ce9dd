package org.mpca.wire;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What the JVM tells the driver: the kind is the name of a class in {@code mpca/driver/events.py}, and the fields are that
 * class's, where they are explained. An event travels as a msgpack map. Times are seconds of the driver's monotonic clock.
 *
 * <p>Concurrency: filled by its maker, then immutable.
 */
public final class Event {
    public final String kind;
    private final Map<String, Object> fields = new LinkedHashMap<>();

    private Event(String kind) {
        this.kind = kind;
        fields.put("kind", kind);
    }

    private Event with(String name, Object value) {
        fields.put(name, value);
        return this;
    }

    private Event ofAgent(int agent, int incarnation) {
        return with("agent", agent).with("incarnation", incarnation);
    }

    public byte[] pack() {
        return Msgpack.pack(fields);
    }

    /** The value of a field; null if the event has no such field. */
    public Object get(String name) {
        return fields.get(name);
    }

    public static Event executorReady(String executor, String host, int cores) {
        return new Event("ExecutorReady")
                .with("executor", executor)
                .with("host", host)
                .with("cores", cores);
    }

    public static Event executorLost(String executor, String reason) {
        return new Event("ExecutorLost").with("executor", executor).with("reason", reason);
    }

    /** {@code hello} has the fields of the agent's own message. */
    public static Event agentHello(String executor, String host, Map<String, Object> hello) {
        return new Event("AgentHello")
                .with("executor", executor)
                .with("host", host)
                .with("hello", hello);
    }

    public static Event agentDied(String executor, int agent, int incarnation, int pid, int exitCode, String tail) {
        return new Event("AgentDied")
                .with("executor", executor)
                .ofAgent(agent, incarnation)
                .with("pid", pid)
                .with("exit_code", exitCode)
                .with("tail", tail);
    }

    public static Event agentFailed(
            String executor, String host, int agent, int incarnation, String error, String traceback) {
        return new Event("AgentFailedEvent")
                .with("executor", executor)
                .with("host", host)
                .ofAgent(agent, incarnation)
                .with("error", error)
                .with("traceback", traceback);
    }

    public static Event agentFinished(String executor, int agent, int incarnation, byte[] returns) {
        return new Event("AgentFinished")
                .with("executor", executor)
                .ofAgent(agent, incarnation)
                .with("returns", returns);
    }

    /** {@code progress} has the fields of the agent's own message, and what its executor read for it. */
    public static Event agentProgress(int agent, int incarnation, Map<String, Object> progress) {
        Event event = new Event("AgentProgress").ofAgent(agent, incarnation);
        event.fields.putAll(progress);
        return event;
    }

    public static Event agentBack(String executor, int agent, int incarnation) {
        return new Event("AgentBack").with("executor", executor).ofAgent(agent, incarnation);
    }

    public static Event output(int agent, int incarnation, List<String> lines) {
        return new Event("Output").ofAgent(agent, incarnation).with("lines", lines);
    }

    public static Event acknowledged(
            long broadcast,
            String executor,
            Order.AgentRef agent,
            double start,
            double end,
            long bytesIn,
            long fromDriver) {
        return new Event("Acknowledged")
                .with("broadcast", broadcast)
                .with("executor", executor)
                .ofAgent(agent.agent, agent.incarnation)
                .with("start", start)
                .with("end", end)
                .with("bytes_in", bytesIn)
                .with("from_driver", fromDriver);
    }

    /** {@code answers} are packed {@link Answer}s. */
    public static Event orderDone(int order, List<byte[]> answers, double start, double end, long driverIn) {
        return new Event("OrderDone")
                .with("order", order)
                .with("answers", answers)
                .with("start", start)
                .with("end", end)
                .with("driver_in", driverIn);
    }

    /** {@code executor} is null if it is not known to which one the failed task was pinned. */
    public static Event orderFailed(
            int order, String executor, String reason, List<String> unfinished, boolean damages) {
        return new Event("OrderFailed")
                .with("order", order)
                .with("executor", executor)
                .with("reason", reason)
                .with("unfinished", unfinished)
                .with("damages", damages);
    }

    public static Event executorDamages(String executor, String reason) {
        return new Event("ExecutorDamages").with("executor", executor).with("reason", reason);
    }

    /** {@code question} has the rest of the event's fields, as the agent's executor asked. */
    public static Event exchangeArrived(Map<String, Object> question, double asked, double arrived) {
        Event event = new Event("ExchangeArrived");
        event.fields.putAll(question);
        return event.with("asked", asked).with("arrived", arrived);
    }

    /** {@code error} is empty when the file is there. */
    public static Event agentSaved(
            String executor,
            int agent,
            int incarnation,
            int number,
            long bytes,
            String sha256,
            double seconds,
            String error) {
        return new Event("AgentSaved")
                .with("executor", executor)
                .ofAgent(agent, incarnation)
                .with("number", number)
                .with("bytes", bytes)
                .with("sha256", sha256)
                .with("seconds", seconds)
                .with("error", error);
    }

    public static Event holdEnded(int agent, int incarnation, String reason) {
        return new Event("HoldEnded").ofAgent(agent, incarnation).with("reason", reason);
    }

    /** {@code agents} are made by {@link #living}. */
    public static Event agentsFound(String executor, List<?> agents) {
        return new Event("AgentsFound").with("executor", executor).with("agents", agents);
    }

    /** A living agent, for {@link #agentsFound}. */
    public static Map<String, Object> living(int agent, int incarnation, int pid) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("agent", agent);
        row.put("incarnation", incarnation);
        row.put("pid", pid);
        return row;
    }
}
