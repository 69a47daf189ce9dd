package org.mpca.rdd;

import java.io.File;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** What of any run lies in this JVM: blocks, and how many threads and descriptors the JVM has. Looks, changes nothing. */
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
        return found;
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
