package org.mpca.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.mpca.Golden;

class MessageTest {
    /** Of the golden ReadersChanged: nobody here makes one. */
    private static final String READERS_CHANGED =
            "84a66167656e747302a573696e636592920004920107a66c6f7373657391940105ce0001117006a66265666f726590";

    @TestFactory
    Stream<DynamicTest> shouldReadAndWriteTheGoldenBytes() {
        List<DynamicTest> tests = new ArrayList<>();
        for (JsonNode one : Golden.read("wire/messages.json")) {
            tests.add(DynamicTest.dynamicTest(one.get("name").asText() + " " + tests.size(), () -> {
                byte[] bytes = Golden.hex(one.get("frame").asText());
                Message message = Message.unpack(new FrameReader(new ByteArrayInputStream(bytes)).read());
                assertEquals(
                        one.get("name").asText().toUpperCase(),
                        message.kind.name().replace("_", ""));
                assertEquals(one.get("code").asInt(), message.kind.code);
                assertEquals(Golden.value(one.get("fields")), Golden.comparable(message.fields.asMap()));
                assertArrayEquals(bytes, frame(message.pack()));
            }));
        }
        return tests.stream();
    }

    @Test
    void shouldMakeTheGoldenBytesOfWhatAnExecutorSends() throws IOException {
        List<String> golden = new ArrayList<>();
        Golden.read("wire/messages.json")
                .forEach(one -> golden.add(one.get("frame").asText()));
        for (Message message : Arrays.asList(
                Message.begin(),
                Message.snapshotRequest(41, 2),
                Message.snapshotRequest(-3, 0),
                Message.snapshotRequest(70000, 127),
                Message.install(1, 14, "install", 0.025),
                Message.install(128, (1L << 33) + 1, "replace", 0.0),
                Message.cut(6),
                Message.saveState(70000),
                Message.stateTaken(70000),
                Message.stop("objective reached: Fehler ≤ 2,5 %"),
                Message.fetched(70000, 3670016, "", ""),
                Message.fetched(70001, 0, "java.io.FileNotFoundException", "File does not exist: /data/é.tar"),
                Message.readersChanged(3, (Map<?, ?>) Msgpack.unpack(Golden.hex(READERS_CHANGED))))) {
            assertTrue(
                    golden.contains(Golden.hex(frame(message.pack()))), message.kind + " is not among the golden ones");
        }
    }

    @TestFactory
    Stream<DynamicTest> shouldRefuse() {
        List<DynamicTest> tests = new ArrayList<>();
        for (JsonNode one : Golden.read("wire/bad_frames.json")) {
            tests.add(DynamicTest.dynamicTest(
                    one.get("name").asText() + ": " + one.get("why").asText(), () -> {
                        byte[] bytes = Golden.hex(one.get("bytes").asText());
                        assertThrows(
                                IOException.class,
                                () -> Message.unpack(new FrameReader(new ByteArrayInputStream(bytes)).read()));
                    }));
        }
        return tests.stream();
    }

    @Test
    void shouldTellAnEndBetweenFramesFromOneInside() throws IOException {
        byte[] one = frame(Message.begin().pack());
        FrameReader reader = new FrameReader(new ByteArrayInputStream(one));
        assertEquals(Message.Kind.BEGIN, Message.unpack(reader.read()).kind);
        assertNull(reader.read());
    }

    @Test
    void shouldRefuseToWriteAFrameOverTheLimit() {
        IOException refused = assertThrows(IOException.class, () -> frame(new byte[FrameReader.MAX_BYTES + 1]));
        assertTrue(refused.getMessage().startsWith("frame too large: bytes=67108865, limit=67108864"));
    }

    @Test
    void shouldNameTheFieldThatIsOfAnotherType() throws IOException {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("cycle", "seven");
        fields.put("shard", 0);
        Message message = Message.unpack(Msgpack.pack(Arrays.asList(3, fields)));
        ProtocolException wrong = assertThrows(ProtocolException.class, () -> message.fields.integer("cycle"));
        assertEquals("SNAPSHOT_REQUEST.cycle is not a whole number: String seven", wrong.getMessage());
    }

    @Test
    void shouldReadGoldenOrders() throws ProtocolException {
        Map<String, JsonNode> golden = goldenOrders();
        Order empty = Order.unpack(Golden.hex(golden.get("empty").get("bytes").asText()));
        assertEquals(-(1 << 30), empty.forgetCycle);
        assertNull(empty.reduce);
        assertNull(empty.freeze);
        assertNull(empty.readers);
        assertNull(empty.cut);
        assertNull(empty.save);
        assertEquals(86430.5, empty.deadline);

        Order full = Order.unpack(Golden.hex(golden.get("full").get("bytes").asText()));
        JsonNode fields = golden.get("full").get("fields");
        assertEquals(fields.get("order").asInt(), full.order);
        assertEquals("digits/2/41/39", full.run + "/" + full.term + "/" + full.cycle + "/" + full.forgetCycle);
        assertEquals(Arrays.asList("0", "2"), full.executors);
        assertEquals("cycle 41: reduce shard 2", full.description);
        assertEquals("0 0 1, 2 3 0", text(full.begin));
        assertEquals(
                "2 3 0 objective reached",
                full.stop.stream()
                        .map(one -> text(one.agent) + " " + one.reason)
                        .collect(Collectors.joining(", ")));
        assertEquals(Arrays.asList(12L, 1L << 35), full.forgetBroadcasts);
        Order.Download download = full.downloads.get(0);
        assertEquals(
                "13 0 13 install 104",
                download.broadcast + " " + download.shard + " " + download.version + " " + download.mode + " "
                        + download.length);
        assertEquals(0.025, download.alpha);
        assertEquals("0 0 1, 2 3 0", text(download.agents));
        assertEquals("int8 12 3735928559 25 104", text(download.coded));
        assertEquals(3405691582L, download.result);
        assertEquals("41 2 108", full.reduce.cycle + " " + full.reduce.shard + " " + full.reduce.length);
        assertEquals(
                "0=131.0, 2=120.0",
                full.reduce.parts.stream()
                        .map(part -> part.executor + "=" + part.weight)
                        .collect(Collectors.joining(", ")));
        assertEquals("int8 11 7 27 108 38", text(full.reduce.coded) + " " + full.reduce.after);
        assertEquals(text(download.coded), text(full.freeze.coded));
        assertTrue(full.freeze.carries() && !full.freeze.answers());
        assertEquals(
                "0 39, 2 36",
                full.carried.stream().map(one -> one.executor + " " + one.cycle).collect(Collectors.joining(", ")));
        Order.BaseInFull base = full.bases.get(0);
        assertEquals("1 12 3735928559 104", base.shard + " " + base.version + " " + base.crc + " " + base.length);
        assertEquals("42 0 0 0 1, 2 3 0", full.freeze.cycle + " " + full.freeze.shard + " " + text(full.freeze.agents));
        assertEquals(120.0, full.freeze.weight(120), "by updates");
        assertEquals("3 0 0 1", full.readers.version + " " + text(full.readers.agents));
        assertEquals(Golden.value(fields.get("readers").get("readers")), Golden.comparable(full.readers.readers));
        assertEquals("6 0 0 1, 2 3 0", full.cut.shards + " " + text(full.cut.agents));
        assertEquals("70000 0 0 1, 2 3 0", full.save.number + " " + text(full.save.agents));
        assertEquals(Arrays.asList("hdfs://cluster/runs/é/0.state", "hdfs://cluster/runs/é/3.state"), full.save.urls);
    }

    @Test
    void shouldRefuseASaveWithoutAFileForEachAgent() {
        Map<?, ?> fields = (Map<?, ?>)
                Golden.original(Golden.value(goldenOrders().get("full").get("fields")));
        ((List<?>) ((Map<?, ?>) fields.get("save")).get("urls")).remove(0);
        ProtocolException wrong = assertThrows(ProtocolException.class, () -> Order.unpack(Msgpack.pack(fields)));
        assertEquals("Order.save has not one file for each agent: agents=2, urls=1", wrong.getMessage());
    }

    @Test
    void shouldWriteTheGoldenAnswer() {
        JsonNode golden = goldenOrders().get("answer");
        JsonNode fields = golden.get("fields");
        Answer answer = new Answer();
        answer.executor = fields.get("executor").asText();
        answer.host = fields.get("host").asText();
        JsonNode frozen = fields.get("frozen").get(0);
        answer.frozen.add(new Answer.Frozen(
                frozen.get("agent").asInt(),
                frozen.get("incarnation").asInt(),
                frozen.get("tau").asInt(),
                frozen.get("crc").asLong(),
                frozen.get("finite").asBoolean(),
                frozen.get("distance").asDouble(),
                frozen.get("start").asDouble(),
                frozen.get("end").asDouble()));
        for (Late late : Late.values()) {
            JsonNode row = fields.get("late").get(String.valueOf(3 + late.code));
            assertEquals(row.get(0).asInt() + row.get(1).asText(), late.code + late.text);
            answer.late.put(3 + late.code, late);
        }
        answer.weight = fields.get("weight").asDouble();
        answer.reduceStart = fields.get("reduce_start").asDouble();
        answer.reduceEnd = fields.get("reduce_end").asDouble();
        answer.bytesIn = fields.get("bytes_in").asLong();
        answer.bytesOut = fields.get("bytes_out").asLong();
        assertEquals(golden.get("bytes").asText(), Golden.hex(answer.pack()));
    }

    @Test
    void shouldGiveBackWhatItPacked() throws ProtocolException {
        for (JsonNode one : Golden.read("wire/messages.json")) {
            Object value = Golden.value(one.get("fields"));
            assertEquals(value, Golden.comparable(Msgpack.unpack(Msgpack.pack(Golden.original(value)))));
        }
    }

    private static Map<String, JsonNode> goldenOrders() {
        Map<String, JsonNode> orders = new LinkedHashMap<>();
        Golden.read("wire/orders.json")
                .forEach(one -> orders.put(one.get("name").asText(), one));
        return orders;
    }

    private static String text(Order.Coded one) {
        return one.codec + " " + one.version + " " + one.crc + " " + one.parameters + " " + one.length;
    }

    private static String text(List<Order.AgentRef> agents) {
        return agents.stream().map(MessageTest::text).collect(Collectors.joining(", "));
    }

    private static String text(Order.AgentRef one) {
        return one.executor + " " + one.agent + " " + one.incarnation;
    }

    private static byte[] frame(byte[] body) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        new FrameWriter(out).write(body);
        return out.toByteArray();
    }
}
