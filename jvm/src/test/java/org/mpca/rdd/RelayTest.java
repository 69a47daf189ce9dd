package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.mpca.Golden;
import org.mpca.rdd.Relay.Instruction;

/** Runs the scripts that pytest runs on the simulator's relay. */
class RelayTest {
    @TestFactory
    Stream<DynamicTest> shouldFollowTheScript() {
        File[] files = Golden.file("relay").listFiles((folder, name) -> name.endsWith(".json"));
        assertTrue(files != null && files.length >= 15, "golden scripts are missing");
        Arrays.sort(files);
        return Arrays.stream(files).map(file -> DynamicTest.dynamicTest(file.getName(), () -> run(Golden.read(file))));
    }

    @Test
    void shouldHavePushedOnceItsOwnPiecesWereHere() {
        Relay relay = new Relay(3, 1, 12, new BitSet());
        relay.begin(false, 0);
        for (int piece : new int[] {1, 4, 7, 0, 2, 3}) {
            relay.arrived(piece, 10);
        }
        assertFalse(relay.hasPushed(), "piece 10 is missing");

        relay.arrived(10, 20);

        assertTrue(relay.hasPushed());
        assertTrue(new Relay(3, 2, 1, new BitSet()).hasPushed(), "who owns nothing owes nothing");
    }

    private static void run(JsonNode script) {
        BitSet present = new BitSet();
        script.get("present").forEach(piece -> present.set(piece.asInt()));
        Relay relay = new Relay(
                script.get("owners").asInt(),
                script.get("me").asInt(),
                script.get("pieces").asInt(),
                present);
        int number = 0;
        for (JsonNode step : script.get("steps")) {
            String what = script.get("name").asText() + ", step " + number++ + ": " + step.get("event");
            Recorder recorder = new Recorder();
            handle(relay, step.get("event")).forEach(instruction -> instruction.perform(recorder));
            assertEquals(Golden.value(step.get("expect")), recorder.done, what);
        }
    }

    private static List<Instruction> handle(Relay relay, JsonNode event) {
        List<Instruction> out = new ArrayList<>();
        long nowMs = event.path("now_ms").asLong();
        int sender = event.path("sender").asInt();
        switch (event.get("kind").asText()) {
            case "begin":
                return relay.begin(event.path("bringing").asBoolean(), nowMs);
            case "arrived":
                event.get("pieces").forEach(piece -> out.addAll(relay.arrived(piece.asInt(), nowMs)));
                return out;
            case "damaged":
                relay.damaged(sender);
                return out;
            case "failed":
                return relay.failed(
                        sender,
                        event.get("damage").asBoolean(),
                        event.get("why").asText());
            case "tick":
                return relay.tick(event.path("heard_ms").asLong(), nowMs);
            case "abandon":
                relay.abandon();
                return out;
            default:
                throw new AssertionError("unknown event: " + event);
        }
    }

    /** Writes instructions down in the form of the scripts. */
    private static final class Recorder implements Relay.Performer {
        final List<Object> done = new ArrayList<>();

        private void note(Object... pairs) {
            Map<String, Object> one = new LinkedHashMap<>();
            for (int i = 0; i < pairs.length; i += 2) {
                one.put((String) pairs[i], plain(pairs[i + 1]));
            }
            done.add(one);
        }

        private static Object plain(Object value) {
            if (value instanceof List) {
                List<Object> all = new ArrayList<>();
                ((List<?>) value).forEach(one -> all.add(plain(one)));
                return all;
            }
            return value instanceof Integer ? (Object) ((Integer) value).longValue() : value;
        }

        @Override
        public void askDriver(List<Integer> pieces) {
            note("do", "ask_driver", "pieces", pieces);
        }

        @Override
        public void push(List<Integer> pieces) {
            note("do", "push", "pieces", pieces);
        }

        @Override
        public void blame(int owner, String why) {
            note("do", "blame", "owner", owner, "why", why);
        }

        @Override
        public void done() {
            note("do", "done");
        }

        @Override
        public void fail(String why) {
            note("do", "fail", "why", why);
        }
    }
}
