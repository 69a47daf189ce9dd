package org.mpca.rdd;

import com.sun.management.ThreadMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** What of any run lies in this JVM: blocks, threads, descriptors, and bytes that its threads have allocated. Looks, changes nothing. */
final class Inventory {
    private Inventory() {}

    static Map<String, Object> of(String executor) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("executor", executor);
        found.put("blocks", new ArrayList<>(new TreeSet<>(SparkInternals.matching(BlockNames.ALL))));
        found.put("broadcasts", SparkInternals.broadcastBlocks());
        found.put("threads", threads());
        String[] descriptors = new File("/proc/self/fd").list();
        found.put("descriptors", descriptors == null ? 0 : descriptors.length);
        found.put("allocated", allocated());
        return found;
    }

    /** Bytes on the heap that the threads which live now have ever asked for. */
    private static long allocated() {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long sum = 0;
        for (long bytes : threads.getThreadAllocatedBytes(threads.getAllThreadIds())) {
            sum += Math.max(0, bytes); // -1: it has ended since
        }
        return sum;
    }

    /** Names of our own threads; Spark's come and go. */
    private static List<String> threads() {
        List<String> names = new ArrayList<>();
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("mpca-")) {
                names.add(thread.getName());
            }
        }
        java.util.Collections.sort(names);
        return names;
    }
}
