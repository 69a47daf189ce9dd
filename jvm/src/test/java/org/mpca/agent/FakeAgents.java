package org.mpca.agent;

import static org.junit.jupiter.api.Assertions.fail;

import java.io.File;
import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.mpca.wire.Msgpack;

/**
 * A registry with real child processes, {@code fake_agent.py}. Closing it checks that nothing is left: no child, no
 * thread.
 */
final class FakeAgents {
    static final String RUN = "test";
    static final int SHARD_BYTES = 40;

    final AgentRegistry registry = new AgentRegistry();
    final RecordedEvents events = new RecordedEvents();
    private final Set<String> threadsBefore = threads();
    private final boolean forked;

    FakeAgents() {
        this(false);
    }

    /** `forked`: by a parent. */
    FakeAgents(boolean forked) {
        this.forked = forked;
    }

    void start(int agent, int incarnation, String... flags) {
        registry.start(spec(agent, incarnation, flags), events);
    }

    /** Started, attached and training. Returns the pid. */
    int train(int agent, int incarnation, String... flags) throws InterruptedException {
        start(agent, incarnation, flags);
        String hello = events.await("hello " + agent + "/" + incarnation);
        registry.begin(RUN, agent, incarnation);
        return Integer.parseInt(hello.replaceAll(".*pid=", ""));
    }

    LaunchSpec spec(int agent, int incarnation, String... flags) {
        List<String> command = new ArrayList<>(Arrays.asList("python3", script(), "" + agent, "" + incarnation));
        command.addAll(Arrays.asList(flags));
        List<String> parent = new ArrayList<>();
        if (forked) {
            parent.addAll(command); // so each agent has a parent of its own, and the flags reach both
            parent.add(1, resource("/fake_parent.py"));
        }
        byte[] start = Msgpack.pack(Arrays.asList(1, Collections.emptyMap()));
        return new LaunchSpec(
                RUN,
                agent,
                incarnation,
                command,
                parent,
                Collections.singletonMap("OMP_NUM_THREADS", "1"),
                start,
                null);
    }

    private static String script() {
        return resource("/fake_agent.py");
    }

    private static String resource(String name) {
        try {
            return new File(FakeAgents.class.getResource(name).toURI()).getPath();
        } catch (URISyntaxException e) {
            throw new AssertionError(e);
        }
    }

    static YieldKey key(int cycle, int shard, int agent, int incarnation) {
        return new YieldKey(RUN, 0, cycle, shard, agent, incarnation);
    }

    YieldContext yield(int cycle, int shard, int agent) {
        return registry.yield(key(cycle, shard, agent, 0));
    }

    /** A deadline that no healthy agent misses. */
    static long soon() {
        return System.nanoTime() + 20_000_000_000L;
    }

    static void signal(String name, int pid) throws IOException, InterruptedException {
        new ProcessBuilder("sh", "-c", "kill -" + name + " " + pid)
                .inheritIO()
                .start()
                .waitFor();
    }

    /** Ended; whether its new parent, when its own is dead, has asked for its exit code yet is not our affair. */
    static boolean gone(int pid) {
        try {
            String stat = new String(Files.readAllBytes(new File("/proc/" + pid + "/stat").toPath()));
            return stat.charAt(stat.lastIndexOf(')') + 2) == 'Z';
        } catch (IOException e) {
            return true;
        }
    }

    static void waitUntil(String what, BooleanSupplier condition) throws InterruptedException {
        long by = System.nanoTime() + 10_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() - by > 0) {
                fail("never came true: " + what);
            }
            Thread.sleep(10);
        }
    }

    private static Set<String> threads() {
        return Thread.getAllStackTraces().keySet().stream()
                .map(Thread::getName)
                .filter(name -> name.startsWith("mpca-"))
                .filter(name -> !name.equals("mpca-spawner"))
                .collect(Collectors.toCollection(TreeSet::new));
    }

    private static List<String> children() {
        List<String> found = new ArrayList<>();
        File[] all = new File("/proc").listFiles((folder, name) -> name.matches("[0-9]+"));
        for (File one : all == null ? new File[0] : all) {
            try {
                String line = new String(Files.readAllBytes(new File(one, "cmdline").toPath()));
                if (line.contains(script())) {
                    found.add(one.getName() + " " + line.replace('\0', ' '));
                }
            } catch (IOException e) {
                // It ended while we looked.
            }
        }
        return found;
    }

    void close() throws InterruptedException {
        registry.shutdown();
        waitUntil("no fake agent is left", () -> children().isEmpty());
        waitUntil("no thread is left: " + threads(), () -> threads().equals(threadsBefore));
    }
}
