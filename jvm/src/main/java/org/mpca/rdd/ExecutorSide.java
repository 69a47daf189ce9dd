package org.mpca.rdd;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.mpca.agent.AgentEvents;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.FileReads;
import org.mpca.agent.FileWrites;
import org.mpca.wire.Event;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What one executor's JVM holds beside its agents: frozen parts, downloads, the sweeper and the way up. Tasks come and
 * go; this stays. One per JVM, made when the plug-in starts.
 */
public final class ExecutorSide {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static volatile ExecutorSide instance;

    final Sweeper sweeper = new Sweeper();
    final DriverClock clock = new DriverClock();
    final PartStore parts = new PartStore(sweeper);
    final PushedParts pushed = new PushedParts();
    final KeptSums sums = new KeptSums(sweeper);
    final Pace pace = new Pace();
    final Downloader downloader;
    final Exchanges exchanges;

    /** Addresses of the GPUs that Spark gave this executor, with commas between them; empty: none. */
    final String devices;

    /** For agents that stream from the cluster's storage. */
    final FileReads reads;
    /** For the states of agents. */
    final FileWrites writes;

    private final Uplink uplink;
    private final Peer self;
    private final Map<String, AgentUplink> uplinks = new ConcurrentHashMap<>();
    /** By run, of the newest attempt. */
    private final Map<String, Coding> codings = new ConcurrentHashMap<>();

    ExecutorSide(Peer self, Uplink uplink, String devices) {
        this.self = self;
        this.devices = devices;
        this.uplink = uplink;
        HadoopClients clients = new HadoopClients(SparkInternals::hadoop);
        this.reads = new HadoopReads(clients);
        this.writes = new HadoopWrites(clients);
        this.downloader = new Downloader(self.executor, uplink, sweeper, clock, this::coding);
        this.exchanges = new Exchanges(self.executor, new ExchangesPort(sweeper, clock));
    }

    /** Called once by the plug-in, before any task. */
    public static void start(Peer self, Uplink uplink, String devices) {
        ExecutorSide side = new ExecutorSide(self, uplink, devices);
        SparkInternals.take(side::pushed);
        instance = side;
    }

    private Uploads.Sink pushed(String stream) {
        PushName name = PushName.of(stream);
        if (name == null) {
            return null;
        }
        if (pushed.isOver(name.run)) {
            return Uploads.NOWHERE;
        }
        return name.isPart() ? pushed.begin(name) : downloader.begin(name);
    }

    /** The driver has said what its clock showed between these two moments; all are of System.nanoTime. */
    public static void driverAnswered(long sentNanos, long driverNanos, long receivedNanos) {
        get().clock.answered(sentNanos, driverNanos, receivedNanos);
    }

    static ExecutorSide get() {
        ExecutorSide side = instance;
        if (side == null) {
            throw new IllegalStateException(
                    "the executor's plug-in has not started: is org.mpca.bridge.MpcaPlugin in spark.plugins?");
        }
        return side;
    }

    /** What there is for the codec of an attempt of a run. An attempt that a newer one has replaced finds nothing. */
    Coding coding(String run, int term) {
        Coding newest = codings.compute(run, (name, held) -> {
            if (held != null && held.term >= term) {
                return held;
            }
            if (held != null) {
                held.clear();
            }
            return new Coding(term);
        });
        return newest.term == term ? newest : new Coding(term);
    }

    /** Where the agents of a run report. */
    AgentEvents events(String run) {
        return uplinks.computeIfAbsent(run, name -> new AgentUplink(name, self.executor, self.host, uplink, exchanges));
    }

    /** Tells the driver that an executor damages what it sends, where no order fails by it. */
    void tellDamage(String run, String executor, String what) {
        uplink.send(run, Event.executorDamages(executor, what));
    }

    Peer self() {
        return self;
    }

    /** Ends a run on this executor: kills its agents, drops all it stored, and waits a little for the sweeper. */
    void endRun(String run, long millis) throws InterruptedException {
        Future<?> downloadsEnd = downloader.endRun(run);
        AgentRegistry.get().close(run);
        Future<?> exchangesEnd = exchanges.endRun(run); // no agent of the run asks any more
        parts.endRun(run);
        pushed.endRun(run);
        sums.endRun(run);
        pace.endRun(run);
        try {
            downloadsEnd.get(millis, TimeUnit.MILLISECONDS);
            exchangesEnd.get(millis, TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException e) {
            LOG.warn("downloads or exchanges of the run do not end: run={} cause={}", run, e.toString());
        }
        Coding coding = codings.remove(run); // a download that was ending has made its base one of the run's
        if (coding != null) {
            coding.clear();
        }
        String prefix = BlockNames.ofRun(run);
        sweeper.removeLater(() -> SparkInternals.matching(prefix));
        sweeper.drain(millis);
        uplinks.remove(run);
    }
}
