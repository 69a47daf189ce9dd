package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.mpca.wire.Event;

class AgentUplinkTest {
    private final LinkedBlockingQueue<Event> sent = new LinkedBlockingQueue<>();
    private final AgentUplink uplink = new AgentUplink("run", "7", "host", (run, event) -> sent.add(event), null);

    @Test
    void shouldSendLinesTogetherAfterAMoment() throws Exception {
        uplink.output(3, 1, Collections.singletonList("one"));
        uplink.output(3, 1, Arrays.asList("two", "three"));
        Event event = sent.poll(10, TimeUnit.SECONDS);
        assertEquals("Output", event.kind);
        assertEquals(Arrays.asList("one", "two", "three"), event.get("lines"));
        assertTrue(sent.isEmpty());
    }

    @Test
    void shouldSendWhatWasPrintedBeforeADeathBeforeIt() {
        uplink.output(3, 1, Collections.singletonList("last words"));
        uplink.died(3, 1, 42, 137, "last words");
        assertEquals("Output", sent.poll().kind);
        Event died = sent.poll();
        assertEquals("AgentDied", died.kind);
        assertEquals("7", died.get("executor"));
        assertEquals(137, died.get("exit_code"));
    }

    @Test
    void shouldSayWhatBecameOfAFileAfterWhatWasPrintedBefore() {
        uplink.output(3, 1, Collections.singletonList("printed"));
        uplink.saved(3, 1, 7, 1L << 33, "9f", 2.5, "");
        assertEquals("Output", sent.poll().kind);
        Event saved = sent.poll();
        assertEquals("AgentSaved", saved.kind);
        assertEquals("7 3 1", saved.get("executor") + " " + saved.get("agent") + " " + saved.get("incarnation"));
        assertEquals(
                "7 8589934592 9f 2.5 ",
                saved.get("number") + " " + saved.get("bytes") + " " + saved.get("sha256") + " " + saved.get("seconds")
                        + " " + saved.get("error"));
    }

    @Test
    void shouldNotLetALastWordOvertakeLinesThatAreBeingSent() throws Exception {
        List<String> kinds = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch taken = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        AgentUplink slow = new AgentUplink(
                "run",
                "7",
                "host",
                (run, event) -> {
                    if (event.kind.equals("Output")) {
                        taken.countDown();
                        await(go);
                    }
                    kinds.add(event.kind);
                },
                null);
        slow.output(3, 1, Collections.singletonList("last words"));
        await(taken); // by the thread that had gathered them
        Thread finishing = new Thread(() -> slow.finished(3, 1, new byte[0]));
        finishing.start();
        long by = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (kinds.isEmpty() && finishing.getState() != Thread.State.BLOCKED && System.nanoTime() - by < 0) {
            Thread.yield();
        }
        go.countDown();
        finishing.join(10_000);
        assertEquals(Arrays.asList("Output", "AgentFinished"), kinds);
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(10, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void shouldKeepAgentsApart() {
        uplink.output(1, 1, Collections.singletonList("of one"));
        uplink.output(2, 1, Collections.singletonList("of two"));
        uplink.back(1, 1);
        assertEquals(Collections.singletonList("of one"), sent.poll().get("lines"));
        assertEquals(Collections.singletonList("of two"), sent.poll().get("lines"));
        assertEquals("AgentBack", sent.poll().kind);
    }

    @Test
    void shouldCountLinesThatAreTooMany() {
        List<String> many = new ArrayList<>(Collections.nCopies(1002, "x"));
        uplink.output(1, 1, many);
        uplink.back(1, 1);
        List<?> lines = (List<?>) sent.poll().get("lines");
        assertEquals(1001, lines.size());
        assertEquals("... 2 more lines, too many to show", lines.get(1000));
    }
}
