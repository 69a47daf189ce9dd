package org.mpca.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.mpca.Golden;

class EventTest {
    private static final String SHA256 = String.join("", Collections.nCopies(32, "9f"));

    private final JsonNode golden = Golden.read("wire/events.json");

    /** The golden events, in the order of their file. */
    private List<Event> made() {
        Map<String, Object> progress = new LinkedHashMap<>(fields("AgentProgress"));
        progress.keySet().removeAll(Arrays.asList("kind", "agent", "incarnation"));
        Map<String, Object> question = new LinkedHashMap<>(fields("ExchangeArrived"));
        question.keySet().removeAll(Arrays.asList("kind", "asked", "arrived"));
        List<byte[]> answers = new ArrayList<>();
        ((List<?>) fields("OrderDone").get("answers")).forEach(one -> answers.add((byte[]) one));
        return Arrays.asList(
                Event.executorReady("2", "node-2", 4),
                Event.executorLost("2", "Command exited with code 137"),
                Event.agentHello("2", "node-2", map(fields("AgentHello").get("hello"))),
                Event.agentDied("2", 3, 1, 4194303, 139, "é\nSegmentation fault"),
                Event.agentFailed("2", "node-2", 3, 1, "ValueError: x", "Traceback (most recent call last):\n  é"),
                Event.agentFinished("2", 3, 1, Golden.hex("80054e2e")),
                Event.agentProgress(3, 1, progress),
                Event.agentBack("2", 3, 1),
                Event.output(3, 1, Arrays.asList("Fehler ≤ 2,5 %", "")),
                Event.acknowledged(70000, "2", new Order.AgentRef("2", 3, 1), 86400.25, 86400.5, (1L << 33) + 1, 104),
                Event.orderDone(70001, answers, 86400.25, 86401.5, (1L << 33) + 1),
                Event.orderFailed(70001, "2", "a wrong checksum", Arrays.asList("0", "2"), true),
                Event.orderFailed(70002, null, "cancelled", Collections.emptyList(), false),
                Event.executorDamages("2", "a piece of a broadcast"),
                Event.exchangeArrived(question, 86400.5, 86401.5),
                Event.agentSaved("2", 3, 1, 70000, (1L << 33) + 1, SHA256, 12.5, ""),
                Event.agentSaved("2", 3, 1, 70001, 0, "", 0.0, "TypeError: cannot pickle é"),
                Event.holdEnded(3, 1, "executor 2 is gone"),
                Event.agentsFound("2", Collections.singletonList(Event.living(3, 1, 4194303))));
    }

    @TestFactory
    Stream<DynamicTest> shouldMakeTheGoldenBytes() {
        List<DynamicTest> tests = new ArrayList<>();
        List<Event> made = made();
        assertEquals(golden.size(), made.size());
        for (int i = 0; i < made.size(); i++) {
            Event event = made.get(i);
            JsonNode one = golden.get(i);
            tests.add(DynamicTest.dynamicTest(event.kind + " " + i, () -> {
                assertEquals(one.get("name").asText(), event.kind);
                assertEquals(Golden.value(one.get("fields")), Golden.comparable(Msgpack.unpack(event.pack())));
                assertEquals(one.get("bytes").asText(), Golden.hex(event.pack()));
            }));
        }
        return tests.stream();
    }

    @Test
    void shouldHaveGoldenBytesOfEveryKind() {
        Set<String> kinds = new HashSet<>();
        golden.forEach(one -> kinds.add(one.get("name").asText()));
        long makers = Arrays.stream(Event.class.getDeclaredMethods())
                .filter(method -> method.getReturnType() == Event.class && isPublicAndStatic(method))
                .count();
        assertEquals(makers, kinds.size());
    }

    private static boolean isPublicAndStatic(Method method) {
        int modifiers = method.getModifiers();
        return Modifier.isPublic(modifiers) && Modifier.isStatic(modifiers);
    }

    private Map<String, Object> fields(String kind) {
        for (JsonNode one : golden) {
            if (one.get("name").asText().equals(kind)) {
                return map(Golden.original(Golden.value(one.get("fields"))));
            }
        }
        throw new AssertionError("no golden " + kind);
    }

    private static Map<String, Object> map(Object value) {
        Map<String, Object> map = new LinkedHashMap<>();
        ((Map<?, ?>) value).forEach((name, one) -> map.put((String) name, one));
        return map;
    }
}
