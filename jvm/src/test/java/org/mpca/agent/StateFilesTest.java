package org.mpca.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.mpca.rdd.HadoopClients;
import org.mpca.rdd.HadoopWrites;

/** From the order to save to the file: agents are real child processes, storage is in memory. */
@Timeout(60)
class StateFilesTest {
    private static final String RUN = FakeAgents.RUN;

    private final FakeAgents agents = new FakeAgents();
    private final AgentRegistry registry = agents.registry;
    private final RecordedEvents events = agents.events;
    private final Storage storage = new Storage();

    @BeforeEach
    void giveStorage() {
        registry.writeFiles(storage);
    }

    @AfterEach
    void nothingIsLeft() throws InterruptedException {
        storage.go.countDown();
        agents.close();
    }

    @Test
    void shouldWriteWhatAnAgentHandedOver() throws Exception {
        agents.train(4, 2);
        save(4, 2, 70000, "mem:/a");
        String saved = events.await("saved 4/2");
        String content = content(4, 2, 70000);
        assertTrue(
                saved.matches("saved 4/2 number=70000 bytes=" + content.length() + " sha256=[0-9a-f]{64} error="),
                saved);
        assertEquals(content, storage.text("mem:/a"));
        assertEquals(Arrays.asList("create mem:/a", "sync mem:/a", "close mem:/a"), storage.calls);
        events.await("output 4/2 taken 70000");
        events.await("progress 4/2", events.all("progress").size() + 1);
    }

    @Test
    void shouldAskForEachNumberOnce() throws Exception {
        agents.train(0, 0);
        save(0, 0, 3, "mem:/3");
        save(0, 0, 3, "mem:/3"); // the order was submitted again before the agent had answered
        events.await("saved 0/0 number=3");
        save(0, 0, 3, "mem:/3"); // and after that
        save(0, 0, 2, "mem:/2"); // an older one
        save(0, 0, 4, "mem:/4");
        events.await("saved 0/0 number=4");
        events.await("output 0/0 taken 4");
        assertEquals(2, events.all("saved").size());
        assertEquals(2, events.all("output 0/0 saves").size());
    }

    @Test
    void shouldWriteWhatWasHandedOverByAnAgentThatDied() throws Exception {
        storage.held = true;
        agents.train(0, 0, "die-when-taken");
        save(0, 0, 1, "mem:/a");
        events.await("died 0/0 exit=137"); // it had closed its memory, too
        assertEquals(Collections.emptyList(), events.all("saved"), "nobody waits for storage");
        storage.go.countDown();
        assertTrue(events.await("saved 0/0 number=1").endsWith(" error="));
        assertEquals(content(0, 0, 1), storage.text("mem:/a"));
    }

    @Test
    void shouldPassOnWhyAnAgentHasNoState() throws Exception {
        agents.train(0, 0, "cannot-save");
        save(0, 0, 1, "mem:/a");
        assertEquals(
                "saved 0/0 number=1 bytes=0 sha256= error=TypeError: cannot pickle a lock", events.await("saved 0/0"));
        assertEquals(Collections.emptyList(), storage.calls);
        assertTrue(registry.alive(RUN, 0, 0));
    }

    @Test
    void shouldKillAnAgentThatAnswersAnotherNumber() throws Exception {
        agents.train(0, 0, "saves-another");
        save(0, 0, 1, "mem:/a");
        String died = events.await("died 0/0");
        assertTrue(died.contains("message not allowed now: agent=0, message=STATE_SAVED"), died);
        assertEquals("saved 0/0 number=1 bytes=0 sha256= error=it ended first", events.await("saved 0/0"));
    }

    @Test
    void shouldReportAnAgentThatDiesBeforeItAnswers() throws Exception {
        agents.train(0, 0, "die-when-saving");
        save(0, 0, 1, "mem:/a");
        String died = events.await("died 0/0 exit=137");
        List<String> all = events.all("");
        int saved = all.indexOf("saved 0/0 number=1 bytes=0 sha256= error=it ended first");
        assertTrue(saved >= 0 && saved < all.indexOf(died), all.toString());
    }

    @Test
    void shouldReportAnAgentThatFinishesBeforeItAnswers() throws Exception {
        agents.train(0, 0, "saves-never");
        save(0, 0, 1, "mem:/a");
        save(0, 0, 2, "mem:/a");
        events.await("output 0/0 saves 2");
        assertEquals(Collections.emptyList(), events.all("saved"));
        registry.stop(RUN, 0, 0, "enough");
        events.await("finished 0/0"); // after it the driver may listen no more
        assertEquals(
                Arrays.asList(
                        "saved 0/0 number=1 bytes=0 sha256= error=it ended first",
                        "saved 0/0 number=2 bytes=0 sha256= error=it ended first"),
                events.all("saved"));
    }

    @Test
    void shouldReportAnAgentThatIsNotThere() throws Exception {
        String error = " bytes=0 sha256= error=the agent is not there";
        save(0, 0, 1, "mem:/a");
        save(0, 0, 1, "mem:/a");
        assertEquals(Collections.singletonList("saved 0/0 number=1" + error), events.all("saved"), "it was never here");

        agents.start(1, 0, "silent");
        save(1, 0, 1, "mem:/a");
        assertEquals("saved 1/0 number=1" + error, events.await("saved 1/0"), "it has not attached");

        agents.train(2, 0);
        registry.stop(RUN, 2, 0, "enough");
        assertTrue(registry.awaitEnd(RUN, 2, 0, 20_000));
        save(2, 0, 1, "mem:/a");
        save(2, 0, 1, "mem:/a");
        assertEquals(Collections.singletonList("saved 2/0 number=1" + error), events.all("saved 2/0"), "it has ended");
        assertEquals(Collections.emptyList(), storage.calls);
    }

    @Test
    void shouldNotAskAnAgentThatHasNotBegun() throws Exception {
        agents.start(0, 0);
        events.await("hello 0/0");
        save(0, 0, 1, "mem:/a");
        assertEquals(
                "saved 0/0 number=1 bytes=0 sha256= error=the agent has not begun", events.await("saved 0/0 number=1"));
        registry.begin(RUN, 0, 0);
        save(0, 0, 2, "mem:/a");
        assertTrue(events.await("saved 0/0 number=2").endsWith(" error="));
    }

    @ParameterizedTest
    @ValueSource(strings = {"create", "write", "sync", "close"})
    void shouldRemoveWhatCouldNotBeWritten(String failing) throws Exception {
        storage.failing = failing;
        agents.train(0, 0);
        save(0, 0, 1, "mem:/a");
        assertEquals(
                "saved 0/0 number=1 bytes=0 sha256= error=IOException: disk full in " + failing,
                events.await("saved 0/0"));
        assertEquals(!failing.equals("create"), storage.calls.contains("delete mem:/a"));
        assertEquals(Collections.emptyMap(), storage.files);
        storage.failing = "";
        save(0, 0, 2, "mem:/a");
        assertTrue(events.await("saved 0/0 number=2").endsWith(" error="), "the agent trains on");
        assertEquals(content(0, 0, 2), storage.text("mem:/a"));
    }

    @Test
    void shouldReportTheErrorThoughTheRemovalFailsToo() throws Exception {
        storage.failing = "write, delete";
        agents.train(0, 0);
        save(0, 0, 1, "mem:/a");
        assertTrue(events.await("saved 0/0").endsWith(" error=IOException: disk full in write"));
    }

    @Test
    void shouldRemoveWhatIsNotWhatTheAgentSaid() throws Exception {
        agents.train(0, 0, "saves-damaged");
        save(0, 0, 1, "mem:/a");
        String saved = events.await("saved 0/0");
        assertTrue(saved.contains(" error=IOException: state is not what its agent said: sha256="), saved);
        assertEquals(Arrays.asList("create mem:/a", "close mem:/a", "delete mem:/a"), storage.calls);
    }

    @Test
    void shouldRefuseAStateThatIsShorterThanSaid() throws Exception {
        agents.train(0, 0, "saves-less");
        save(0, 0, 1, "mem:/a");
        int bytes = content(0, 0, 1).length();
        assertEquals(
                "saved 0/0 number=1 bytes=0 sha256= error=EOFException: state ended: bytes=" + bytes + " of "
                        + (bytes + 1),
                events.await("saved 0/0"));
        assertEquals(Collections.emptyMap(), storage.files);
    }

    @Test
    void shouldNotEndAnAgentWhoseMemoryCannotBeOpened() throws Exception {
        agents.train(0, 0, "saves-nothing");
        save(0, 0, 1, "mem:/a");
        String saved = events.await("saved 0/0");
        assertTrue(saved.contains(" error=FileNotFoundException: /proc/"), saved);
        events.await("output 0/0 taken 1");
        assertTrue(registry.alive(RUN, 0, 0));
    }

    @Test
    void shouldSayThatThereIsNoStorage() throws Exception {
        registry.writeFiles(null);
        agents.train(0, 0);
        save(0, 0, 1, "mem:/a");
        String saved = events.await("saved 0/0");
        assertTrue(saved.contains(" error=IOException: no client of the cluster's storage"), saved);
    }

    @Test
    void shouldWriteFilesOfOneNameOneAfterTheOther() throws Exception {
        storage.held = true;
        agents.train(0, 0);
        save(0, 0, 1, "mem:/a");
        events.await("output 0/0 taken 1");
        agents.train(0, 1); // its replacement
        save(0, 1, 1, "mem:/a");
        events.await("output 0/1 taken 1");
        storage.go.countDown();
        events.await("saved 0/0 number=1");
        events.await("saved 0/1 number=1");
        assertEquals(
                Arrays.asList(
                        "create mem:/a", "sync mem:/a", "close mem:/a", "create mem:/a", "sync mem:/a", "close mem:/a"),
                storage.calls);
        assertEquals(content(0, 1, 1), storage.text("mem:/a"));
    }

    @Test
    void shouldGiveUpWhatIsNotWrittenWhenTheRunEnds() throws Exception {
        storage.held = true;
        agents.train(0, 0);
        save(0, 0, 1, "mem:/a");
        save(0, 0, 2, "mem:/a");
        events.await("output 0/0 taken 2");
        FakeAgents.waitUntil("the first is begun", () -> storage.calls.contains("create mem:/a"));
        registry.close("another run");
        registry.close(RUN);
        storage.go.countDown();
        for (int number = 1; number <= 2; number++) {
            String saved = events.await("saved 0/0 number=" + number);
            assertTrue(saved.contains(" error=IOException: the run ended before the file was written"), saved);
        }
        assertEquals(Arrays.asList("create mem:/a", "close mem:/a", "delete mem:/a"), storage.calls);
    }

    @Test
    void shouldEndWithTheExecutorThoughStorageHangs() throws Exception {
        storage.held = true;
        agents.train(0, 0);
        agents.train(1, 0);
        save(0, 0, 1, "mem:/a");
        save(0, 0, 2, "mem:/a");
        save(1, 0, 1, "mem:/b");
        events.await("output 0/0 taken 2");
        events.await("output 1/0 taken 1");
        FakeAgents.waitUntil("two are begun", () -> storage.calls.size() == 2);
        long before = System.nanoTime();
        registry.shutdown();
        assertTrue(System.nanoTime() - before < 8_000_000_000L);
        assertEquals(3, events.all("saved").size());
        assertEquals(Collections.emptyMap(), storage.files);
        assertFalse(events.all("saved").stream().anyMatch(one -> one.endsWith(" error=")));
    }

    @Test
    void shouldLeaveNothingOnADisk(@TempDir Path folder) throws Exception {
        Path memory = folder.resolve("memory");
        Files.write(memory, content(0, 0, 1).getBytes(StandardCharsets.UTF_8));
        StateFiles states = new StateFiles();
        states.writeTo(new HadoopWrites(new HadoopClients(Configuration::new)));
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        states.write(
                RUN,
                memory.toString(),
                Files.size(memory),
                "9f",
                "file://" + folder.resolve("states/0.bin"),
                (bytes, sha256, seconds, error) -> errors.add(error));
        FakeAgents.waitUntil("there is an outcome", () -> !errors.isEmpty());
        states.shutdown(1_000);
        assertTrue(errors.get(0).startsWith("IOException: state is not what its agent said"), errors.toString());
        try (Stream<Path> left = Files.list(folder.resolve("states"))) {
            assertEquals(0, left.count());
        }
    }

    private void save(int agent, int incarnation, int number, String url) {
        registry.saveState(RUN, agent, incarnation, number, url, events);
    }

    /** What fake_agent.py hands over. */
    private static String content(int agent, int incarnation, int number) {
        return String.join("", Collections.nCopies(50_000, agent + "/" + incarnation + " saves " + number + ". "));
    }

    /** Storage in memory, which can be held up in its first write, and can fail. */
    private static final class Storage implements FileWrites {
        /** Those that are there, whole or not. */
        final Map<String, byte[]> files = new ConcurrentHashMap<>();

        final List<String> calls = Collections.synchronizedList(new ArrayList<>());
        final CountDownLatch go = new CountDownLatch(1);
        volatile boolean held;
        volatile String failing = "";

        String text(String url) {
            return new String(files.get(url), StandardCharsets.UTF_8);
        }

        private void perhapsFail(String call) throws IOException {
            if (failing.contains(call)) {
                throw new IOException("disk full in " + call);
            }
        }

        @Override
        public Target create(String url) throws IOException {
            perhapsFail("create");
            calls.add("create " + url);
            files.put(url, new byte[0]);
            ByteArrayOutputStream written = new ByteArrayOutputStream();
            return new Target() {
                @Override
                public void write(byte[] from, int at, int length) throws IOException {
                    perhapsFail("write");
                    if (held) {
                        try {
                            go.await();
                        } catch (InterruptedException e) {
                            throw new InterruptedIOException("interrupted");
                        }
                    }
                    written.write(from, at, length);
                }

                @Override
                public void sync() throws IOException {
                    perhapsFail("sync");
                    calls.add("sync " + url);
                }

                @Override
                public void close() throws IOException {
                    perhapsFail("close");
                    calls.add("close " + url);
                    files.put(url, written.toByteArray());
                }
            };
        }

        @Override
        public void delete(String url) throws IOException {
            perhapsFail("delete");
            calls.add("delete " + url);
            files.remove(url);
        }
    }
}
