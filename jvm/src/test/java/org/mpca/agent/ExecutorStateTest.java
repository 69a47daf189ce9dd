package org.mpca.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.mpca.Golden;
import org.mpca.agent.ExecutorState.Instruction;
import org.mpca.agent.ExecutorState.Taken;
import org.mpca.reduce.KeptArray;
import org.mpca.wire.Late;

/** Runs the scripts that pytest runs on the simulator's executor. */
class ExecutorStateTest {
    @TestFactory
    Stream<DynamicTest> shouldFollowTheScript() {
        File[] files = Golden.file("executor").listFiles((folder, name) -> name.endsWith(".json"));
        assertTrue(files != null && files.length >= 12, "golden scripts are missing");
        Arrays.sort(files);
        return Arrays.stream(files).map(file -> DynamicTest.dynamicTest(file.getName(), () -> run(Golden.read(file))));
    }

    private static void run(JsonNode script) {
        ExecutorState executor = new ExecutorState();
        int number = 0;
        for (JsonNode step : script.get("steps")) {
            String what = script.get("name").asText() + ", step " + number++ + ": " + step.get("event");
            Recorder recorder = new Recorder();
            for (Instruction instruction : handle(executor, step.get("event"))) {
                instruction.perform(recorder);
            }
            assertEquals(Golden.value(step.get("expect")), recorder.done, what);
        }
    }

    private static List<Instruction> handle(ExecutorState executor, JsonNode event) {
        int agent = event.path("agent").asInt();
        int incarnation = event.path("incarnation").asInt();
        int cycle = event.path("cycle").asInt();
        int shard = event.path("shard").asInt();
        switch (event.get("kind").asText()) {
            case "agent_up":
                return executor.agentUp(agent, incarnation);
            case "agent_gone":
                return executor.agentGone(agent, incarnation);
            case "made":
                List<Instruction> none = new ArrayList<>();
                event.get("agents")
                        .forEach(one -> none.addAll(executor.made(
                                cycle, shard, one.get(0).asInt(), one.get(1).asInt())));
                return none;
            case "freeze":
                List<int[]> agents = new ArrayList<>();
                event.get("agents")
                        .forEach(one -> agents.add(
                                new int[] {one.get(0).asInt(), one.get(1).asInt()}));
                return executor.freeze(0, cycle, shard, agents);
            case "snapshot":
                return executor.snapshot(
                        agent,
                        incarnation,
                        cycle,
                        shard,
                        event.get("tau").asInt(),
                        event.get("crc").asLong(),
                        event.get("finite").asBoolean());
            case "deadline":
                return executor.deadline(cycle);
            case "forget":
                return executor.forget(cycle);
            case "offer":
                return executor.offer(
                        agent,
                        incarnation,
                        new Arrival(
                                shard,
                                event.get("version").asLong(),
                                event.get("mode").asText(),
                                0.0,
                                KeptArray.of(new byte[0]),
                                event.has("answer")));
            case "installed":
                return executor.installed(
                        agent, incarnation, shard, event.get("version").asLong());
            default:
                throw new AssertionError("unknown event: " + event);
        }
    }

    @Test
    void shouldRefuseASecondShardForOneCycle() {
        ExecutorState executor = new ExecutorState();
        executor.agentUp(0, 0);
        executor.freeze(1, 4, 1, Arrays.asList(new int[] {0, 0}));
        IllegalArgumentException refused = assertThrows(
                IllegalArgumentException.class, () -> executor.freeze(2, 4, 2, Arrays.asList(new int[] {0, 0})));
        assertEquals("a cycle has one shard: cycle=4, shard=1, then shard=2", refused.getMessage());
    }

    @Test
    void shouldAnswerEachFreezeWithItsOwnTicket() {
        ExecutorState executor = new ExecutorState();
        executor.agentUp(0, 0);
        executor.freeze(17, 4, 1, Arrays.asList(new int[] {0, 0}));
        executor.freeze(18, 4, 1, Arrays.asList(new int[] {0, 0}));
        Recorder recorder = new Recorder();
        executor.snapshot(0, 0, 4, 1, 3, 5, true).forEach(one -> one.perform(recorder));
        assertEquals(Arrays.asList(17L, 18L), recorder.tickets);
    }

    /** Writes instructions down in the form of the scripts. */
    private static final class Recorder implements ExecutorState.Performer {
        final List<Object> done = new ArrayList<>();
        final List<Long> tickets = new ArrayList<>();

        private void note(Object... pairs) {
            Map<String, Object> one = new LinkedHashMap<>();
            for (int i = 0; i < pairs.length; i += 2) {
                Object value = pairs[i + 1];
                one.put((String) pairs[i], value instanceof Integer ? (Object) ((Integer) value).longValue() : value);
            }
            done.add(one);
        }

        @Override
        public void interrupt(int agent, int cycle, int shard) {
            note("do", "interrupt", "agent", agent, "cycle", cycle, "shard", shard);
        }

        @Override
        public void answer(long ticket, int cycle, int shard, List<Taken> frozen, Map<Integer, Late> late) {
            tickets.add(ticket);
            List<Object> rows = new ArrayList<>();
            for (Taken one : frozen) {
                rows.add(Arrays.asList((long) one.agent, (long) one.incarnation, (long) one.tau, one.crc, one.finite));
            }
            Map<String, Object> reasons = new LinkedHashMap<>();
            late.forEach((agent, reason) -> reasons.put(agent.toString(), reason.text));
            note("do", "answer", "cycle", cycle, "shard", shard, "frozen", rows, "late", reasons);
        }

        @Override
        public void back(int agent, int incarnation) {
            note("do", "back", "agent", agent, "incarnation", incarnation);
        }

        @Override
        public void discard(int agent, int cycle, int shard) {
            note("do", "discard", "agent", agent, "cycle", cycle, "shard", shard);
        }

        @Override
        public void write(int agent, Arrival arrival) {
            note(
                    "do",
                    "write",
                    "agent",
                    agent,
                    "shard",
                    arrival.shard,
                    "version",
                    arrival.version,
                    "mode",
                    arrival.mode);
        }

        @Override
        public void supersede(int agent, int shard, long version) {
            note("do", "supersede", "agent", agent, "shard", shard, "version", version);
        }

        @Override
        public void acknowledge(int agent, int shard, long version) {
            note("do", "acknowledge", "agent", agent, "shard", shard, "version", version);
        }

        @Override
        public void drop(int cycle, int unread) {
            note("do", "drop", "cycle", cycle, "unread", unread);
        }
    }
}
