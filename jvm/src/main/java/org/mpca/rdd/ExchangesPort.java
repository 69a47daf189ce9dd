package org.mpca.rdd;

import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import org.apache.spark.rpc.RpcEndpointRef;
import org.mpca.agent.AgentRegistry;
import org.mpca.agent.Arrival;
import org.mpca.agent.TimeOuts;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * {@link Exchanges} in production: blocks, Spark's RPC, the registry, and one thread, mpca-exchanges, that begins with the first
 * exchange and goes after a minute of idleness.
 */
final class ExchangesPort implements Exchanges.Port {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");

    private final ScheduledThreadPoolExecutor thread =
            new ScheduledThreadPoolExecutor(1, work -> Threads.daemon("mpca-exchanges", work));
    private final Sweeper sweeper;
    private final DriverClock clock;
    /** Looked up once; owned by the thread. */
    private RpcEndpointRef driver;

    ExchangesPort(Sweeper sweeper, DriverClock clock) {
        this.sweeper = sweeper;
        this.clock = clock;
        thread.setKeepAliveTime(1, TimeUnit.MINUTES);
        thread.allowCoreThreadTimeOut(true);
    }

    @Override
    public void execute(Runnable command) {
        later(0, command);
    }

    @Override
    public void later(long millis, Runnable command) {
        thread.schedule(
                () -> {
                    try {
                        command.run();
                    } catch (RuntimeException e) {
                        LOG.error("exchanges go on after our own error", e);
                    }
                },
                millis,
                TimeUnit.MILLISECONDS);
    }

    @Override
    public void put(String stem, byte[] data) {
        Pieces.put(stem, data, data.length);
    }

    @Override
    public void remove(String stem, int length) {
        sweeper.remove(Pieces.names(stem, length));
    }

    @Override
    public void ask(String run, byte[] question, BiConsumer<byte[], Throwable> done) {
        try {
            SparkInternals.ask(driver(), run, question, TimeOuts.ANSWER_MS, done);
        } catch (Exception e) { // Scala's methods throw what they do not declare
            done.accept(null, e);
        }
    }

    @Override
    public void tell(String run, byte[] word) {
        try {
            SparkInternals.tell(driver(), run, word);
        } catch (Exception e) {
            // The driver is gone or going: the executor will follow, and its agents with it.
            LOG.warn("a word could not be sent: run={} cause={}", run, e.toString());
        }
    }

    @Override
    public void fetch(Peer from, String stem, int length, BiConsumer<byte[], Throwable> done) {
        Pieces.fetch(from, stem, length, () -> {}, done);
    }

    @Override
    public boolean offer(String run, int agent, int incarnation, Arrival arrival) {
        try {
            return AgentRegistry.get().offer(run, agent, incarnation, arrival);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while an agent is offered an answer", e);
        }
    }

    @Override
    public double onDriver(double seconds) {
        return clock.fromSecondsHere(seconds);
    }

    private RpcEndpointRef driver() {
        if (driver == null) {
            driver = SparkInternals.driver();
        }
        return driver;
    }
}
