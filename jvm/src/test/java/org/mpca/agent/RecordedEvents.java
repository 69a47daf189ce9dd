package org.mpca.agent;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Keeps what agents reported, as lines, and waits for them. Concurrency: a monitor; tests wait with a deadline. */
final class RecordedEvents implements AgentEvents {
    private static final long WAIT_MILLIS = 20_000;

    private final List<String> seen = new ArrayList<>();

    private synchronized void note(String line) {
        seen.add(line);
        notifyAll();
    }

    /** The first line that begins so; waits for it. */
    synchronized String await(String start) throws InterruptedException {
        return await(start, 1);
    }

    /** The line that is the n-th to begin so. */
    synchronized String await(String start, int n) throws InterruptedException {
        long by = System.nanoTime() + WAIT_MILLIS * 1_000_000;
        while (true) {
            List<String> found = all(start);
            if (found.size() >= n) {
                return found.get(n - 1);
            }
            long left = (by - System.nanoTime()) / 1_000_000;
            if (left <= 0) {
                return fail("no event begins with \"" + start + "\"; there were: " + all(""));
            }
            wait(left);
        }
    }

    synchronized List<String> all(String start) {
        return seen.stream().filter(line -> line.startsWith(start)).collect(Collectors.toList());
    }

    @Override
    public void hello(Map<String, Object> hello) {
        note("hello " + hello.get("agent") + "/" + hello.get("incarnation") + " pid=" + hello.get("pid"));
    }

    @Override
    public void died(int agent, int incarnation, int pid, int exitCode, String tail) {
        note("died " + agent + "/" + incarnation + " exit=" + exitCode + " pid=" + pid + " tail=" + tail);
    }

    @Override
    public void failed(int agent, int incarnation, String error, String traceback) {
        note("failed " + agent + "/" + incarnation + " " + error + " " + traceback);
    }

    @Override
    public void finished(int agent, int incarnation, byte[] returns) {
        note("finished " + agent + "/" + incarnation + " " + new String(returns, StandardCharsets.UTF_8));
    }

    @Override
    public void progress(int agent, int incarnation, Map<String, Object> progress) {
        note("progress " + agent + "/" + incarnation + " steps=" + progress.get("steps"));
    }

    @Override
    public void output(int agent, int incarnation, List<String> lines) {
        for (String line : lines) {
            note("output " + agent + "/" + incarnation + " " + line);
        }
    }

    @Override
    public void back(int agent, int incarnation) {
        note("back " + agent + "/" + incarnation);
    }

    @Override
    public void asks(int agent, int incarnation, Sent sent) {
        note("asks " + agent + "/" + incarnation + " number=" + sent.number + " shard=" + sent.shard + " updates="
                + sent.updates + " version=" + sent.version + " bytes=" + sent.data.length);
    }

    @Override
    public void saved(int agent, int incarnation, int number, long bytes, String sha256, double seconds, String error) {
        assertTrue(seconds >= 0 && seconds < 60, "seconds=" + seconds);
        note("saved " + agent + "/" + incarnation + " number=" + number + " bytes=" + bytes + " sha256=" + sha256
                + " error=" + error);
    }

    @Override
    public void ended(int agent, int incarnation) {
        note("ended " + agent + "/" + incarnation);
    }
}
