package org.mpca.rdd;

import com.sun.management.UnixOperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Whether this JVM may open as many connections as a run needs: two with each executor, one that it asked for and one that it was
 * asked for. The driver has one more with each, for sums. A JVM has raised its own limit to the hard one, which is
 * {@code ulimit -Hn} of who started it.
 *
 * <p>Concurrency: safe from any thread.
 */
final class Descriptors {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    /** Jars, files, and connections to all others: 350 were counted in a driver's JVM. */
    static final int OWN = 480;
    /** No run goes with less: in the JVMs of 4, 8 and 16 executors 288, 296 and 312 were open. */
    static final int LEAST_OWN = 272;

    private static final String REMEDY = "raise the hard limit where this JVM is started: `ulimit -Hn`, "
            + "/etc/security/limits.conf, or LimitNOFILE of the service that starts it (YARN's NodeManager)";
    private static final long EACH = 2;
    private static final long EACH_OF_DRIVER = 3;
    private static final AtomicInteger looked = new AtomicInteger();

    private Descriptors() {}

    /** Says once for each number of executors that is new and larger that this JVM's limit is too low for it. */
    static void check(int executors, boolean driver) {
        if (looked.getAndAccumulate(executors, Math::max) >= executors) {
            return;
        }
        long limit = limit();
        String lack = limit < 0 ? null : lack(executors, driver, limit);
        if (lack != null) {
            LOG.warn(lack);
        }
    }

    /** How many files this JVM may open; -1: the system does not say. */
    static long limit() {
        Object system = ManagementFactory.getOperatingSystemMXBean();
        return system instanceof UnixOperatingSystemMXBean
                ? ((UnixOperatingSystemMXBean) system).getMaxFileDescriptorCount()
                : -1;
    }

    /**
     * Refuses a run in which a connection is certain to fail: on the driver, before the first order goes out.
     *
     * @throws IllegalStateException names the JVM, its limit, what is needed, and the remedy
     */
    static void refuse(List<Peer> executors, Peer driver) {
        for (Peer one : executors) {
            refuse(one, executors.size(), LEAST_OWN + EACH * executors.size());
        }
        refuse(driver, executors.size(), LEAST_OWN + EACH_OF_DRIVER * executors.size());
    }

    private static void refuse(Peer one, int executors, long needed) {
        if (one.files >= 0 && one.files < needed) {
            String who = one.executor.equals(SparkInternals.DRIVER) ? "the driver at " + one.host : one.toString();
            throw new IllegalStateException("too few open files for " + executors + " executors: " + who + ", limit="
                    + one.files + ", needed=" + needed + "; " + REMEDY + ", or use fewer executors");
        }
    }

    /** What is wrong with this limit; null: nothing. */
    static String lack(int executors, boolean driver, long limit) {
        long needed = OWN + (driver ? EACH_OF_DRIVER : EACH) * executors;
        if (limit >= needed) {
            return null;
        }
        return "too few open files for " + executors + " executors: limit=" + limit + ", needed=" + needed
                + "; connections may fail: " + REMEDY;
    }
}
