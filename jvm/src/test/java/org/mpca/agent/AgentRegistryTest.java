package org.mpca.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.mpca.reduce.KeptArray;
import org.mpca.wire.Late;

/** Agents as real child processes: started, asked, stopped, killed. */
@Timeout(60)
class AgentRegistryTest {
    private static final String RUN = FakeAgents.RUN;

    final FakeAgents agents = make();
    private final AgentRegistry registry = agents.registry;
    private final RecordedEvents events = agents.events;

    FakeAgents make() {
        return new FakeAgents();
    }

    @AfterEach
    void nothingIsLeft() throws InterruptedException {
        agents.close();
    }

    @Test
    void shouldKnowTheLivingAgents() throws Exception {
        int pid = agents.train(4, 2);
        AgentStatus only = registry.living(RUN).get(0);
        assertEquals(1, registry.living(RUN).size());
        assertEquals(
                "4/2 " + pid + " true", only.agent + "/" + only.incarnation + " " + only.pid + " " + only.attached);
        assertTrue(registry.alive(RUN, 4, 2));
        assertFalse(registry.alive(RUN, 4, 1));
        assertFalse(registry.awaitEnd(RUN, 4, 2, 1));
        assertTrue(registry.awaitEnd(RUN, 4, 1, 1), "what was never here has ended");
        assertEquals(Collections.emptyList(), registry.living("another run"));
    }

    @Test
    void shouldKeepAnAgentWhoseStartingThreadEnded() throws Exception {
        Thread task = new Thread(() -> agents.start(0, 0));
        task.start();
        task.join();
        events.await("hello 0/0"); // the agent has asked for the death signal of its parent thread by now
        events.await("progress 0/0", 3);
        assertEquals(Collections.emptyList(), events.all("died"));
    }

    @Test
    void shouldTellTheLastWordsOfAnAgentThatClosesItsPipeAndThenDies() throws Exception {
        List<String> command = Arrays.asList("sh", "-c", "exec <&-; echo no such library >&2; sleep 0.3; exit 3");
        byte[] start = new byte[1 << 20]; // more than a pipe holds: it is being written when the pipe breaks
        registry.start(
                new LaunchSpec(RUN, 0, 0, command, Collections.emptyList(), Collections.emptyMap(), start, null),
                events);
        String died = events.await("died 0/0");
        assertTrue(died.startsWith("died 0/0 exit=3 "), died);
        assertTrue(died.endsWith("no such library"), died);
    }

    @Test
    void shouldPassOnWhatAnAgentPrints() throws Exception {
        agents.train(0, 0);
        events.await("output 0/0 line one");
        events.await("output 0/0 line two");
    }

    @Test
    void shouldPassOnWhatAnAgentPrintsToItsEndBeforeItsLastWord() throws Exception {
        agents.train(0, 0, "prints-at-its-end");
        registry.stop(RUN, 0, 0, "enough");
        events.await("finished 0/0");
        List<String> all = events.all("");
        assertTrue(all.indexOf("output 0/0 the last line") >= 0, all.toString());
        assertTrue(all.indexOf("output 0/0 the last line") < all.indexOf(events.await("finished 0/0")), all.toString());
    }

    @Test
    void shouldNotWaitForThePrintsOfAnAgentThatDoesNotEnd() throws Exception {
        int pid = agents.train(0, 0, "lingers");
        long before = System.nanoTime();
        registry.stop(RUN, 0, 0, "enough");
        events.await("finished 0/0");
        assertFalse(FakeAgents.gone(pid));
        assertTrue(System.nanoTime() - before < 8_000_000_000L);
    }

    @Test
    void shouldTellAnAgentWhoReadsTheData() throws Exception {
        agents.train(0, 0);
        registry.tellReaders(RUN, 0, 0, 3, Collections.singletonMap("agents", 2));
        registry.tellReaders(RUN, 0, 1, 4, Collections.emptyMap()); // of an incarnation that is not here
        events.await("output 0/0 readers 3 {'agents': 2}");
    }

    @Test
    void shouldTakeTheNewSegmentOfAnAgentThatIsCutAnew() throws Exception {
        agents.start(0, 0, "still");
        events.await("hello 0/0");
        assertEquals(40, agents.yield(0, 2, 0).freeze(FakeAgents.soon()).data.length);
        registry.cut(RUN, 0, 0, 6);
        registry.cut(RUN, 0, 0, 6); // the order was submitted again before the agent had answered
        events.await("hello 0/0", 2);
        registry.cut(RUN, 0, 0, 6); // and after that
        registry.cut(RUN, 0, 1, 5); // of an incarnation that is not here
        assertTrue(registry.offer(RUN, 0, 0, new Arrival(5, 0, "replace", 0.0, KeptArray.of(new byte[20]))));
        registry.begin(RUN, 0, 0);
        assertEquals(20, agents.yield(1, 5, 0).freeze(FakeAgents.soon()).data.length);
        assertEquals(2, events.all("hello 0/0").size());
        assertEquals(Collections.emptyList(), events.all("died"));
    }

    @Test
    void shouldEndAnAgentThatIsCutWhileItOwesASnapshot() throws Exception {
        agents.start(0, 0);
        String hello = events.await("hello 0/0");
        int pid = Integer.parseInt(hello.replaceAll(".*pid=", ""));
        FakeAgents.signal("STOP", pid);
        assertEquals(
                Collections.singletonMap(0, Late.DEADLINE),
                registry.freeze(keys(-1, 2, 0), System.nanoTime() + 300_000_000L).late);
        registry.cut(RUN, 0, 0, 6);
        String died = events.await("died 0/0");
        assertTrue(died.contains("cut while a snapshot is asked for: agent=0, shard=2 of cycle=-1"), died);
    }

    @Test
    void shouldFreezeAgentsSideBySide() throws Exception {
        agents.train(0, 0);
        agents.train(1, 0);
        Freezing freezing = registry.freeze(keys(5, 2, 1, 0), FakeAgents.soon());
        assertEquals("[0, 1]", freezing.frozen.keySet().toString());
        assertEquals(Collections.emptyMap(), freezing.late);
    }

    @Test
    void shouldSayOfANanThatItIsNotFinite() throws Exception {
        agents.train(0, 0, "nan");
        assertFalse(agents.yield(0, 0, 0).freeze(FakeAgents.soon()).finite);
    }

    @Test
    void shouldLeaveAStoppedAgentOutAndWelcomeItAgain() throws Exception {
        int pid = agents.train(0, 0);
        agents.train(1, 0);
        FakeAgents.signal("STOP", pid);
        Freezing without = registry.freeze(keys(1, 1, 0, 1), System.nanoTime() + 500_000_000L);
        assertEquals("[1]", without.frozen.keySet().toString());
        assertEquals(Collections.singletonMap(0, Late.DEADLINE), without.late);
        assertThrows(
                LateAgentException.class,
                () -> agents.yield(1, 1, 0).freeze(System.nanoTime() + 500_000_000L),
                "asked again, and still stopped");
        assertEquals(Collections.emptyList(), events.all("back"));

        FakeAgents.signal("CONT", pid);
        events.await("back 0/0");
        assertEquals(
                "[0, 1]",
                registry.freeze(keys(2, 2, 0, 1), FakeAgents.soon())
                        .frozen
                        .keySet()
                        .toString());
        assertTrue(agents.yield(1, 1, 0).freeze(FakeAgents.soon()).tau >= 0, "asked again, it hands over anew");
    }

    @Test
    void shouldAnswerAtOnceWhenAnAgentDiesAsked() throws Exception {
        agents.train(0, 0, "die-when-asked");
        agents.train(1, 0);
        long before = System.nanoTime();
        Freezing freezing = registry.freeze(keys(1, 1, 0, 1), before + 20_000_000_000L);
        assertEquals(Collections.singletonMap(0, Late.DIED), freezing.late);
        assertEquals("[1]", freezing.frozen.keySet().toString());
        assertTrue(System.nanoTime() - before < 8_000_000_000L);
        assertTrue(events.await("died 0/0").startsWith("died 0/0 exit=137 "));
        assertEquals(
                Collections.singletonMap(0, Late.NO_SUCH_INCARNATION),
                registry.freeze(keys(2, 2, 0), FakeAgents.soon()).late);
    }

    @Test
    void shouldCountASnapshotThatWasHandedOverBeforeTheDeath() throws Exception {
        agents.train(0, 0, "die-after-snapshot");
        FrozenYield state = agents.yield(1, 1, 0).freeze(FakeAgents.soon());
        events.await("died 0/0 exit=137");
        assertTrue(registry.awaitEnd(RUN, 0, 0, 5_000));
        assertArrayEquals(
                state.data,
                registry.freeze(keys(1, 1, 0), FakeAgents.soon()).frozen.get(0).data);
    }

    @Test
    void shouldReportExitCodePidAndLastLines() throws Exception {
        agents.start(3, 1, "exit-7");
        String died = events.await("died 3/1");
        assertTrue(
                died.matches("(?s)died 3/1 exit=7 pid=[1-9][0-9]* tail=line one\nline two\ncannot import torch"), died);
    }

    @Test
    void shouldReportAProgramThatIsNotThere() throws Exception {
        LaunchSpec spec = new LaunchSpec(
                RUN,
                0,
                0,
                Collections.singletonList("/nowhere/python"),
                Collections.emptyList(),
                Collections.emptyMap(),
                new byte[] {0},
                null);
        registry.start(spec, events);
        String died = events.await("died 0/0");
        assertTrue(died.startsWith("died 0/0 exit=127 pid=0 tail=") && died.contains("/nowhere/python"), died);
        assertTrue(registry.awaitEnd(RUN, 0, 0, 5_000));
    }

    @Test
    void shouldReportAFailureOfTheUsersCodeAndNoDeath() throws Exception {
        agents.start(0, 0, "fail");
        assertEquals("failed 0/0 ValueError: x Traceback ...\nValueError: x", events.await("failed"));
        assertTrue(registry.awaitEnd(RUN, 0, 0, 10_000));
        assertEquals(Collections.emptyList(), events.all("died"));
    }

    @Test
    void shouldKillAnAgentThatBreaksTheProtocol() throws Exception {
        agents.start(0, 0, "garbage");
        String died = events.await("died 0/0");
        assertTrue(died.contains("exit=137") && died.contains("frame too large: bytes=4294967295"), died);
        agents.start(1, 0, "liar");
        assertTrue(events.await("died 1/0").contains("Hello of somebody else"));
    }

    @Test
    void shouldEndDataWorkersWithTheirAgent() throws Exception {
        int pid = agents.train(0, 0, "worker");
        int worker = Integer.parseInt(events.await("output 0/0 worker ").replaceAll(".* ", ""));
        assertFalse(FakeAgents.gone(worker));
        FakeAgents.signal("KILL", pid);
        events.await("died 0/0 exit=137");
        FakeAgents.waitUntil("the worker is gone", () -> FakeAgents.gone(worker));
    }

    @Test
    void shouldHandArrivalsOverOneAfterTheOther() throws Exception {
        agents.start(0, 0, "still", "install-at-begin");
        events.await("hello 0/0");
        for (int version = 1; version <= 3; version++) {
            assertTrue(
                    registry.offer(RUN, 0, 0, new Arrival(1, version, "install", 0.25, KeptArray.of(floats(version)))));
        }
        assertTrue(registry.offer(RUN, 0, 0, new Arrival(2, 1, "replace", 0.0, KeptArray.of(floats(9)))));
        assertEquals(1, registry.superseded(RUN), "the second waited for the slot when the third came");
        assertArrayEquals(floats(0), agents.yield(0, 1, 0).freeze(FakeAgents.soon()).data, "it has read nothing yet");

        registry.begin(RUN, 0, 0); // now it reads its slots, and the third is written
        int cycle = 1;
        while (!Arrays.equals(floats(3), agents.yield(cycle, 1, 0).freeze(FakeAgents.soon()).data)) {
            assertTrue(cycle++ < 500, "version 3 never arrived");
        }
        assertArrayEquals(floats(9), agents.yield(cycle + 1, 2, 0).freeze(FakeAgents.soon()).data);
        assertArrayEquals(floats(0), agents.yield(cycle + 2, 0, 0).freeze(FakeAgents.soon()).data);
    }

    @Test
    void shouldPassAnExchangeOnAndHandItsAnswerOver() throws Exception {
        agents.train(0, 0, "asks");
        String asks = events.await("asks 0/0");
        assertTrue(asks.matches("asks 0/0 number=1 shard=1 updates=([5-9]|[1-9][0-9]+) version=7 bytes=40"), asks);
        long before = System.nanoTime();
        assertEquals(
                Collections.singletonMap(0, Late.DEADLINE),
                registry.freeze(keys(1, 1, 0), before + 300_000_000L).late,
                "it waits for its answer");
        assertTrue(registry.offer(RUN, 0, 0, new Arrival(1, 7, "install", 0.25, KeptArray.of(floats(3)), true)));
        events.await("output 0/0 answered 7 install 0.25 3.0");
        events.await("back 0/0");
        assertTrue(registry.freeze(keys(2, 2, 0), FakeAgents.soon()).frozen.containsKey(0));
        assertEquals(Collections.emptyList(), events.all("died"));
    }

    @Test
    void shouldAskAgainForASnapshotThatAnExchangeHasOverwritten() throws Exception {
        agents.train(0, 0, "asks-behind-snapshot");
        Thread answer = new Thread(() -> {
            try {
                events.await("asks 0/0 number=1 shard=1");
                registry.offer(RUN, 0, 0, new Arrival(1, 1, "install", 0.0, KeptArray.of(floats(3)), true));
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        });
        answer.start();
        Freezing freezing = registry.freeze(keys(1, 2, 0), FakeAgents.soon());
        answer.join();
        assertTrue(freezing.frozen.containsKey(0), freezing.late.toString());
        assertEquals(Collections.emptyList(), events.all("died"));
    }

    @Test
    void shouldKillAnAgentThatHandsASnapshotOverWhileItAsks() throws Exception {
        agents.train(0, 0, "asks", "answers-asking");
        events.await("asks 0/0");
        assertEquals(Collections.singletonMap(0, Late.DIED), registry.freeze(keys(1, 2, 0), FakeAgents.soon()).late);
        assertTrue(events.await("died 0/0").contains("message not allowed now: agent=0, message=SNAPSHOT"));
    }

    @Test
    void shouldSayOfEveryAgentThatItHasEnded() throws Exception {
        agents.train(0, 0);
        agents.train(0, 1); // the older one is dismissed
        events.await("ended 0/0");
        registry.stop(RUN, 0, 1, "enough");
        events.await("ended 0/1");
    }

    @Test
    void shouldNotAcknowledgeAnArrivalForNobody() throws Exception {
        assertFalse(registry.offer(RUN, 0, 0, new Arrival(1, 1, "install", 0.25, KeptArray.of(floats(1)))));
        agents.train(0, 1);
        assertFalse(registry.offer(RUN, 0, 0, new Arrival(1, 1, "install", 0.25, KeptArray.of(floats(1)))));
    }

    @Test
    void shouldKillTheOlderIncarnationWithoutAReport() throws Exception {
        int older = agents.train(0, 0);
        agents.train(0, 1);
        FakeAgents.waitUntil("the older one is gone", () -> FakeAgents.gone(older));
        assertEquals(Collections.emptyList(), events.all("died"));
        assertThrows(AgentGoneException.class, () -> agents.yield(1, 1, 0).freeze(FakeAgents.soon()));
        registry.yield(FakeAgents.key(2, 2, 0, 1)).freeze(FakeAgents.soon());
    }

    @Test
    void shouldStartALivingAgentOnlyOnce() throws Exception {
        int pid = agents.train(0, 0);
        RecordedEvents others = new RecordedEvents();
        registry.start(agents.spec(0, 0), others);
        others.await("progress 0/0");
        assertEquals(pid, registry.living(RUN).get(0).pid);
        registry.rebind(events);
        events.await("progress 0/0", events.all("progress").size() + 1);
    }

    @Test
    void shouldRefuseYieldsOfAnOlderAttemptOfTheDriver() throws Exception {
        agents.train(0, 0);
        YieldKey first = FakeAgents.key(8, 2, 0, 0);
        byte[] before = registry.yield(first).freeze(FakeAgents.soon()).data.clone();
        events.await("progress 0/0", events.all("progress").size() + 1);
        byte[] after = registry.yield(new YieldKey(RUN, 1, 8, 2, 0, 0)).freeze(FakeAgents.soon()).data;
        assertFalse(Arrays.equals(before, after), "the same cycle of a later attempt is another yield");
        assertThrows(AgentGoneException.class, () -> registry.yield(first).freeze(FakeAgents.soon()));
    }

    @Test
    void shouldLeaveAForgottenSnapshotAloneUntilItsLastUserHasLetGo() throws Exception {
        agents.train(0, 0);
        FrozenYield used = registry.yield(FakeAgents.key(8, 2, 0, 0)).freeze(FakeAgents.soon());
        assertTrue(used.kept.retain());
        byte[] bytes = used.data.clone();
        registry.forget(RUN, 0, 8);
        FrozenYield second = registry.yield(FakeAgents.key(9, 2, 0, 0)).freeze(FakeAgents.soon());
        assertNotSame(used.data, second.data);
        assertArrayEquals(bytes, used.data);
        used.kept.release();
        assertFalse(used.kept.retain(), "nobody may read it any more");
        FrozenYield third = registry.yield(FakeAgents.key(10, 2, 0, 0)).freeze(FakeAgents.soon());
        assertSame(used.data, third.data);
        assertThrows(IllegalStateException.class, used.kept::release);
    }

    @Test
    void shouldRefuseAFreezeOfUnlikeYields() {
        assertThrows(
                IllegalArgumentException.class,
                () -> registry.freeze(
                        Arrays.asList(FakeAgents.key(1, 1, 0, 0), FakeAgents.key(2, 1, 1, 0)), FakeAgents.soon()));
        assertThrows(IllegalArgumentException.class, () -> registry.freeze(Collections.emptyList(), FakeAgents.soon()));
    }

    @Test
    void shouldEndOneRunAndLeaveTheOther() throws Exception {
        int pid = agents.train(0, 0);
        registry.close("another run");
        assertFalse(FakeAgents.gone(pid));
        registry.close(RUN);
        assertTrue(FakeAgents.gone(pid));
        assertEquals(Collections.emptyList(), events.all("died"));
        assertThrows(AgentGoneException.class, () -> agents.yield(1, 1, 0).freeze(FakeAgents.soon()));
    }

    @Test
    void shouldEndWithinSecondsWhateverTheAgentsDo() throws Exception {
        int stopped = agents.train(0, 0);
        agents.train(1, 0, "worker");
        agents.start(2, 0, "silent");
        agents.start(3, 0); // perhaps not even started when the end comes
        FakeAgents.signal("STOP", stopped);
        long before = System.nanoTime();
        registry.shutdown();
        assertTrue(System.nanoTime() - before < 8_000_000_000L);
        assertEquals(Collections.emptyList(), events.all("died"));
        assertThrows(IllegalStateException.class, () -> agents.start(0, 1));
        registry.shutdown();
    }

    private static List<YieldKey> keys(int cycle, int shard, int... numbers) {
        List<YieldKey> keys = new ArrayList<>();
        for (int number : numbers) {
            keys.add(FakeAgents.key(cycle, shard, number, 0));
        }
        return keys;
    }

    private static byte[] floats(float value) {
        ByteBuffer bytes = ByteBuffer.allocate(FakeAgents.SHARD_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        while (bytes.hasRemaining()) {
            bytes.putFloat(value);
        }
        return bytes.array();
    }
}
