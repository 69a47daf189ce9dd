package org.mpca.bridge;

import java.io.IOException;
import java.io.Serializable;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.resource.ResourceInformation;
import org.mpca.agent.AgentRegistry;
import org.mpca.rdd.ExecutorSide;
import org.mpca.rdd.JobWatch;
import org.mpca.rdd.Peer;
import org.mpca.rdd.RunDriver;
import org.mpca.rdd.SparkInternals;
import org.mpca.rdd.Uplink;
import org.mpca.wire.Event;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.util.Properties;

/**
 * What {@code spark.plugins} names. Its messages carry events from the executors to the driver, over Spark's own RPC
 * with its authentication; there is no way back, orders go down in the closures of tasks. Only an exchange that an agent asks for
 * is answered, by a reply to the executor's question. They are for control only: half a millisecond for a small one, a second for a
 * megabyte.
 */
public final class MpcaPlugin implements SparkPlugin {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");

    @Override
    public DriverPlugin driverPlugin() {
        checkScala();
        return new OnDriver();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new OnExecutor();
    }

    /** Refuses a Spark of another Scala than the jar's, whose name tells it: later it would fail somewhere, in other words. */
    private static void checkScala() {
        String jar = MpcaPlugin.class.getPackage().getImplementationTitle();
        String scala = Properties.versionNumberString();
        if (jar != null && !scala.startsWith(jar.substring(jar.indexOf('_') + 1) + ".")) {
            throw new IllegalStateException(jar + ".jar does not fit this Spark, which has Scala " + scala
                    + ": name the other jar that is beside it");
        }
    }

    /** An executor is there: it can be reached and answers. */
    private static final class Hello implements Serializable {
        private static final long serialVersionUID = 1;

        final Peer peer;

        Hello(Peer peer) {
            this.peer = peer;
        }
    }

    /** What does the driver's clock show? Answered with its System.nanoTime. */
    private static final class WhatTime implements Serializable {
        private static final long serialVersionUID = 1;
    }

    /** An event of a run, packed, so that the receiver need not look into it. */
    private static final class Packed implements Serializable {
        private static final long serialVersionUID = 1;

        final String run;
        final byte[] event;

        Packed(String run, byte[] event) {
            this.run = run;
            this.event = event;
        }
    }

    /** An executor's first word. */
    static Serializable hello(Peer peer) {
        return new Hello(peer);
    }

    /** A packed event of a run, as executors send it. */
    static Serializable packed(String run, byte[] event) {
        return new Packed(run, event);
    }

    /** Runs in one thread of Spark's for all executors: it enqueues and never works. */
    private static final class OnDriver implements DriverPlugin {
        /** Of a process that SIGKILL has ended, as the shell says it. */
        private static final int KILLED = 137;

        private Inbox inbox;
        private boolean container;

        @Override
        public Map<String, String> init(SparkContext context, PluginContext plugin) {
            inbox = Inbox.open();
            container = context.deployMode().equals("cluster");
            JobWatch.watch(context, inbox);
            SparkInternals.answer(inbox);
            return Collections.emptyMap();
        }

        /** Called when the driver's server of blocks is there, and before any executor can have connected to it. */
        @Override
        public void registerMetrics(String application, PluginContext plugin) {
            RunDriver.takeOver();
        }

        @Override
        public Object receive(Object message) {
            if (message instanceof WhatTime) {
                return System.nanoTime();
            }
            if (message instanceof Hello) {
                inbox.hello(((Hello) message).peer);
            } else if (message instanceof Packed) {
                inbox.post(((Packed) message).run, ((Packed) message).event);
            } else {
                LOG.warn(
                        "message of an unknown kind: class={}",
                        message.getClass().getName());
            }
            return null;
        }

        /**
         * Leaves a container whose Python was killed in mid-run as a killed JVM does, so that YARN decides alone whether there is
         * another attempt. Spark's application master would tell YARN that the application is over if it is attempt
         * spark.yarn.maxAppAttempts or a later one, although YARN forgets older failures
         * (spark.yarn.am.attemptFailuresValidityInterval): the fourth driver of a run of weeks would be the last.
         */
        @Override
        public void shutdown() {
            if (container && inbox.abandoned()) {
                LOG.error("the driver's Python was killed in mid-run: YARN decides whether another driver is started");
                Runtime.getRuntime().halt(KILLED);
            }
        }
    }

    /** Kills the agents when the executor stops; when it is killed they die by their parent-death signal. */
    private static final class OnExecutor implements ExecutorPlugin, Uplink {
        private static final int FIRST_QUESTIONS = 5;
        private static final long ASK_AGAIN_S = 60;

        private PluginContext plugin;
        private ScheduledExecutorService asking;

        @Override
        public void init(PluginContext context, Map<String, String> conf) {
            plugin = context;
            Peer self = SparkInternals.self();
            ResourceInformation gpus = context.resources().get("gpu");
            ExecutorSide.start(self, this, gpus == null ? "" : String.join(",", gpus.addresses()));
            try {
                for (int i = 0; i < FIRST_QUESTIONS; i++) { // the first one loads classes on both sides
                    askTime();
                }
                context.send(hello(self));
            } catch (Exception e) { // Scala's methods throw what they do not declare
                throw new IllegalStateException(
                        "the driver could not be told that executor " + self.executor + " is there", e);
            }
            asking = Executors.newSingleThreadScheduledExecutor(work -> {
                Thread thread = new Thread(work, "mpca-clock");
                thread.setDaemon(true);
                return thread;
            });
            asking.scheduleWithFixedDelay(this::askTimeAgain, ASK_AGAIN_S, ASK_AGAIN_S, TimeUnit.SECONDS);
        }

        private void askTime() throws Exception {
            long sent = System.nanoTime();
            long theirs = (Long) plugin.ask(new WhatTime());
            ExecutorSide.driverAnswered(sent, theirs, System.nanoTime());
        }

        private void askTimeAgain() {
            try {
                askTime();
            } catch (Exception e) {
                LOG.warn("the driver did not say the time; what it said before counts: cause={}", e.toString());
            }
        }

        @Override
        public void send(String run, Event event) {
            try {
                plugin.send(packed(run, event.pack()));
            } catch (IOException | RuntimeException e) {
                // The driver is gone or going: the executor will follow, and its agents with it.
                LOG.warn("event could not be sent: kind={} run={} cause={}", event.kind, run, e.toString());
            }
        }

        @Override
        public void shutdown() {
            if (asking != null) {
                asking.shutdownNow();
            }
            AgentRegistry.get().shutdown();
        }
    }
}
